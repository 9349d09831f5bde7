"""What a stage's log says on the screen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from snakemake_logger_plugin_taps import stage_logs

BARS = "\rdrafting:  38%|███▊      | 537/1.42k [00:10<00:16"
BARS += "]\rdrafting: 100%|██████████| 1.42k/1.42k [00:23<00:00]\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "stage.log"
    path.write_text(text)
    return path


def test_the_result_is_the_last_line_about_an_output_else_the_last(tmp_path: Path) -> None:
    log = written(tmp_path, f"one\n{BARS}results/x: 1423 positions, 61 positions/s\nlargest difference 0.179\n")
    lines = stage_logs.read_lines(log)
    assert lines == ["one", "results/x: 1423 positions, 61 positions/s", "largest difference 0.179"]
    assert stage_logs.result(lines, ["results/x"]) == "1423 positions, 61 positions/s"
    assert stage_logs.result(lines, ["results/y"]) == "largest difference 0.179"
    assert stage_logs.result([], ["results/x"]) == ""
    assert len(stage_logs.result(["x" * 5000], [])) == 300


def test_how_far_a_stage_is(tmp_path: Path) -> None:
    assert stage_logs.percentage(written(tmp_path, BARS)) == " 100 %"
    assert stage_logs.percentage(written(tmp_path, BARS[:55])) == " 38 %"
    assert stage_logs.percentage(written(tmp_path, "no bar\n")) == ""
    assert stage_logs.percentage(tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a\nerror: here: wrong; mend it\nE0: shutting down\n", "error: here: wrong; mend it"),
        ("Traceback (most recent call last):\n  File\nKeyError: 'x'\n", "error: KeyError: 'x'"),
        (BARS, "error: it ended without a word"),
        ("", "error: it ended without a word"),
    ],
)
def test_the_error(tmp_path: Path, text: str, error: str) -> None:
    assert stage_logs.error(stage_logs.read_lines(written(tmp_path, text))).startswith(error)


def test_warnings_are_found(tmp_path: Path) -> None:
    log = written(tmp_path, "warning: the template drops 3 rows\nfine\n")
    assert stage_logs.warnings(stage_logs.read_lines(log)) == ["warning: the template drops 3 rows"]


def test_a_log_of_an_earlier_run_says_nothing(tmp_path: Path) -> None:
    log = written(tmp_path, "error: of yesterday\n")
    os.utime(log, (1000, 1000))
    assert stage_logs.read_lines(log, since=2000) == []
    assert stage_logs.read_lines(log, since=1000) == ["error: of yesterday"]


def test_of_a_long_log_the_end_is_read(tmp_path: Path) -> None:
    log = written(tmp_path, "x\n" * 100_000 + "the end\n")
    assert stage_logs.read_lines(log)[-1] == "the end"
    assert len(stage_logs.read_lines(log)) < 40_000
