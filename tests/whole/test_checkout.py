"""What the workflow tells its stages through the environment."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from taps.plumbing.checkout import name_study, use_checkout


def test_interpreter_and_checkout_come_first_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    for _ in range(2):
        use_checkout(tmp_path)
    assert os.environ["PATH"].split(os.pathsep) == [str(Path(sys.executable).parent), "/usr/bin"]
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(tmp_path), "/elsewhere"]


def test_an_unset_variable_gets_no_empty_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)  # an empty entry would mean the current folder
    use_checkout(tmp_path)
    assert os.environ["PYTHONPATH"] == str(tmp_path)


@pytest.mark.parametrize(
    ("files", "replace", "expected"),
    [
        ([], False, []),
        (["a b.yaml"], True, ["--replace-workflow-config", "--configfile", "a b.yaml"]),
        (["a.yaml", "b.yaml"], False, ["--configfile", "a.yaml", "b.yaml"]),
    ],
)
def test_the_study_is_named_by_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], replace: bool, expected: list[str]
) -> None:
    monkeypatch.setenv("TAPS_SNAKEMAKE_OPTIONS", "")
    monkeypatch.chdir(tmp_path)
    settings = SimpleNamespace(configfiles=[tmp_path / file for file in files], replace_workflow_config=replace)
    name_study(settings, root=tmp_path)
    assert shlex.split(os.environ["TAPS_SNAKEMAKE_OPTIONS"]) == expected
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    name_study(settings, root=tmp_path)
    assert shlex.split(os.environ["TAPS_SNAKEMAKE_OPTIONS"])[:2] == ["--directory", str(tmp_path / "run")]
