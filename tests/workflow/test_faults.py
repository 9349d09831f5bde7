"""Faults while the smoke study runs: whatever happens, the documented command goes on and ends in the same results."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from taps.faults import Reference, Study, kill_and_rerun, run_twice_at_once

pytestmark = pytest.mark.slow


def copy_of(reference: Reference, name: str, *, without: Sequence[str] = ()) -> Study:
    """Returns a copy of the finished study beside it, where its relative paths hold; some of its results deleted."""
    folder = reference.study.folder.with_name(name)
    shutil.copytree(reference.study.folder, folder, symlinks=True)
    for deleted in without:
        shutil.rmtree(folder / deleted)
    return Study(reference.study.checkout, folder)


def test_three_kills_change_no_result(finished_smoke: Reference, tmp_path: Path) -> None:
    said: list[str] = []
    assert kill_and_rerun(finished_smoke, tmp_path / "run", times=3, seed=0, say=said.append) == [], said
    print("\n".join(said))


def test_two_runs_at_once_change_no_result(finished_smoke: Reference) -> None:
    said: list[str] = []
    study = copy_of(finished_smoke, "twice", without=["results/smoke/replays", "reports/smoke/tables"])
    assert run_twice_at_once(finished_smoke, study.folder, say=said.append) == [], said


def test_an_orphaned_job_and_its_rerun_do_not_corrupt_each_other(finished_smoke: Reference) -> None:
    study = copy_of(finished_smoke, "orphan", without=["results/smoke/target"])
    process = study.start("run-1.log", "results/smoke/target")
    log = study.folder / "logs/smoke/tiny_target.log"
    while not log.exists() or "tiny target: " not in log.read_text(encoding="utf-8"):
        assert process.poll() is None, study.log("run-1.log")
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)  # Snakemake alone: its job lives on
    process.wait()
    study.run("run-2.log", "results/smoke/target")
    with suppress(ProcessLookupError):
        while True:  # until the job has ended, too
            os.killpg(process.pid, 0)
            time.sleep(0.05)
    made, expected = (
        folder / "results/smoke/target/model.safetensors" for folder in (study.folder, finished_smoke.study.folder)
    )
    assert made.read_bytes() == expected.read_bytes()
    assert [path.name for path in made.parent.parent.glob(".target*")] == []


def test_the_stale_lock_of_another_snakemake_does_not_stop_a_run(finished_smoke: Reference) -> None:
    study = copy_of(finished_smoke, "locked")
    locks = study.folder / ".snakemake" / "locks"
    locks.mkdir(exist_ok=True)
    (locks / "0.output.lock").write_text("results/smoke/overlap.json\n")
    (study.folder / "results/smoke/overlap.json").unlink()
    study.run("run.log", "results/smoke/overlap.json")
    assert (study.folder / "results/smoke/overlap.json").exists()


def test_a_damaged_artefact_is_named_and_the_named_command_mends_it(finished_smoke: Reference) -> None:
    study = copy_of(finished_smoke, "damaged")
    trace = "results/smoke/traces/mt_bench/t1_s0.safetensors"
    whole = (study.folder / trace).read_bytes()
    (study.folder / trace).write_bytes(whole[:-1])
    assert study.start("run-1.log", "all").wait() != 0
    errors = set(re.findall(r"^error: .*$", study.log("run-1.log"), flags=re.M))
    assert len(errors) == 1
    message = errors.pop()
    assert message.startswith(f"error: {trace}: changed or truncated since it was written; rebuild it with: snakemake ")
    command = [Path(sys.executable).parent / "snakemake", *shlex.split(message.partition("snakemake ")[2])]
    subprocess.run(list(map(str, command)), cwd=study.checkout, check=True, capture_output=True)
    assert (study.folder / trace).read_bytes() == whole
    study.run("run-3.log")
    assert study.results() == finished_smoke.study.results()
