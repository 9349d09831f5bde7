"""Records of JSON and JSON-lines files of any size, one by one, also from files that are broken or cut off."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

INVALID = "invalid_json"
CUT_OFF = "cut_off"

_CHUNK = 1 << 20
_LONGEST = 32 << 20  # characters; what has not ended by then is a missing quote, not a record
_DECODER = json.JSONDecoder(strict=False)  # raw line breaks inside strings do no harm
_BLANK = re.compile(r"[\s,\x00]*")


@dataclass(frozen=True, kw_only=True)
class Record:
    """One record of a file, or what could not be read as one."""

    index: int
    """Position in the file, from 0."""
    value: Any = None
    """The decoded record; None if it is broken."""
    problem: str | None = None
    """`invalid_json`, `cut_off` (the file ends inside it, or before it though its list goes on), or None."""


def stream_json(path: Path) -> Iterator[Record]:
    """Yields the records of a JSON list, of JSON lines, or of values written one after another.

    Memory is bounded by the longest record. A broken record is reported and skipped: the next one is looked for behind
    the next line break (JSON lines), or where an object opens with the key that all its predecessors opened with.
    Byte-order mark and CRLF are ignored; bytes that are not UTF-8 become lone surrogates.
    """
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        window = _Window(file)
        window.skip(_BLANK)
        in_list = window.peek() == "["
        if in_list:
            window.position += 1
        first_key: str | None = None
        index = 0
        while True:
            window.skip(_BLANK)
            if window.peek() == ("]" if in_list else ""):
                return
            record = window.decode(index)
            yield record
            index += 1
            if record.problem == CUT_OFF:
                return
            if record.problem == INVALID:
                window.resume(in_list=in_list, first_key=first_key)
            elif first_key is None and isinstance(record.value, dict):
                first_key = next(iter(record.value), None)


def _breaks_off(error: json.JSONDecodeError) -> bool:
    """Returns whether the text is a valid beginning, so that only its end is missing."""
    rest = error.doc[error.pos : error.pos + 12].rstrip()
    literals = ("true", "false", "null", "NaN", "Infinity", "-Infinity")
    return error.msg.startswith(("Unterminated", "Invalid \\u")) or any(word.startswith(rest) for word in literals)


class _Window:
    """The part of the file in memory: `text[position:]` is what has not been consumed."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file
        self.text = ""
        self.position = 0
        self.ended = False

    def more(self) -> None:
        """Reads one chunk and forgets what was consumed."""
        chunk = self.file.read(_CHUNK)
        self.ended = not chunk
        self.text = self.text[self.position :] + chunk
        self.position = 0

    def peek(self) -> str:
        """Returns the next character, empty at the end of the file."""
        while self.position >= len(self.text) and not self.ended:
            self.more()
        return self.text[self.position : self.position + 1]

    def skip(self, pattern: re.Pattern[str]) -> None:
        """Moves behind what matches, across chunks."""
        while self.peek():
            match = pattern.match(self.text, self.position)
            self.position = match.end() if match else self.position
            if self.position < len(self.text):
                return

    def decode(self, index: int) -> Record:
        """Returns the value at the position and moves behind it; stays there if it is broken."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text, self.position)
            except json.JSONDecodeError as error:
                if not _breaks_off(error) or len(self.text) - self.position > _LONGEST:
                    return Record(index=index, problem=INVALID)
                if self.ended:
                    return Record(index=index, problem=CUT_OFF)
            except RecursionError:
                return Record(index=index, problem=INVALID)
            else:
                if end < len(self.text) or self.ended:  # a number at the end of a chunk may go on in the next
                    self.position = end
                    return Record(index=index, value=value)
            self.more()

    def resume(self, *, in_list: bool, first_key: str | None) -> None:
        """Moves to where the next record seems to begin, or to the end of the file."""
        if not in_list:
            border = re.compile(r"\n")
        elif first_key is None:
            border = re.compile(r"\}\s*,\s*(?=\{)")
        else:
            border = re.compile(r",\s*(?=\{\s*" + re.escape(json.dumps(first_key, ensure_ascii=False)) + r")")
        start = self.position + 1
        while True:
            match = border.search(self.text, start)
            if match:
                self.position = match.end()
                return
            if self.ended:
                self.position = len(self.text)
                return
            self.position = max(self.position, len(self.text) - 256)  # a border may straddle two chunks
            self.more()
            start = self.position
