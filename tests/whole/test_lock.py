"""The lock, the package's own requirements and the conda environment agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKED = {
    canonicalize_name(name): version
    for name, version in re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "requirements.lock").read_text(), flags=re.M)
}


def test_every_line_of_the_lock_is_an_exact_pin_and_torch_is_the_one_that_brings_no_cuda() -> None:
    lines = [
        line for line in (ROOT / "requirements.lock").read_text().splitlines() if line and not line.startswith("#")
    ]
    assert len(lines) == len(LOCKED)
    assert LOCKED[canonicalize_name("torch")] == "2.13.0"


def test_the_lock_satisfies_the_package_and_what_make_env_installs_besides() -> None:
    extras = [requirement for name in ("slurm", "dev") for requirement in PROJECT["optional-dependencies"][name]]
    wanted = [*PROJECT["dependencies"], *extras]
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(LOCKED[canonicalize_name(requirement.name)]), requirement


def test_the_conda_environment_has_the_same_versions() -> None:
    pins = yaml.safe_load((ROOT / "envs" / "taps.yaml").read_text())["dependencies"][-1]["pip"]
    assert {canonicalize_name(pin.split("==")[0]) for pin in pins} == {
        canonicalize_name(Requirement(wanted).name) for wanted in PROJECT["dependencies"]
    }
    for name, version in (pin.split("==") for pin in pins):
        assert LOCKED[canonicalize_name(name)] == version
