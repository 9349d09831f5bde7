"""Verdicts come from intervals alone: moving a point estimate inside its interval never changes one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.analysis.verdicts import Direction, Evidence, Interval, Outcome, Verdict, conclude, p_value

NUMBER = st.floats(-3, 3, allow_nan=False)


def _evidence(low: float, high: float, direction: Direction = Direction.GREATER, margin: float = 0) -> Evidence:
    interval = Interval(estimate=(low + high) / 2, low=low, high=high, rows="")
    return Evidence(what="x", direction=direction, interval=interval, margin=margin)


@pytest.mark.parametrize(
    ("direction", "low", "high", "outcome"),
    [
        (Direction.GREATER, 0.1, 0.2, Outcome.HOLDS),
        (Direction.GREATER, -0.2, -0.1, Outcome.FAILS),
        (Direction.GREATER, -0.1, 0.2, Outcome.OPEN),
        (Direction.GREATER, 0.0, 0.2, Outcome.OPEN),
        (Direction.LESS, -0.2, -0.1, Outcome.HOLDS),
        (Direction.LESS, 0.1, 0.2, Outcome.FAILS),
        (Direction.SIMILAR, -0.04, 0.05, Outcome.HOLDS),
        (Direction.SIMILAR, 0.06, 0.2, Outcome.FAILS),
        (Direction.SIMILAR, 0.01, 0.2, Outcome.OPEN),
        (Direction.NOT_WORSE, -0.04, 0.3, Outcome.HOLDS),
        (Direction.NOT_WORSE, -0.04, -0.01, Outcome.HOLDS),
        (Direction.NOT_WORSE, -0.06, -0.01, Outcome.FAILS),
        (Direction.GREATER, -0.04, 0.03, Outcome.NO_EFFECT),
        (Direction.LESS, -0.04, -0.01, Outcome.NO_EFFECT),
        (Direction.NOT_WORSE, -0.2, 0.3, Outcome.OPEN),
        (Direction.GREATER, math.nan, math.nan, Outcome.OPEN),
    ],
)
def test_outcome_table(direction: Direction, low: float, high: float, outcome: Outcome) -> None:
    assert _evidence(low, high, direction, margin=0.05).outcome == outcome


def test_few_questions_decide_nothing() -> None:
    for num_questions, outcome in ((5, Outcome.OPEN), (6, Outcome.HOLDS), (None, Outcome.HOLDS)):
        interval = Interval(estimate=1, low=0.9, high=1.1, rows="", num_questions=num_questions)
        assert Evidence(what="x", direction=Direction.GREATER, interval=interval).outcome == outcome
        assert (-interval).minus_independent(interval).num_questions == num_questions


def test_conjunction() -> None:
    holds, fails, is_open = _evidence(1, 2), _evidence(-2, -1), _evidence(-1, 1)
    assert conclude([]) == Verdict.NOT_TESTABLE
    assert conclude([holds, holds]) == Verdict.REPRODUCED
    assert conclude([holds, is_open]) == Verdict.UNDECIDED
    assert conclude([holds, is_open, fails]) == Verdict.CONTRADICTED
    nothing = _evidence(-0.01, 0.01, margin=0.05)
    assert conclude([holds, nothing, is_open]) == Verdict.NO_EFFECT
    assert conclude([nothing, fails]) == Verdict.CONTRADICTED


def test_p_values_of_a_claim_come_from_the_side_that_decides() -> None:
    def evidence(estimate: float, p: float) -> Evidence:
        interval = Interval(estimate=estimate, low=estimate - 0.1, high=estimate + 0.1, rows="", p_value=p)
        return Evidence(what="x", direction=Direction.GREATER, interval=interval)

    holds = [evidence(0.2, 0.001), evidence(0.3, 0.03)]
    assert conclude(holds) == Verdict.REPRODUCED
    assert p_value(holds, Verdict.REPRODUCED) == 0.03
    mixed = [*holds, evidence(-0.4, 0.004)]
    assert conclude(mixed) == Verdict.CONTRADICTED
    assert p_value(mixed, Verdict.CONTRADICTED) == pytest.approx(0.012)
    assert conclude([*holds, evidence(-0.4, 0.02)]) == Verdict.UNDECIDED  # 3 x 0.02 is above 5 %
    assert math.isnan(p_value(holds, Verdict.NO_EFFECT))


def test_one_failure_among_many_must_be_clear() -> None:
    """An interval that just misses 0 contradicts alone, and not as one of a hundred."""
    barely, clearly = _evidence(-0.21, -0.01), _evidence(-0.5, -0.3)
    holds = [_evidence(1, 2)] * 99
    assert conclude([barely]) == Verdict.CONTRADICTED
    assert conclude([barely, *holds]) == Verdict.UNDECIDED
    assert conclude([clearly, *holds]) == Verdict.CONTRADICTED


def test_false_alarms_of_a_true_conjunction_are_rare() -> None:
    """60 true comparisons of equal things, 400 times: contradicted in about 2.5 %; above 8 % in < 1e-6 of runs."""
    estimates = np.random.default_rng(0).normal(0, 1, (400, 60))
    alarms = [
        conclude([_evidence(estimate - 1.96, estimate + 1.96) for estimate in row]) == Verdict.CONTRADICTED
        for row in estimates
    ]
    assert np.mean(alarms) < 0.08


@given(st.tuples(NUMBER, NUMBER).map(sorted), st.floats(0, 1), st.sampled_from(Direction))
def test_point_estimate_decides_nothing(bounds: list[float], share: float, direction: Direction) -> None:
    low, high = bounds
    moved = Interval(estimate=low + share * (high - low), low=low, high=high, rows="")
    evidence = Evidence(what="x", direction=direction, interval=moved, margin=0.1)
    assert evidence.outcome == _evidence(low, high, direction, margin=0.1).outcome


@given(st.tuples(NUMBER, NUMBER).map(sorted), st.tuples(NUMBER, NUMBER).map(sorted))
def test_difference_of_independent_intervals_contains_neither_less_nor_more(a: list[float], b: list[float]) -> None:
    one, two = (_evidence(low, high).interval for low, high in (a, b))
    difference = one.minus_independent(two)
    width, widest = difference.high - difference.low, (one.high - one.low) + (two.high - two.low)
    assert max(one.high - one.low, two.high - two.low) - 1e-9 <= width <= widest + 1e-9
    assert difference.estimate == pytest.approx(one.estimate - two.estimate)
    assert (-difference).estimate == pytest.approx(two.minus_independent(one).estimate)
