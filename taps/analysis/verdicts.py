"""How a claim is decided: from intervals, never from a point estimate. Every threshold of the report is here.

One comparison (an `Evidence`) claims a direction; `taps.analysis.decisions` says what its 95 % interval makes of it:

    direction      holds                           fails                                  no effect
    greater        whole interval above 0          whole interval below 0                 inside +-margin
    less           whole interval below 0          whole interval above 0                 inside +-margin
    similar        inside +-margin                 entirely outside +-margin              -
    not worse      above -margin                   below 0 and not above -margin          -

It stays open otherwise, and with fewer than FEWEST_QUESTIONS questions. The margin of an acceptance length is a share
of the gain tau - 1.

A claim is a conjunction ("on every benchmark ..."). It is *reproduced* if every comparison holds: that needs no
correction for their number. It is *contradicted* if at least one fails *clearly*: among k comparisons some fail by
chance, so a failure counts if its p value times k stays below 5 % (Bonferroni). Where none fails clearly, a comparison
that is shown to be *no effect* refutes the claim, too: that is a result, told apart from *undecided*, its absence.
*Not testable here* is a claim without any comparison.

The primary claims of a study (`Claim.is_primary`) are judged together under its first condition: one is reproduced or
contradicted only if its p value, after Holm's correction for their number, is below 5 %. All other judgements are
exploratory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist

from taps.analysis.decisions import SIMILAR_SHARE, Outcome, gain_margin, is_equivalent, outcome
from taps.analysis.multiplicity import all_of, any_of

__all__ = [
    "CLEAR_SHARE", "FEWEST_QUESTIONS", "IN_WORDS", "LEVEL", "LOSSLESS_PERCENT", "SIMILAR_SHARE", "Direction",
    "Evidence", "Interval", "Outcome", "Verdict", "clear_failures", "conclude", "gain_margin", "p_value",
]  # fmt: skip

# "More than 80 % of the prompts": the paper's own number.
CLEAR_SHARE = 80.0
# An interval from very few questions rests on its assumptions alone.
FEWEST_QUESTIONS = 6
# No sample proves that two texts are always equal. Fewer than 1 token in 100 at which live decoding leaves the target's
# own text is what a sample of a few hundred tokens without any such place can show; near-ties of the target stay below.
LOSSLESS_PERCENT = 1.0
LEVEL = 0.05


IN_WORDS = (
    "A claim is a conjunction of comparisons, each decided by its 95 % interval: reproduced if all hold, contradicted "
    "if one fails clearly (allowing for their number), no effect if one is shown to be smaller than what matters, "
    "undecided otherwise. The primary claims are corrected together (Holm, 5 %); all else is exploratory."
)


class Verdict(StrEnum):
    """What the results say about a claim."""

    REPRODUCED = "reproduced"
    CONTRADICTED = "contradicted"
    NO_EFFECT = "no effect"
    UNDECIDED = "undecided"
    NOT_TESTABLE = "not testable here"


class Direction(StrEnum):
    """What a comparison claims of its estimate."""

    GREATER = "> 0"
    LESS = "< 0"
    SIMILAR = "≈ 0"
    NOT_WORSE = "≥ 0"


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with its 95 % interval, and where it stands.

    Attributes:
        estimate, low, high: In the unit of the quantity.
        rows: The table and the row it was read from.
        num_questions: Questions behind it; None if questions are not what it rests on.
        p_value: Two-sided, of "the quantity is 0"; NaN where the table has none.
    """

    estimate: float
    low: float
    high: float
    rows: str
    num_questions: int | None = None
    p_value: float = math.nan

    def __neg__(self) -> Interval:
        return replace(self, estimate=-self.estimate, low=-self.high, high=-self.low)

    def minus(self, constant: float) -> Interval:
        """Returns the interval shifted down by a constant."""
        estimate, low, high = (value - constant for value in (self.estimate, self.low, self.high))
        return Interval(estimate=estimate, low=low, high=high, rows=self.rows, num_questions=self.num_questions)

    @property
    def can_decide(self) -> bool:
        """Whether there is an interval, from enough questions."""
        enough = self.num_questions is None or self.num_questions >= FEWEST_QUESTIONS
        return enough and math.isfinite(self.low) and math.isfinite(self.high)

    def minus_independent(self, other: Interval) -> Interval:
        """Returns the interval of the difference of two independent quantities.

        Source: the square-and-add rule ("MOVER"): each side's own half-widths, added in quadrature.
        """
        below = math.hypot(self.estimate - self.low, other.high - other.estimate)
        above = math.hypot(self.high - self.estimate, other.estimate - other.low)
        estimate = self.estimate - other.estimate
        return Interval(
            estimate=estimate,
            low=estimate - below,
            high=estimate + above,
            rows=f"{self.rows}; {other.rows}",
            num_questions=min(filter(None, (self.num_questions, other.num_questions)), default=None),
        )


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One comparison.

    Attributes:
        what: The quantity compared, e.g. `Math - Chat on GSM8K`.
        direction: What is claimed of it.
        interval: Estimate and interval of that quantity.
        margin: Half-width of "the same" and of no effect, in the quantity's unit.
    """

    what: str
    direction: Direction
    interval: Interval
    margin: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """What the interval says (table in the module's docstring)."""
        low, high, margin = self.interval.low, self.interval.high, self.margin
        if not self.interval.can_decide:
            return Outcome.OPEN
        if self.direction in (Direction.GREATER, Direction.LESS):
            return outcome(low, high, positive=self.direction == Direction.GREATER, margin=margin)
        if self.direction == Direction.SIMILAR:
            holds, fails = is_equivalent(low, high, margin), low > margin or high < -margin
        else:
            holds, fails = low >= -margin, high < 0
        return Outcome.HOLDS if holds else Outcome.FAILS if fails else Outcome.OPEN

    @property
    def is_on_claimed_side(self) -> bool:
        """Whether the estimate, if not its interval, is as claimed."""
        estimate = self.interval.estimate
        if self.direction == Direction.LESS:
            return estimate < 0
        return estimate > 0 if self.direction == Direction.GREATER else estimate >= -self.margin


def clear_failures(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Returns the comparisons that still fail when all of them are to hold together with 95 %.

    Without a p value, the interval is widened by the ratio of normal quantiles instead.
    """
    return [item for item in evidence if item.outcome == Outcome.FAILS and _is_clear(item, len(evidence))]


def _is_clear(item: Evidence, number: int) -> bool:
    if item.direction != Direction.SIMILAR and math.isfinite(item.interval.p_value):
        return item.interval.p_value * number < LEVEL
    factor = NormalDist().inv_cdf(1 - LEVEL / 2 / number) / NormalDist().inv_cdf(1 - LEVEL / 2)
    found = item.interval
    low, high = (found.estimate + factor * (bound - found.estimate) for bound in (found.low, found.high))
    return replace(item, interval=replace(found, low=low, high=high)).outcome == Outcome.FAILS


def conclude(evidence: Sequence[Evidence]) -> Verdict:
    """Returns the verdict on a conjunction (module's docstring)."""
    if not evidence:
        return Verdict.NOT_TESTABLE
    if clear_failures(evidence):
        return Verdict.CONTRADICTED
    outcomes = {item.outcome for item in evidence}
    if Outcome.NO_EFFECT in outcomes:
        return Verdict.NO_EFFECT
    return Verdict.REPRODUCED if outcomes == {Outcome.HOLDS} else Verdict.UNDECIDED


def p_value(evidence: Sequence[Evidence], verdict: Verdict) -> float:
    """Returns the p value of a verdict, before any correction; NaN for one that rests on no p value.

    For a claim whose estimates are all as claimed, the largest (all must hold: intersection-union). For any other, the
    smallest of those on the other side, times the number of comparisons.
    """
    if verdict in (Verdict.NO_EFFECT, Verdict.NOT_TESTABLE):
        return math.nan
    wrong = [item.interval.p_value for item in evidence if not item.is_on_claimed_side]
    if verdict == Verdict.CONTRADICTED or wrong:
        return min(1.0, any_of(wrong) * len(evidence) / len(wrong)) if wrong else math.nan
    return all_of([item.interval.p_value for item in evidence])
