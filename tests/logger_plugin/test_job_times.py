"""Expected times: from earlier runs, then from the run's own pace."""

from __future__ import annotations

from pathlib import Path

import pytest

from snakemake_logger_plugin_taps.job_times import JobTimes, in_words, load, save


def test_a_run_like_the_last_is_expected_to_take_as_long() -> None:
    times = JobTimes({"train": 4, "bank": 10}, 2, {"train": 60.0, "bank": 6.0})
    assert times.expected_s() == (150.0, True)
    assert times.left_s(0, {}) == (150.0, True)


def test_a_rule_never_timed_leaves_it_open_until_one_of_its_jobs_is_done() -> None:
    times = JobTimes({"train": 2, "bank": 2}, 1, {"bank": 5.0})
    assert times.expected_s() == (10.0, False)
    times.add("train", 20)
    assert times.expected_s() == (50.0, True)


def test_the_runs_own_pace_wins_over_the_expectation() -> None:
    times = JobTimes({"bank": 100}, 1, {"bank": 1.0})
    for _ in range(99):
        times.add("bank", 1.0)
    # cores were idle nine tenths of the time: the last job will take ten seconds, not one
    assert times.left_s(990, {})[0] == pytest.approx(10, rel=0.01)
    assert times.left_s(990, {"bank": 500.0})[0] == pytest.approx(0)


def test_running_jobs_count_as_far_as_they_are() -> None:
    times = JobTimes({"train": 1}, 2, {"train": 100.0})
    assert times.left_s(25, {"train": 50.0})[0] == pytest.approx(0.5 * (25 + 25))


def test_times_are_kept_by_study_and_survive_rules_that_were_not_run(tmp_path: Path) -> None:
    file = tmp_path / "cache" / "times.json"
    assert load("mine", file) == {}
    save("mine", {"train": 60.0, "bank": 6.0}, file)
    save("mine", {"bank": 7.0}, file)
    save("other", {"bank": 1.0}, file)
    assert load("mine", file) == {"train": 60.0, "bank": 7.0}
    assert [path.name for path in file.parent.iterdir()] == ["times.json"]


@pytest.mark.parametrize("text", ["", "[1, 2]", "{", '{"a": 3}'])
def test_a_broken_cache_is_done_without(tmp_path: Path, text: str) -> None:
    file = tmp_path / "times.json"
    file.write_text(text)
    assert load("mine", file) == {}
    save("mine", {"bank": 7.0}, file)
    assert load("mine", file) == {"bank": 7.0}
    save("mine", {"bank": 7.0}, tmp_path / "times.json" / "below a file")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (14, "14 s"), (43, "45 s"), (100, "2 min"), (3600, "60 min"), (9000, "2 h 30 min")],
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
