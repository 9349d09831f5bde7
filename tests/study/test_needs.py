"""What a study asks for: every rule has a need, needs follow the sizes, the SLURM profile covers them."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from taps.study.budget import Work, hours, training_reads, training_work
from taps.study.config import read, validate
from taps.study.needs import needs

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "workflow" / "studies"
PAPER, VICUNA = [STUDIES / "paper.yaml"], [STUDIES / "paper.yaml", STUDIES / "scaling_vicuna_13b.yaml"]
NOT_JOBS = {"tables", "figures", "clean_features"}  # targets by name, and a removal


def study(files: list[Path]) -> dict[str, Any]:
    return validate(read(files), root=ROOT)


@pytest.fixture(scope="module")
def paper() -> dict[str, Any]:
    return study(PAPER)


@pytest.fixture(scope="module")
def profile() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "profiles" / "slurm" / "config.yaml").read_text())


def rules() -> set[str]:
    """Returns the names of the workflow's rules."""
    text = "".join(path.read_text() for path in sorted((ROOT / "workflow" / "rules").glob("*.smk")))
    return set(re.findall(r"^\s*rule (\w+):", text, flags=re.MULTILINE)) - NOT_JOBS


@pytest.mark.parametrize("file", [ROOT / "config.yaml", STUDIES / "smoke.yaml", STUDIES / "paper.yaml"], ids=str)
def test_every_rule_has_a_need(file: Path) -> None:
    assert rules() <= set(needs(study([file])))


def test_a_laptop_needs_a_laptops_memory() -> None:
    found = needs(study([ROOT / "config.yaml"]))
    assert max(need.host_mb for need in found.values()) < 8000
    assert {need.device_gb for need in found.values()} == {need.gpus for need in found.values()} == {0}


def test_models_of_the_paper_fit_its_gpus(paper: dict[str, Any]) -> None:
    found = needs(paper)
    assert 16 < found["trace"].device_gb < 40
    assert 30 < found["train"].device_gb < 60  # HASS, eight rows of 2,048 tokens
    assert (found["train"].gpus, found["trace"].gpus, found["replay"].gpus) == (4, 1, 0)
    assert found["train"].device_gb > found["bank"].device_gb


def test_needs_follow_the_sizes(paper: dict[str, Any]) -> None:
    larger, longer = copy.deepcopy(paper), copy.deepcopy(paper)
    larger["plan"]["target_shape"]["num_hidden_layers"] *= 2
    longer["target"]["max_length"] *= 2
    base = needs(paper)
    assert needs(larger)["features"].device_gb > 1.6 * base["features"].device_gb
    assert needs(larger)["prepare_target"].host_mb > 1.6 * base["prepare_target"].host_mb
    assert needs(longer)["train"].device_gb > 1.5 * base["train"].device_gb
    online = {**paper, "features": "online"}
    assert needs(online)["train"].device_gb > base["train"].device_gb + 15  # the target beside the draft model


# --- the profile -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("files", [PAPER, VICUNA], ids=["paper", "scaling_vicuna_13b"])
def test_the_slurm_profile_follows_the_plan(profile: dict[str, Any], files: list[Path]) -> None:
    config, default = study(files), profile["default-resources"]["mem_mb"]
    for rule, need in needs(config).items():
        own = profile["set-resources"].get(rule, {})
        granted = own.get("mem_mb", default if rule in rules() else 0)
        if rule in profile["set-resources"]:
            assert need.host_mb <= granted <= max(8000, 2.2 * max(need.host_mb, needs(study(VICUNA))[rule].host_mb)), (
                rule
            )
        assert own.get("gpu", 0) == need.gpus, rule
        assert need.device_gb < 79, rule


def test_every_rule_with_a_gpu_stays_on_one_node_of_its_partition(profile: dict[str, Any]) -> None:
    for rule, own in profile["set-resources"].items():
        assert ("gpu" in own) == (own.get("nodes") == 1) == ("gpu" in str(own.get("slurm_partition"))), rule
        assert not {"gres", "tasks"} & set(own), rule


@pytest.mark.parametrize("files", [PAPER, VICUNA], ids=["paper", "scaling_vicuna_13b"])
def test_the_longest_training_ends_within_its_time(profile: dict[str, Any], files: list[Path]) -> None:
    config = study(files)
    rates, processes = config["plan"]["devices"]["a100_80gb"], config["parallel"]["training_processes"]
    work, size = training_work(config), training_reads(config)
    longest = max(
        hours([Work(stage="train", model="draft", flops=work[key], rate="training", bytes_read=size[key])], rates)
        for key in work
    )
    assert 1.5 * longest / processes * 60 < profile["set-resources"]["train"]["runtime"]


# --- reading ---------------------------------------------------------------------------------------------------------


def test_a_slow_loader_makes_training_longer(paper: dict[str, Any]) -> None:
    work = [Work(stage="train", model="draft", flops=3.6e15, rate="training", bytes_read=3.6e12)]
    rates = {"training_tflops": 1.0, "decoding_tflops": 1.0}
    assert hours(work, rates | {"loader_gb_s": 2.0}) == pytest.approx(1.0)  # an hour of computing, half one of reading
    assert hours(work, rates | {"loader_gb_s": 0.5}) == pytest.approx(2.0)
    assert paper["plan"]["devices"]["h200"]["loader_gb_s"] == 1.5


def test_training_reads_each_row_in_every_epoch(paper: dict[str, Any]) -> None:
    read_bytes = training_reads(paper)
    tokens = 0.95 * 70000 * 240 * 20
    assert read_bytes["eagle2", "math"] == pytest.approx(tokens * 2 * 4096)
    assert read_bytes["hass", "math"] == pytest.approx(read_bytes["eagle2", "math"])  # three passes, one reading
    assert read_bytes["eagle2_long", "math"] > 2 * read_bytes["hass", "math"]  # the cost of HASS in passes of one
    assert set(training_reads({**paper, "features": "online"}).values()) == {0.0}
