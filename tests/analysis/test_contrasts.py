"""Tests of taps.analysis.contrasts: what each contrast gives on curves of known shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.analysis import contrasts

POSITIONS = [0.1, 0.3, 0.5, 0.9]
ROWS = [7, 3, 9, 4]


def _apply(weights: dict[int, float], values: list[float]) -> float:
    return sum(weight * values[ROWS.index(row)] for row, weight in weights.items())


@given(st.floats(-5, 5), st.floats(-5, 5))
def test_a_line_has_its_slope_and_no_dip(start: float, rise: float) -> None:
    line = [start + rise * x for x in POSITIONS]
    assert _apply(contrasts.slope(ROWS, POSITIONS), line) == pytest.approx(rise, abs=1e-9)
    assert _apply(contrasts.slope(ROWS, POSITIONS, [3, 1, 8, 2]), line) == pytest.approx(rise, abs=1e-9)
    assert _apply(contrasts.dip_below_chord(ROWS, POSITIONS), line) == pytest.approx(0, abs=1e-9)
    assert _apply(contrasts.mean(ROWS), line) == pytest.approx(np.mean(line))


def test_slope_is_least_squares() -> None:
    values, importance = [2.0, 1.0, 4.0, -1.0], [1.0, 5.0, 2.0, 3.0]
    assert _apply(contrasts.slope(ROWS, POSITIONS), values) == pytest.approx(np.polyfit(POSITIONS, values, 1)[0])
    expected = np.polyfit(POSITIONS, values, 1, w=np.sqrt(importance))[0]
    assert _apply(contrasts.slope(ROWS, POSITIONS, importance), values) == pytest.approx(expected)


def test_dip_is_the_mean_depth_below_the_chord() -> None:
    """Ends 1.0 and 1.8: the chord is at 1.2 and 1.4; the inner rows lie 0.1 and 0.3 below it."""
    assert _apply(contrasts.dip_below_chord(ROWS, POSITIONS), [1.0, 1.1, 1.1, 1.8]) == pytest.approx(0.2)
    shuffled = [2, 0, 3, 1]
    weights = contrasts.dip_below_chord([ROWS[i] for i in shuffled], [POSITIONS[i] for i in shuffled])
    assert _apply(weights, [1.0, 1.1, 1.1, 1.8]) == pytest.approx(0.2)
    assert _apply(weights, [1.0, 1.5, 1.5, 1.8]) < 0  # a bulge


def test_differences_and_pools_share_rows() -> None:
    one, other = contrasts.mean([1, 2]), contrasts.mean([2, 3])
    assert contrasts.difference(one, other) == {1: 0.5, 2: 0.0, 3: -0.5}
    assert contrasts.pooled([one, other]) == {1: 0.25, 2: 0.5, 3: 0.25}
