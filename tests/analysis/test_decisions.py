"""Tests of taps.analysis.decisions: every place an interval can lie in."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.analysis.decisions import Outcome, gain_margin, is_equivalent, outcome

HOLDS, FAILS, NO_EFFECT, OPEN = Outcome.HOLDS, Outcome.FAILS, Outcome.NO_EFFECT, Outcome.OPEN


@pytest.mark.parametrize(
    ("low", "high", "margin", "expected"),
    [
        (0.05, 0.2, 0.03, HOLDS),
        (0.01, 0.2, 0.03, HOLDS),  # real, its size open
        (-0.2, -0.01, 0.03, FAILS),
        (-0.02, 0.03, 0.03, NO_EFFECT),
        (0.004, 0.029, 0.03, NO_EFFECT),  # real and too small to matter
        (-0.02, -0.001, 0.03, NO_EFFECT),
        (-0.02, 0.05, 0.03, OPEN),
        (-0.1, 0.01, 0.03, OPEN),
        (0.0, 0.0, 0.0, NO_EFFECT),  # equal in every question
        (0.0, 0.1, 0.03, OPEN),
        (-0.01, 0.01, 0.0, OPEN),  # no margin, no equivalence
        (math.nan, math.nan, 0.03, OPEN),
    ],
)
def test_outcomes(low: float, high: float, margin: float, expected: Outcome) -> None:
    assert outcome(low, high, margin=margin) == expected
    mirrored = {HOLDS: FAILS, FAILS: HOLDS}.get(expected, expected)
    assert outcome(low, high, positive=False, margin=margin) == mirrored
    assert outcome(-high, -low, positive=False, margin=margin) == expected


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 0.5), st.floats(0, 1))
def test_a_wider_interval_never_decides_more(centre: float, half: float, margin: float, more: float) -> None:
    """It may turn "too small to matter" into a sign, not an open question into an answer, nor one sign into another."""
    narrow = outcome(centre - half, centre + half, margin=margin)
    wide = outcome(centre - half - more, centre + half + more, margin=margin)
    if narrow == OPEN:
        assert wide == OPEN
    if {narrow, wide} <= {HOLDS, FAILS}:
        assert narrow == wide


def test_the_margin_is_a_share_of_the_gain() -> None:
    assert gain_margin(1.6) == pytest.approx(0.03)
    assert gain_margin(1.6, share=0.1) == pytest.approx(0.06)
    assert gain_margin(1.0) == gain_margin(0.98) == 0.0
    assert is_equivalent(-0.01, 0.02, 0.02)
    assert not is_equivalent(-0.01, 0.021, 0.02)
