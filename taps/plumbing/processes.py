"""What the kernel (Linux) tells of processes: which work in a folder, which descend from one, what they hold."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Usage:
    """The most that processes held at one time.

    Attributes:
        rss_mb: Resident memory, MB (10^6 bytes).
        num_files: Number of open files.
    """

    rss_mb: float = 0.0
    num_files: int = 0

    def raise_to(self, other: Usage) -> None:
        """Takes over what is larger."""
        self.rss_mb, self.num_files = max(self.rss_mb, other.rss_mb), max(self.num_files, other.num_files)


def usage(pids: Sequence[int]) -> Usage:
    """Returns what these processes hold together; those that have ended hold nothing."""
    held = Usage()
    for pid in pids:
        with suppress(OSError):
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            held.num_files += len(list(Path(f"/proc/{pid}/fd").iterdir()))
            held.rss_mb += pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return held


def descendants(pid: int) -> list[int]:
    """Returns the processes below one, itself left out."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(process.name))
    found, pending = [], [pid]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


def survivors(folder: Path, patience_s: float = 10.0) -> list[int]:
    """Returns the processes that still work in `folder` after the time that the kernel may take to end killed ones."""
    deadline = time.monotonic() + patience_s
    while (found := processes_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def processes_in(folder: Path) -> list[int]:
    """Returns the living processes whose working directory is `folder`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == folder.resolve() and "State:\tZ" not in (process / "status").read_text():
                found.append(int(process.name))
    return found
