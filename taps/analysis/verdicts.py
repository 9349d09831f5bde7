"""How a claim is decided: from 95 % intervals, never from a point estimate. Every threshold of the report is here.

One comparison (an `Evidence`) holds, fails or stays open; it stays open with fewer than FEWEST_QUESTIONS questions:

    direction      holds                           fails
    greater        whole interval above 0          whole interval below 0
    less           whole interval below 0          whole interval above 0
    similar        inside +-margin                 entirely outside +-margin
    not worse      above -margin, not below 0      whole interval below 0

A claim is a conjunction ("on every benchmark ..."). It is *reproduced* if every comparison holds: that needs no
correction for their number. It is *contradicted* if at least one fails *clearly*: among k comparisons of a claim some
fail by chance, so each interval is first widened until all k together hold with 95 % (Bonferroni, normal quantiles).
It is *undecided* otherwise, and *not testable here* without any comparison.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist

# Two acceptance lengths within 5 % of the reference count as "the same": about the largest gap (0.13 of 5.04) that the
# paper itself passes over as equal, rounded up, and below what a user would notice as speed.
SIMILAR_SHARE = 0.05
# "More than 80 % of the prompts": the paper's own number.
CLEAR_SHARE = 80.0
# The bootstrap of very few questions claims far too much certainty (three of them leave ten different resamples).
FEWEST_QUESTIONS = 6
# No sample proves that two texts are always equal. Fewer than 1 token in 100 at which live decoding leaves the target's
# own text is what a sample of a few hundred tokens without any such place can show; near-ties of the target stay below.
LOSSLESS_PERCENT = 1.0


class Outcome(StrEnum):
    """What one interval says about one comparison."""

    HOLDS = "holds"
    FAILS = "fails"
    OPEN = "open"


class Verdict(StrEnum):
    """What the results say about a claim."""

    REPRODUCED = "reproduced"
    CONTRADICTED = "contradicted"
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
        num_questions: Questions resampled; None if the interval does not come from resamples.
    """

    estimate: float
    low: float
    high: float
    rows: str
    num_questions: int | None = None

    def __neg__(self) -> Interval:
        return replace(self, estimate=-self.estimate, low=-self.high, high=-self.low)

    def minus(self, constant: float) -> Interval:
        """Returns the interval shifted down by a constant."""
        return replace(self, estimate=self.estimate - constant, low=self.low - constant, high=self.high - constant)

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
        interval: What was found.
        margin: Half-width of "the same", in the quantity's unit; used by SIMILAR and NOT_WORSE.
    """

    what: str
    direction: Direction
    interval: Interval
    margin: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """Whether the comparison holds, fails or stays open (table in the module's docstring)."""
        low, high, margin = self.interval.low, self.interval.high, self.margin
        if not self.interval.can_decide:
            return Outcome.OPEN
        holds, fails = {
            Direction.GREATER: (low > 0, high < 0),
            Direction.LESS: (high < 0, low > 0),
            Direction.SIMILAR: (low >= -margin and high <= margin, low > margin or high < -margin),
            Direction.NOT_WORSE: (low >= -margin and high >= 0, high < 0),
        }[self.direction]
        return Outcome.HOLDS if holds else Outcome.FAILS if fails else Outcome.OPEN

    def widened(self, factor: float) -> Evidence:
        """Returns the comparison with an interval `factor` times as far on both sides of the estimate."""
        found = self.interval
        low, high = (found.estimate + factor * (bound - found.estimate) for bound in (found.low, found.high))
        return replace(self, interval=replace(found, low=low, high=high))


def clear_failures(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Returns the comparisons that still fail when all of them are to hold together with 95 %."""
    if not evidence:
        return []
    normal = NormalDist()
    factor = normal.inv_cdf(1 - 0.025 / len(evidence)) / normal.inv_cdf(0.975)
    return [item for item in evidence if item.widened(factor).outcome == Outcome.FAILS]


def conclude(evidence: Sequence[Evidence]) -> Verdict:
    """Returns the verdict on a conjunction (module's docstring)."""
    if not evidence:
        return Verdict.NOT_TESTABLE
    if clear_failures(evidence):
        return Verdict.CONTRADICTED
    holds = all(item.outcome == Outcome.HOLDS for item in evidence)
    return Verdict.REPRODUCED if holds else Verdict.UNDECIDED
