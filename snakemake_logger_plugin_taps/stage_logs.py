"""What the log of a stage says: its result, its warnings, its error, and how far it is."""

from __future__ import annotations

import re
from pathlib import Path

_TAIL_BYTES = 1 << 16  # more than any stage prints besides its bars
_BAR = re.compile(r"(\d+)%\|")
_ERROR = re.compile(r"^error: ")
_WARNING = re.compile(r"^warning: ")
_LONGEST = 300  # characters of a line on the screen; the log has all of it


def read_lines(log: Path, *, since: float = 0.0) -> list[str]:
    """Returns the last lines of a log without progress bars; none if it was not written since `since`, or at all.

    Args:
        log: What a stage printed, stdout and stderr together.
        since: Seconds since the epoch.
    """
    return [line for line in _tail(log, since) if not _BAR.search(line)]


def result(lines: list[str], outputs: list[str]) -> str:
    """Returns what a stage says of its outputs: its last line that starts with the name of one, else its last line.

    Args:
        lines: Of its log.
        outputs: Names of its files.
    """
    for line in reversed(lines):
        for output in outputs:
            if line.startswith(f"{output}: "):
                return _shortened(line.removeprefix(f"{output}: "))
    return _shortened(lines[-1]) if lines else ""


def warnings(lines: list[str]) -> list[str]:
    """Returns the lines that warn."""
    return [_shortened(line) for line in lines if _WARNING.match(line)]


def error(lines: list[str]) -> str:
    """Returns the line with which a stage failed."""
    if found := [line for line in lines if _ERROR.match(line)]:
        return found[-1]
    if any(line.startswith("Traceback ") for line in lines):
        return f"error: {lines[-1]}"
    return "error: it ended without a word, as a process does that was killed; for want of memory, perhaps"


def percentage(log: Path) -> str:
    """Returns e.g. ` 45 %`, how far the last bar in a log has come; nothing without one."""
    for line in reversed(_tail(log)):
        if found := _BAR.search(line):
            return f" {found[1]} %"
    return ""


def _tail(log: Path, since: float = 0.0) -> list[str]:
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            written = file.read()
        # a log keeps whole seconds on some file systems
        if log.stat().st_mtime < since - 1:
            return []
    except OSError:
        return []
    return [line.rstrip() for line in re.split(r"[\r\n]+", written.decode(errors="replace")) if line.strip()]


def _shortened(line: str) -> str:
    line = line.strip()
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
