"""How long the jobs of a study take on this machine, as earlier runs and the run at hand tell.

Times are core-seconds (wall seconds times threads), so that they hold for any number of cores. They are kept per
machine and study in the user's cache, `~/.cache/taps/job_times.json`, where `make clean` and a new folder leave them.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path

Times = dict[str, float]  # rule -> mean core-seconds of a job


class JobTimes:
    """The jobs of one run and their times.

    Args:
        counts: Rule -> its jobs in this run.
        cores: That they share.
        earlier: What earlier runs took.
    """

    def __init__(self, counts: Mapping[str, int], cores: int, earlier: Times) -> None:
        self._counts, self._cores, self._earlier = counts, cores, earlier
        self._spent: dict[str, list[float]] = {}

    def add(self, rule: str, core_seconds: float) -> None:
        """Counts a finished job."""
        self._spent.setdefault(rule, []).append(core_seconds)

    @property
    def means(self) -> Times:
        """The times that this run has measured."""
        return {rule: sum(spent) / len(spent) for rule, spent in self._spent.items()}

    def expected_s(self) -> tuple[float, bool]:
        """Returns (seconds of the whole run with all cores at work, whether the times of all rules are known)."""
        means = {**self._earlier, **self.means}
        known = sum(count * means.get(rule, 0.0) for rule, count in self._counts.items())
        return known / self._cores, all(rule in means for rule in self._counts)

    def left_s(self, elapsed_s: float, running: Mapping[str, float]) -> tuple[float, bool]:
        """Returns (seconds until the end, whether the times of all rules are known).

        At first they are what the jobs' times say; the further the run is, the more its own pace counts, which knows of
        idle cores.

        Args:
            elapsed_s: Since the run began.
            running: Rule -> core-seconds of its running jobs so far.
        """
        expected, is_known = self.expected_s()
        means = {**self._earlier, **self.means}
        done = sum(map(sum, self._spent.values()))
        done += sum(min(spent, means.get(rule, 0.0)) for rule, spent in running.items())
        share = min(1.0, done / self._cores / expected) if expected else 1.0
        return (1 - share) * (elapsed_s + (1 - share) * expected), is_known


def load(study: str, file: Path | None = None) -> Times:
    """Returns what earlier runs of a study took on this machine; nothing if none is known."""
    with contextlib.suppress(OSError, ValueError, LookupError, AttributeError, TypeError):
        held = json.loads((file or _default_file()).read_text(encoding="utf-8"))
        return {str(rule): float(seconds) for rule, seconds in held[_machine()][study].items()}
    return {}


def save(study: str, times: Times, file: Path | None = None) -> None:
    """Keeps a run's times beside those of rules that it did not run; a cache that cannot be written is done without."""
    file = file or _default_file()
    held: dict[str, dict[str, Times]] = {}
    with contextlib.suppress(OSError, ValueError):
        read = json.loads(file.read_text(encoding="utf-8"))
        held = read if isinstance(read, dict) else held
    rounded = {rule: round(seconds, 3) for rule, seconds in times.items()}
    held.setdefault(_machine(), {})[study] = {**load(study, file), **rounded}
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_name(f".{file.name}.{os.getpid()}")
        unfinished.write_text(json.dumps(held, indent=1), encoding="utf-8")
        os.replace(unfinished, file)


def in_words(seconds: float) -> str:
    """Returns e.g. `40 s`, `12 min`, `2 h 10 min`, as exact as an expectation deserves."""
    if seconds < 90:
        return f"{max(1, round(seconds / 5) * 5 if seconds > 20 else round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _machine() -> str:
    return socket.gethostname()


def _default_file() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "taps" / "job_times.json"
