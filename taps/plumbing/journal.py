"""A journal of finished work beside an output: what a killed stage takes up again.

One JSON line per entry, the first a digest of the settings. An entry counts once its line is complete and synced; a
line that a kill cut short is dropped. With other settings the journal starts anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Journal:
    """Entries of one run, on disk as soon as they are appended.

    Attributes:
        entries: Those found on opening and those appended since, in order.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Opens or starts a journal.

        Args:
            path: File of the journal.
            settings: All that determines the entries; JSON-serialisable.
        """
        self.path = Path(path)
        self.entries: list[Any] = []
        header = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        complete = self._complete_lines()
        if complete and json.loads(complete[0]) == header:
            self.entries = [json.loads(line) for line in complete[1:]]
            with open(self.path, "r+b") as file:
                file.truncate(sum(map(len, complete)))
            return
        if complete:
            print(f"{self.path}: of other settings, starting anew", file=sys.stderr)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)
        self._write(header)

    def append(self, entry: Any) -> None:
        """Adds a JSON-serialisable entry; it survives a kill from now on."""
        self._write(entry)
        self.entries.append(entry)

    def remove(self) -> None:
        """Deletes the journal, once the output is written."""
        self.path.unlink(missing_ok=True)

    def _complete_lines(self) -> list[bytes]:
        if not self.path.exists():
            return []
        return [line for line in self.path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]

    def _write(self, entry: Any) -> None:
        with open(self.path, "ab") as file:
            file.write(json.dumps(entry, ensure_ascii=True).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
