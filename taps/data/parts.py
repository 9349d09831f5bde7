"""A part of a file, so that training and benchmark take disjoint ones: decided text by text, whatever else is there."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from taps.data.wording import general_words
from taps.plumbing.errors import TapsError

OTHER_PART = "other_part"
"""Reason code of records that lie in another part of the file."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """The texts whose place on the way from 0 to 1 is at least `start` and below `end`.

    The place follows from sha256 of the text's words, numbers and names taken for equal: a problem and its twin with
    other numbers are in the same part, and added or removed records move no other.
    """

    start: float
    end: float

    def holds(self, text: str) -> bool:
        """Returns whether a text lies in the part."""
        digest = hashlib.sha256(" ".join(general_words(text)).encode()).digest()
        return self.start <= int.from_bytes(digest[:8], "big") / 2**64 < self.end


def parse_part(text: str) -> Part:
    """Returns the part that `0:0.75` names.

    Raises:
        TapsError: not two numbers, 0 <= start < end <= 1.
    """
    start, _, end = text.partition(":")
    try:
        part = Part(start=float(start), end=float(end))
    except ValueError:
        part = Part(start=1, end=0)
    if not 0 <= part.start < part.end <= 1:
        raise TapsError(f"--part {text}", "not a part of a file", expected="START:END with 0 <= START < END <= 1")
    return part
