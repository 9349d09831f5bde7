"""Faults on purpose: the smoke study killed at random moments, run twice at once, run many times over.

    taps faults kill --times 20 --seed 0
    taps faults side-by-side
    taps faults soak --times 10

Each works on a copy of the checkout's tracked files, so edits made meanwhile do no harm, in a temporary folder or in
--folder, which it keeps. The exit status is 1 if a result differs from the undisturbed run's. Measured times and what
is computed from them are left out of the comparison; everything else must be byte for byte equal.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from taps.plumbing.cli import run, stage_parser
from taps.plumbing.processes import Usage, descendants, survivors, usage

ROOT = Path(__file__).parent.parent
STUDY = "smoke"
MEASURED_TABLES = {"speed.csv", "speed_differences.csv", "live_check.csv"}
MEASURED_COLUMNS = {"seconds", "tokens_per_s"}


@dataclass(frozen=True)
class Study:
    """The smoke study in a folder of its own.

    Attributes:
        checkout: The code that it runs.
        folder: Where it runs; results, reports and logs lie below.
    """

    checkout: Path
    folder: Path

    def start(self, log: str, *options: str) -> subprocess.Popen:
        """Returns the documented command, running in a process group of its own; `log` is a file of the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [Path(sys.executable).parent / "snakemake", "--snakefile", self.checkout / "Snakefile"]
        command += ["--directory", self.folder, "--cores", "2", "--replace-workflow-config"]
        command += ["--configfile", self.checkout / "workflow" / "studies" / f"{STUDY}.yaml"]
        command += ["--printshellcmds", *(options or ["all"])]  # a flag first: --configfile would take the target
        with open(self.folder / log, "w") as file:
            return subprocess.Popen(list(map(str, command)), stdout=file, stderr=file, start_new_session=True)

    def run(self, log: str, *options: str) -> float:
        """Returns the seconds of a run that is let alone.

        Raises:
            SystemExit: it failed.
        """
        start = time.monotonic()
        if self.start(log, *options).wait():
            sys.exit(f"{self.folder / log}: the run failed\n{self.log(log)[-3000:]}")
        return time.monotonic() - start

    def log(self, log: str) -> str:
        """Returns what a run has printed so far."""
        return (self.folder / log).read_text(errors="replace")

    def num_finished(self, log: str) -> int:
        """Returns the jobs that a run has finished so far."""
        return len(re.findall(r"^ *\d+/\d+  \w", self.log(log), flags=re.M))

    def results(self) -> dict[str, str]:
        """Returns file -> sha256 of every table of the report and every drafter's weights, without measured times."""
        tables = sorted((self.folder / "reports" / STUDY / "tables").glob("*.csv"))
        weights = sorted((self.folder / "results" / STUDY / "drafters").rglob("*.safetensors"))
        contents = {file: _without_times(file) for file in tables if file.name not in MEASURED_TABLES}
        contents |= {file: file.read_bytes() for file in weights}
        return {str(file.relative_to(self.folder)): hashlib.sha256(data).hexdigest() for file, data in contents.items()}


@dataclass(frozen=True)
class Reference:
    """What an undisturbed run gave.

    Attributes:
        study: Where it lies.
        seconds: How long it took.
        num_jobs: How many jobs it ran.
    """

    study: Study
    seconds: float
    num_jobs: int


def undisturbed(folder: Path) -> Reference:
    """Returns an undisturbed run of the smoke study, made below `folder` with a copy of the code."""
    study = Study(copy_checkout(folder / "checkout"), folder / "undisturbed")
    seconds = study.run("run.log")
    return Reference(study=study, seconds=seconds, num_jobs=study.num_finished("run.log"))


def copy_checkout(folder: Path) -> Path:
    """Returns `folder` after copying into it, as they are now, the files that git tracks or would track."""
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listing, capture_output=True, check=True, text=True).stdout.split("\0"):
        if name and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def _without_times(table: Path) -> bytes:
    data = table.read_bytes()
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    measured = {place for place, name in enumerate(rows[0]) if name in MEASURED_COLUMNS} if rows else set()
    if not measured:
        return data
    return repr([[cell for place, cell in enumerate(row) if place not in measured] for row in rows]).encode()


def differences(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """Returns the files that are not in both, or not equal."""
    return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))


# --- kill ------------------------------------------------------------------------------------------------------------


def kill_and_rerun(
    reference: Reference, folder: Path, *, times: int, seed: int, say: Callable[[str], None] = print
) -> list[str]:
    """Returns what differs after `times` kill -9 of the whole process group, each followed by the same command.

    The moments cover the whole study, however fast the machine is just now: each is a number of finished jobs, drawn
    uniformly, and a time from then on, drawn uniformly up to a start-up and twice the mean time of a job. A run that
    ends before its moment is compared, the moments that are left are drawn anew, and the study begins anew.

    Args:
        reference: What to compare with; its duration sets the scale of the times.
        folder: Where the study runs.
        times: How often to kill.
        seed: Decides the moments.
        say: Gets one line per event.
    """
    draw = random.Random(seed)
    moments = sorted(draw.randrange(reference.num_jobs) for _ in range(times))
    longest = min(4.0, reference.seconds / 4) + 2 * reference.seconds / reference.num_jobs
    expected = reference.study.results()
    study, different, num_done, num_kills, num_runs = Study(reference.study.checkout, folder), [], 0, 0, 0
    say(f"seed {seed}; undisturbed: {reference.seconds:.0f} s, {reference.num_jobs} jobs, {len(expected)} files")
    while num_kills < times:
        num_runs += 1
        log = f"run-{num_runs:02d}.log"
        process = study.start(log)
        while process.poll() is None and num_done + study.num_finished(log) < moments[num_kills]:
            time.sleep(0.05)
        delay = draw.uniform(0, longest)
        with suppress(subprocess.TimeoutExpired):
            process.wait(delay)
        if (status := process.poll()) is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            num_kills += 1
            num_done += study.num_finished(log)
            say(f"kill {num_kills}/{times}: {num_done} jobs done, and {delay:.1f} s")
            if alive := survivors(folder):
                return [f"processes {alive} outlived the kill of their group"]
        elif status:
            return [f"{folder / log}: ended with status {status}"]
        else:
            say("ended before its kill; compared, then begun anew")
            different += differences(expected, study.results())
            shutil.rmtree(folder)
            num_done = 0
            moments[num_kills:] = sorted(draw.randrange(reference.num_jobs) for _ in range(times - num_kills))
    seconds = study.run("run-last.log")
    say(f"last run, undisturbed: {seconds:.0f} s, {study.num_finished('run-last.log')} jobs")
    return different + differences(expected, study.results())


# --- side by side ----------------------------------------------------------------------------------------------------


def run_twice_at_once(reference: Reference, folder: Path, *, say: Callable[[str], None] = print) -> list[str]:
    """Returns what differs after two runs of one study in one folder, started at the same time.

    One may refuse; then it must have said so in one line, and a rerun must find nothing left to do.
    """
    study = Study(reference.study.checkout, folder)
    logs = ["run-a.log", "run-b.log"]
    statuses = [process.wait() for process in [study.start(log) for log in logs]]
    different = [] if 0 in statuses else [f"both runs failed: {statuses}"]
    for log, status in zip(logs, statuses, strict=True):
        errors = re.findall(r"^.*error: .*$", study.log(log), flags=re.M | re.I)
        say(f"{log}: status {status}; {' | '.join(errors) or 'no error'}")
        if status and not (len(errors) == 1 and "is in use by process" in errors[0]):
            different.append(f"{log}: expected one line that the study is in use, found {errors}")
    study.run("run-after.log")
    if "Nothing to be done" not in study.log("run-after.log"):
        different.append("run-after.log: a rerun found something left to do")
    return different + differences(reference.study.results(), study.results())


# --- soak ------------------------------------------------------------------------------------------------------------


def soak(reference: Reference, folder: Path, *, times: int, say: Callable[[str], None] = print) -> list[str]:
    """Returns what differs, or grows, over `times` complete runs in one folder, all children of this process.

    Memory and open files of this process, of Snakemake and of its largest job must stay within a fifth of the second
    round's; no file may stay behind in the temporary folder.
    """
    study, rounds, different = Study(reference.study.checkout, folder), [], []
    scratch = folder.parent / f"{folder.name}-tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(scratch)
    say("round  seconds | this process: MB files | snakemake: MB files | largest job: MB files | files left in TMPDIR")
    for number in range(1, times + 1):
        start = time.monotonic()
        process = study.start(f"run-{number:02d}.log", "--forceall", "all")
        harness, snakemake, jobs = Usage(), Usage(), Usage()
        while process.poll() is None:
            harness.raise_to(usage([os.getpid()]))
            snakemake.raise_to(usage([process.pid]))
            for pid in descendants(process.pid):  # one by one: which jobs run at the same time differs between rounds
                jobs.raise_to(usage([pid]))
            time.sleep(0.5)
        rounds.append((harness, snakemake, jobs))
        left_behind = sum(path.is_file() for path in scratch.rglob("*"))  # torch keeps an empty folder for its cache
        columns = " | ".join(f"{item.rss_mb:7.0f} {item.num_files:5d}" for item in rounds[-1])
        say(f"{number:5d} {time.monotonic() - start:8.0f} | {columns} | {left_behind}")
        different += [f"round {number}: status {process.returncode}"] if process.returncode else []
        different += [f"round {number}: {left_behind} files left in TMPDIR"] if left_behind else []
        different += [f"round {number}: {name}" for name in differences(reference.study.results(), study.results())]
    second, last = rounds[min(1, times - 1)], rounds[-1]
    for who, before, after in zip(("this process", "snakemake", "jobs"), second, last, strict=True):
        if after.rss_mb > 1.2 * before.rss_mb + 10 or after.num_files > 1.2 * before.num_files + 5:
            different.append(f"{who}: grew from {before} in round 2 to {after}")
    return different


# --- command line ----------------------------------------------------------------------------------------------------


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of `taps faults`."""
    parser = stage_parser("taps.faults", __doc__)
    parser.add_argument("fault", choices=("kill", "side-by-side", "soak"))
    parser.add_argument("--times", type="count", default=3, help="kills, or rounds of the soak (default: %(default)s)")
    parser.add_argument("--seed", type="seed", default=0, help="of the moments of the kills (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="new folder to work in and to keep (default: a temporary one)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Runs one kind of fault and exits with 1 if it changed a result."""
    arguments = build_parser().parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)).resolve()
        if folder.exists() and any(folder.iterdir()):
            sys.exit(f"--folder {folder}: not empty; name a new folder")
        reference = undisturbed(folder)
        place = folder / arguments.fault
        if arguments.fault == "kill":
            different = kill_and_rerun(reference, place, times=arguments.times, seed=arguments.seed, say=_say)
        elif arguments.fault == "side-by-side":
            different = run_twice_at_once(reference, place, say=_say)
        else:
            different = soak(reference, place, times=arguments.times, say=_say)
    print("\n".join(f"differs: {item}" for item in different) or "all results equal those of the undisturbed run")
    sys.exit(1 if different else 0)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    run(main)
