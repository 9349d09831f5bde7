"""The figures of a report: functions under `@figure` in the modules of this package, drawn in the order of places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from taps.analysis.figures.style import Picture
from taps.analysis.findings import Findings
from taps.plumbing.catalogue import Catalogue

Drawn = Picture | list[Picture] | str | None
Draws = TypeVar("Draws", bound=Callable[[Findings], Drawn])


@dataclass(frozen=True)
class Figure:
    """A registered figure.

    Attributes:
        place: Among the report's figures, ascending.
        draw: The study's tables -> the picture, or several; a string where the study lacks what it would show: what
            is lacking; None where it is not to be mentioned, as what belongs to the paper's study alone.
    """

    place: int
    draw: Callable[[Findings], Drawn]


FIGURES: Catalogue[Figure] = Catalogue("taps.analysis.figures", what="figure")


def figure(place: int) -> Callable[[Draws], Draws]:
    """Registers a function as a figure; see `Figure`."""

    def register(draw: Draws) -> Draws:
        FIGURES.register(draw.__name__, Figure(place, draw), module=draw.__module__)
        return draw

    return register


def pictures(found: Findings) -> Iterator[Picture | str]:
    """Yields every figure that the tables allow, in the order of print, and in words why another one is left out."""
    for entry in sorted(FIGURES.values(), key=lambda entry: entry.place):
        drawn = entry.draw(found)
        yield from drawn if isinstance(drawn, list) else [drawn] if drawn is not None else []
