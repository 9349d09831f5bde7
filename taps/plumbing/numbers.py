"""Numbers on a command line: finite, whole where they count something, and within what makes sense.

In place of `int` and `float`, which take -1, nan and 1e300 for an answer.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def whole(least: int, most: int) -> Callable[[str], int]:
    """Returns an argparse type: a whole number from `least` to `most`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, found {text!r}")
        return value

    return parse


def real(least: float, most: float = math.inf, *, above: bool = False, below: bool = False) -> Callable[[str], float]:
    """Returns an argparse type: a finite number from `least` (`above` it, if so) to `most` (`below` it, if so)."""
    words = f"a number {'above' if above else 'from'} {least:g}{'' if above else ' on'}"
    if most < math.inf:
        words += f", {'below' if below else 'at most'} {most:g}"

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        outside = value < least or value > most or (above and value == least) or (below and value == most)
        if outside or not math.isfinite(value):
            raise argparse.ArgumentTypeError(f"expected {words}, found {text!r}")
        return value

    return parse


number, count, share = whole(1, 2**31 - 1), whole(0, 2**31 - 1), real(0, 1, above=True)

TYPES: dict[str, Callable[[str], float]] = {
    "number": number,  # how many there are of what must be there
    "count": count,  # how many there are of what may be missing
    "seed": whole(0, 2**63 - 1),  # what every generator takes
    "depth": whole(0, 256),  # expansions of a draft tree
    "nodes": whole(1, 2**15 - 1),  # of a draft tree; banks keep parents as int16
    "share": share,  # a part of a whole, some of it at least
    "share0": real(0, 1),  # a part of a whole, perhaps none
    "beta": real(0, 1, below=True),  # of a running mean
    "rate": real(0, above=True),
    "weight": real(0),  # of a term, or a strength, that may be switched off
    "temperature": real(0, 100),  # of sampling; 0 is greedy
}
"""Name -> argparse type; `stage_parser` knows them, so that a flag says `type="share"`."""
