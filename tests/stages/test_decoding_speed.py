"""Tests of taps.decoding_speed on the finished smoke study."""

from __future__ import annotations

from pathlib import Path

import pytest

from taps import decoding_speed
from taps.analysis.counted import weights
from taps.analysis.results import find_replays, load_cycles
from taps.faults import Reference
from taps.plumbing.artefacts import read_json
from taps.plumbing.errors import TapsError

pytestmark = pytest.mark.slow


def test_every_measurement_is_of_the_studys_own(
    finished_smoke: Reference, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results, output = finished_smoke.study.folder / "results/smoke", tmp_path / "speed.json"
    decoding_speed.main(["--results", str(results), "--benchmark", "mt_bench", "--output", str(output)])
    lines = read_json(output, kind="decoding_speed")
    replays = find_replays([results / "replays"])
    assert lines[1]["what"] == f"replay of {len(replays)} conditions, {int(weights(load_cycles(replays)).sum())} cycles"
    assert [line["unit"] for line in lines] == ["positions/s", "s", *["tokens/s", "%"] * 4]
    assert all(line["value"] > 0 for line in lines)
    assert all(line["value"] < 100 for line in lines if line["unit"] == "%")
    assert capsys.readouterr().out.count("\n| ") == len(lines)


def test_an_unfinished_study_is_named(tmp_path: Path) -> None:
    with pytest.raises(TapsError, match="replays: missing"):
        decoding_speed.main(["--results", str(tmp_path), "--output", str(tmp_path / "speed.json")])
