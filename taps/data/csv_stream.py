"""Records of CSV and TSV files, one by one: every cell a text, an empty one null, lines that fit no column counted.

`datasets` reads a whole file or none of it, and takes 007 for a number; Python's own reader does neither.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path

from taps.data.json_stream import CUT_OFF, Record
from taps.data.text_files import CutOffError, read_text
from taps.plumbing.errors import TapsError

INVALID = "invalid_csv"

_SEPARATORS = ",;\t|"


def stream_csv(path: Path) -> Iterator[Record]:
    """Yields the rows of a file whose first line names its columns; a row that ends early has nulls.

    The separator is the tab of a .tsv, else whichever of comma, semicolon, tab and bar the first line has most of.

    Raises:
        TapsError: no first line that names each column once, or no text at all (`taps.data.text_files`).
    """
    csv.field_size_limit(sys.maxsize)
    lines = _lines(path)
    try:
        header = next(filter(str.strip, lines), "")
    except CutOffError:
        header = ""
    separator = "\t" if ".tsv" in path.suffixes else max(_SEPARATORS, key=header.count)
    rows = csv.reader(chain([header], lines), delimiter=separator, strict=True)
    names = _names(path, rows)
    for index in count():
        try:
            cells = next(rows, None)
        except (csv.Error, CutOffError) as error:
            ends = isinstance(error, CutOffError) or "unexpected end of data" in str(error)
            yield Record(index=index, problem=CUT_OFF if ends else INVALID)
            if ends:
                return
            continue
        if cells is None:
            return
        if len(cells) > len(names):
            yield Record(index=index, problem=INVALID)
        elif cells:  # not a blank line
            values = [cell or None for cell in cells] + [None] * (len(names) - len(cells))
            yield Record(index=index, value=dict(zip(names, values, strict=True)))


def _names(path: Path, rows: Iterator[list[str]]) -> list[str]:
    try:
        names = [name.strip() for name in next(rows, [])]
    except (csv.Error, CutOffError):
        names = []
    if not names or len(set(names)) < len(names):
        found = ", ".join(names)[:80] or "nothing"
        raise TapsError(path, "no table", expected="a first line that names each column once", found=found)
    return names


def _lines(path: Path) -> Iterator[str]:
    """Yields a file's lines with their ends; only a line feed ends one, as a quoted cell may hold other breaks.

    Where the first line ends with a carriage return alone, so do all.
    """
    rest, end = "", ""
    for piece in read_text(path):
        text = rest + piece
        if not end and (found := re.search(r"\r(?=[^\n])|\n", text)):
            end = found.group()
        *whole, rest = text.split(end) if end else [text]
        yield from (f"{line}{end}" for line in whole)
    if rest:
        yield rest
