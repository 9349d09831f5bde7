"""What an edit makes run again: dry runs on a finished smoke study, with code and config of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from taps.faults import Reference

pytestmark = pytest.mark.slow

REPORT = {"tabulate", "draw", "judge", "publish", "all"}
EVALUATION = {"bank", "calibrate", "replay", "cost", "live_check"}


@pytest.fixture
def edited(finished_smoke: Reference) -> Iterator[Callable[[Path, str], None]]:
    """Replaces the text of a file of the study's checkout; the old one is back after the test."""
    before: dict[Path, str] = {}

    def replace(path: Path, text: str) -> None:
        before.setdefault(path, path.read_text())
        path.write_text(text)

    yield replace
    for path, text in before.items():
        path.write_text(text)


def would_run(reference: Reference) -> dict[str, int]:
    """Returns rule -> jobs that the documented command would run now."""
    study = reference.study
    study.run("dry.log", "--dry-run", "--quiet", "rules", "--cores", "2", "all")
    output = study.log("dry.log")
    if "Job stats:" not in output:
        assert "Nothing to be done" in output
        return {}
    counts = dict(re.findall(r"^(\w+) +(\d+)$", output.rsplit("Job stats:", 1)[1], flags=re.M))
    return {rule: int(count) for rule, count in counts.items() if rule != "total"}


def edit_config(reference: Reference, edited: Callable[[Path, str], None], key: str, value: Any) -> dict[str, Any]:
    """Returns the study's config after setting `a.b.c` in it."""
    path = reference.study.checkout / "workflow" / "studies" / "smoke.yaml"
    config = yaml.safe_load(path.read_text())
    *parents, last = key.split(".")
    place = config
    for parent in parents:
        place = place.setdefault(parent, {})
    place[last] = value
    edited(path, yaml.safe_dump(config, allow_unicode=True, sort_keys=False))
    return config


def test_comments_and_docstrings_rerun_nothing(finished_smoke: Reference, edited: Callable[[Path, str], None]) -> None:
    assert would_run(finished_smoke) == {}
    for path in (finished_smoke.study.checkout / "taps").rglob("*.py"):
        text = path.read_text().replace('"""Returns ', '"""Gives ')
        edited(path, f"{text}\n\n# a comment\n")
    assert would_run(finished_smoke) == {}


def test_a_loss_reruns_training_and_what_follows(
    finished_smoke: Reference, edited: Callable[[Path, str], None]
) -> None:
    losses = finished_smoke.study.checkout / "taps" / "model" / "losses.py"
    edited(losses, f"{losses.read_text()}\n_EDITED = True\n")
    jobs = would_run(finished_smoke)
    assert (
        {"train", "average", "bank", "replay", "tabulate"} <= jobs.keys() <= {"train", "average"} | EVALUATION | REPORT
    )
    assert jobs["train"] == len(
        list((finished_smoke.study.folder / "results/smoke/drafters").glob("*/*/*/training.json"))
    )


def test_a_stage_reruns_itself_and_what_follows(finished_smoke: Reference, edited: Callable[[Path, str], None]) -> None:
    tables = finished_smoke.study.checkout / "taps" / "analysis" / "tables.py"
    edited(tables, f"{tables.read_text()}\n_EDITED = True\n")
    assert would_run(finished_smoke).keys() <= REPORT


@pytest.mark.parametrize(
    ("path", "rules"),
    [("analysis/templates/page.css", {"publish"}), ("published/acceptance_length.csv", REPORT - {"all"})],
)
def test_a_data_file_reruns_who_reads_it(
    finished_smoke: Reference, edited: Callable[[Path, str], None], path: str, rules: set[str]
) -> None:
    file = finished_smoke.study.checkout / "taps" / path
    edited(file, f"{file.read_text()}\n")
    assert would_run(finished_smoke).keys() - {"all"} == rules


def test_a_benchmark_runs_its_traces_banks_and_replays(
    finished_smoke: Reference, edited: Callable[[Path, str], None]
) -> None:
    added = {"reader": "reasoning_gym", "task": "gsm_symbolic", "seed": 5, "num_prompts": 2, "max_new_tokens": 8}
    config = edit_config(finished_smoke, edited, "benchmarks.added", added)
    jobs = would_run(finished_smoke)
    conditions = sum(len(sampling["seeds"]) for sampling in config["evaluation"]["sampling"])
    assert jobs["prompts"] == 1
    assert jobs["trace"] == jobs["replay"] == conditions
    assert jobs.keys() - REPORT <= {"prompts", "overlap", "trace", "bank", "replay", "live_check"}
    banks = len(list((finished_smoke.study.folder / "results/smoke/banks").glob("*/*/*/mt_bench/*.safetensors")))
    assert jobs["bank"] == banks


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("methods.longer", {"family": "eagle2", "training": {"epochs": 7}}),
        ("mixtures.added", {"math": 0.25, "chat": 0.25}),
    ],
    ids=["method", "mixture"],
)
def test_a_drafter_traces_nothing(
    finished_smoke: Reference, edited: Callable[[Path, str], None], key: str, value: dict[str, Any]
) -> None:
    config = edit_config(finished_smoke, edited, key, value)
    jobs = would_run(finished_smoke)
    assert jobs.keys() - REPORT <= {"mixture", "train", "average"} | EVALUATION
    assert jobs["train"] == (1 if key.startswith("mixtures") else len(config["mixtures"]))


def test_epochs_rerun_training_and_what_follows(finished_smoke: Reference, edited: Callable[[Path, str], None]) -> None:
    edit_config(finished_smoke, edited, "training.epochs", 7)
    jobs = would_run(finished_smoke)
    assert {"train", "bank", "replay", "tabulate"} <= jobs.keys() <= {"train", "average"} | EVALUATION | REPORT
