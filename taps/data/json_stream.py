"""Records of JSON and JSON-lines files of any size, one by one, also from files that are broken or cut off.

Why not `datasets` or another library: theirs refuse a whole file for one broken record, hold a JSON list in memory, and
give every record the keys of all. Here a record is what stands in the file, and what cannot be read is counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taps.data.text_files import CutOffError, read_text

INVALID = "invalid_json"
CUT_OFF = "cut_off"

_LONGEST = 256 << 20  # characters; what has not ended by then lacks a quote or a bracket
_TOKEN = 64  # characters behind an error that must be there before it counts: a number may go on in the next piece
_MOST_KEYS = 16
_DECODER = json.JSONDecoder(strict=False)  # raw line breaks inside strings do no harm
_BLANK = re.compile(r"[\s,\x00\ufeff]*")  # files with marks may have been joined
_OPENING = re.compile(r'\{\s*"(\w+)"\s*:')
_UNFINISHED_NUMBER = re.compile(r"\.|[eE][+-]?")
_LITERALS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")


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

    Memory is bounded by the longest record. A broken record is reported once and skipped: the next one is looked for
    where records have begun so far (see `_Layout`). Bytes that are not UTF-8 become lone surrogates.

    Raises:
        TapsError: an archive, a web page and the like (`taps.data.text_files`).
    """
    window, layout, index = _Window(read_text(path)), _Layout(), 0
    layout.in_list = window.enter_list()
    while True:
        match window.skip_blanks():
            case "" if not layout.in_list and not window.broke_off:
                return
            case "]" if layout.in_list:  # the end, unless another list follows, or a broken record held the bracket
                window.position += 1
                layout.in_list = window.enter_list()
                continue
        layout.begins(window.take_blanks())
        record = window.decode(index, layout)
        yield record
        index += 1
        if record.problem == CUT_OFF:
            return
        if record.problem == INVALID:
            window.resume(layout)


@dataclass(kw_only=True)
class _Layout:
    """How the records of a file have stood in it so far, which tells where the next one begins behind a broken one."""

    in_list: bool = False
    """Whether they are the items of a JSON list."""
    indent: str | None = None
    """Blanks in front of the first record, from the start of its line."""
    own_line: bool = True
    """Whether the record at the position begins a line."""
    lines: bool | None = None
    """Whether each record filled a line of its own; None before the first."""
    keys: set[str] = field(default_factory=set)
    """Keys that records open with."""

    def begins(self, blanks: str) -> None:
        """Takes note of what stands in front of a record."""
        self.own_line = "\n" in blanks
        if self.indent is None:
            self.indent = blanks.rpartition("\n")[2].replace(",", "")

    def decoded(self, text: str, value: Any) -> None:
        """Takes note of a record."""
        self.lines = self.lines is not False and self.own_line and "\n" not in text
        if isinstance(value, dict) and value and len(self.keys) < _MOST_KEYS:
            self.keys.add(next(iter(value)))

    def border(self) -> re.Pattern[str]:
        """Returns what stands right in front of the next record, blanks and comma not included."""
        if self.lines and self.own_line:
            return re.compile(r"(?=\n\s*[^\s\x00])")
        line = rf"(?=\n{re.escape(self.indent or '')}"
        if not self.in_list:
            return re.compile(rf"{line}[^\s}}\]\x00])")
        opening = "|".join(re.escape(json.dumps(key, ensure_ascii=False)) for key in sorted(self.keys))
        blanks = r"[^\S\n]*" if self.own_line else r"\s*"
        item = rf"(?=,{blanks}\{{\s*(?:{opening})\s*:)" if opening else rf"\}}(?=\s*,{blanks}\{{)"
        return re.compile(rf"{line}\{{)|{item}" if self.own_line else item)


class _Window:
    """The part of the file in memory: `text[position:]` is what has not been consumed.

    Attributes:
        ended: Whether nothing follows what is held.
        broke_off: Whether the file ended before its text did.
    """

    def __init__(self, pieces: Iterator[str]) -> None:
        self.pieces = pieces
        self.text = ""
        self.position = 0
        self.blanks = "\n"  # skipped since the last record; a file begins with a line
        self.ended = self.broke_off = False

    def more(self) -> None:
        """Forgets what was consumed and reads at least as much again as is left, so that long records cost no more."""
        left = self.text[self.position :]
        found, wanted = [left], max(1, len(left))
        try:
            while wanted > 0 and (piece := next(self.pieces, None)) is not None:
                found.append(piece)
                wanted -= len(piece)
            self.ended = wanted > 0
        except CutOffError:
            self.ended = self.broke_off = True
        self.text, self.position = "".join(found), 0

    def skip_blanks(self) -> str:
        """Moves behind blanks and commas; returns the character there, empty at the end of the file."""
        while True:
            match = _BLANK.match(self.text, self.position)
            assert match, "matches even nothing"
            self.blanks, self.position = self.blanks + match.group(), match.end()
            if self.position < len(self.text) or self.ended:
                return self.text[self.position : self.position + 1]
            self.more()

    def take_blanks(self) -> str:
        """Returns what was skipped since the last record."""
        blanks, self.blanks = self.blanks, ""
        return blanks

    def enter_list(self) -> bool:
        """Returns whether a list begins here, and moves behind its bracket."""
        if self.skip_blanks() != "[":
            return False
        self.position += 1
        self.blanks = ""
        return True

    def decode(self, index: int, layout: _Layout) -> Record:
        """Returns the value at the position and moves behind it; stays there if it is broken."""
        while True:
            length, problem = len(self.text) - self.position, INVALID
            try:
                value, end = _DECODER.raw_decode(self.text, self.position)
            except json.JSONDecodeError as error:
                unfinished = _breaks_off(error)
                if (unfinished or len(self.text) - error.pos < _TOKEN) and not self.ended and length <= _LONGEST:
                    self.more()
                    continue
                if unfinished and self.ended and not self._holds(layout):
                    problem = CUT_OFF
            except (ValueError, RecursionError):  # an integer of thousands of digits; nesting without end
                pass
            else:
                if end < len(self.text) or self.ended:  # a number at the end may go on in the next piece
                    layout.decoded(self.text[self.position : end], value)
                    self.position = end
                    return Record(index=index, value=value)
                self.more()
                continue
            return Record(index=index, problem=problem)

    def _holds(self, layout: _Layout) -> bool:
        """Returns whether others seem to begin behind the position: then the record lacks its end, not the file."""
        known = layout.lines is not None or layout.keys
        return bool(known and layout.border().search(self.text, self.position + 1))

    def resume(self, layout: _Layout) -> None:
        """Moves to where the next record seems to begin, or to the end of the file."""
        if not layout.keys and (opening := _OPENING.match(self.text, self.position)):
            layout.keys.add(opening[1])
        border, start = layout.border(), self.position + 1
        while True:
            if match := border.search(self.text, start):
                self.position = match.end()
                return
            if self.ended:
                self.position = len(self.text)
                return
            self.position = max(self.position, len(self.text) - 256)  # a border may straddle two pieces
            self.more()
            start = self.position


def _breaks_off(error: json.JSONDecodeError) -> bool:
    """Returns whether the text is a valid beginning, so that only its end is missing."""
    rest = error.doc[error.pos : error.pos + 12].rstrip()
    return (
        error.msg.startswith(("Unterminated", "Invalid \\u"))
        or any(word.startswith(rest) for word in _LITERALS)
        or _UNFINISHED_NUMBER.fullmatch(rest) is not None
    )
