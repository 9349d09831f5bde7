"""The report does without what could not be made, and asks for all the rest in step with the names it gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from taps.study import evaluate, reporting
from taps.study.config import read, validate
from taps.study.unfinished import blocked

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def laptop() -> dict[str, Any]:
    return validate(read([ROOT / "config.yaml"]), root=ROOT)


def without(config: dict[str, Any], *paths: str) -> dict[str, Any]:
    return {**config, "without": {path.replace("<results>", "results/laptop"): None for path in paths}}


def test_nothing_is_left_out_unless_said(laptop: dict[str, Any]) -> None:
    assert reporting.replays(laptop) == evaluate.replays(laptop)
    assert list(reporting.audits(laptop)) == [*laptop["corpora"], *laptop["benchmarks"]]
    assert reporting.live(laptop) == evaluate.live_names(laptop)
    assert reporting.overlap(laptop) == ["<results>/overlap.json"]
    assert reporting.cost(laptop) == ["<results>/cost.json"]
    assert reporting.failures(laptop) == []


def test_what_could_not_be_made_is_left_out_of_files_and_names_alike(laptop: dict[str, Any]) -> None:
    replays, live = evaluate.replays(laptop), evaluate.live_names(laptop)
    (drafter, *_), (calibration, *_) = reporting.trained(laptop), reporting.calibrated(laptop)
    (tuned,) = reporting.tuned(laptop)
    source = next(iter(laptop["benchmarks"]))
    config = without(
        laptop,
        *(replays[0], reporting.audits(laptop)[source], "<results>/overlap.json", "<results>/cost.json"),
        *(f"<results>/live/{live[0]}.json", f"<results>/tuned/{tuned}.json"),
        *(f"<results>/drafters/{drafter}", f"<results>/calibration/{calibration}.json"),
    )
    assert reporting.replays(config) == replays[1:]
    assert set(reporting.audits(laptop)) - set(reporting.audits(config)) == {source}
    assert reporting.live(config) == live[1:]
    assert reporting.trained(config) == reporting.trained(laptop)[1:]
    assert reporting.calibrated(config) == reporting.calibrated(laptop)[1:]
    assert reporting.tuned(config) == reporting.overlap(config) == reporting.cost(config) == []


def test_trees_are_drawn_along_an_answer_that_was_replayed(laptop: dict[str, Any]) -> None:
    first, second = evaluate.replays(laptop)[:2]
    text = second.split("/replays/")[1].split("/", 2)[2].removesuffix(".parquet")
    config = without(laptop, first)
    assert reporting.drawn_trace(config) == [f"<results>/traces/{text}.safetensors"]
    assert reporting.drawn_trace(config) != reporting.drawn_trace(laptop)
    assert all(path.endswith(f"/{text}.safetensors") for path in reporting.drawn_banks(config))


def test_only_errors_are_told(laptop: dict[str, Any]) -> None:
    config = {**laptop, "without": {"b": None, "a": "error: x = 3"}}
    assert reporting.failures(config) == ["--failure", "a=error: x = 3"]


def test_what_needs_a_failed_job_is_blocked() -> None:
    needs = {"trace": ["target"], "bank": ["trace", "drafter"], "replay": ["bank"], "tables": ["replay"], "cost": []}
    assert blocked(["trace"], needs) == {"trace", "bank", "replay", "tables"}
    assert blocked([], needs) == set()
