"""Weights of the contrasts that claims ask about: means, slopes, dips; `Quantities.combined` gives their intervals.

Each returns row -> weight over the rows of `taps.analysis.intervals.Quantities`. One contrast is one comparison: it
stands for a claim over many cells ("at every depth", "for every variant and benchmark") that would, cell by cell, be
undecided by construction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

Weights = dict[int, float]


def mean(rows: Sequence[int]) -> Weights:
    """Returns the weights of the plain mean of rows."""
    return {row: 1 / len(rows) for row in rows}


def difference(a: Mapping[int, float], b: Mapping[int, float]) -> Weights:
    """Returns the weights of contrast a - contrast b."""
    return weighted([(1.0, a), (-1.0, b)])


def pooled(contrasts: Sequence[Mapping[int, float]]) -> Weights:
    """Returns the weights of the plain mean of contrasts, e.g. of one slope per drafter and benchmark."""
    return weighted([(1 / len(contrasts), contrast) for contrast in contrasts])


def slope(rows: Sequence[int], positions: Sequence[float], importance: Sequence[float] | None = None) -> Weights:
    """Returns the weights of the least-squares slope of rows over positions (per unit of position).

    Args:
        rows: The quantities the line goes through, at least two.
        positions: Where each stands (a depth, a weight); not all equal.
        importance: Fixed weights of the fit, e.g. the number of cycles that reached a depth; equal by default.
    """
    x = np.asarray(positions, dtype=np.float64)
    share = np.ones(len(x)) if importance is None else np.asarray(importance, dtype=np.float64)
    centred = x - np.average(x, weights=share)
    return dict(zip(rows, share * centred / (share @ centred**2), strict=True))


def dip_below_chord(rows: Sequence[int], positions: Sequence[float]) -> Weights:
    """Returns the weights of how far the inner rows lie, on average, below the chord between the outermost two.

    Above 0: the curve sags, wherever its ends are. A straight line, rising or falling, gives 0.

    Args:
        rows: The quantities in the order of the sweep, at least three.
        positions: Where each stands; all different.
    """
    order = np.argsort(positions)
    first, *inner, last = (int(place) for place in order)
    length = positions[last] - positions[first]
    parts = []
    for place in inner:
        along = (positions[place] - positions[first]) / length
        parts.append({rows[first]: 1 - along, rows[last]: along, rows[place]: -1.0})
    return pooled(parts)


def weighted(parts: Iterable[tuple[float, Mapping[int, float]]]) -> Weights:
    """Returns the sum of contrasts, each times its factor."""
    total: defaultdict[int, float] = defaultdict(float)
    for factor, weights in parts:
        for row, weight in weights.items():
            total[row] += factor * weight
    return dict(total)
