"""A journal of finished work beside an output: what a killed stage takes up again.

One JSON line per piece of work: its number, the entry, and a seal over both and the settings. A piece counts once its
line is complete and synced. A line that a kill cut short, that was damaged, or that was written under other settings
does not match its seal: that piece is done again, the others are not.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taps.plumbing.atomic import atomic_path


class Journal:
    """Finished pieces of one run, on disk as soon as they are written.

    Attributes:
        entries: Number of a piece -> its entry: those found on opening and those written since.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Opens or starts a journal; lines that do not count are left out of it and reported on stderr.

        Args:
            path: File of the journal.
            settings: All that determines the entries; JSON-serialisable.
        """
        self.path = Path(path)
        self.entries: dict[int, Any] = {}
        self._settings = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        good = [line for line in lines if self._take(line)]
        num_bad = len(lines) - len(good) - (bool(lines) and not lines[-1].endswith(b"\n"))  # a kill's is no surprise
        if num_bad:
            print(
                f"{self.path}: {num_bad} of {len(lines)} entries are damaged or of other settings, done again",
                file=sys.stderr,
            )
        if good != lines:
            with atomic_path(self.path) as temporary:
                temporary.write_bytes(b"".join(good))

    def write(self, number: int, entry: Any) -> None:
        """Adds the entry of a piece, JSON-serialisable; it survives a kill from now on."""
        text = json.dumps(entry, ensure_ascii=True)
        line = json.dumps({"number": number, "seal": self._seal(number, text), "entry": text})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        with open(descriptor, "ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries[number] = json.loads(text)

    def remove(self) -> None:
        """Deletes the journal, once the output is written."""
        self.path.unlink(missing_ok=True)

    def _take(self, line: bytes) -> bool:
        """Returns whether a line counts, its entry now among `entries`."""
        try:
            parsed = json.loads(line)
            number, text = parsed["number"], parsed["entry"]
            counts = line.endswith(b"\n") and parsed["seal"] == self._seal(number, text)
            if counts:
                self.entries[number] = json.loads(text)
        except (ValueError, TypeError, KeyError, RecursionError):
            return False
        return counts

    def _seal(self, number: int, text: str) -> str:
        return hashlib.sha256(f"{self._settings} {number} {text}".encode()).hexdigest()[:32]
