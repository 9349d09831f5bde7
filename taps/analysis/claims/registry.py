"""What a claim is: a function that yields comparisons, found by its number; and the rows that claims compare.

A claim yields `Evidence` (a comparison with its interval) and `str` (a part that cannot be tested, and why); under a
condition that it says nothing about it yields nothing.
`taps.analysis.verdicts` decides; nothing here looks at a point estimate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from taps.analysis import names
from taps.analysis.findings import Findings, Row, Where
from taps.analysis.verdicts import Direction, Evidence, Outcome, Verdict, clear_failures, conclude

MATH, CHAT = Row("single", names.MATH), Row("single", names.CHAT)
SMALL, LARGE = Row("single", "mixed_small"), Row("single", "mixed_large")
AVERAGED = Row("single", "averaged")
ROUTED, ROUTED_TURN = Row("routed_confidence_step", names.PAIR), Row("routed_confidence_turn", names.PAIR)
BY_ENTROPY, BY_HISTORY = Row("routed_entropy_step", names.PAIR), Row("routed_history", names.PAIR)
MERGED, MATCHED = Row("merged_concat", names.PAIR), Row("merged_matched", names.PAIR)
ADAPTIVE, CALIBRATED = Row("merged_adaptive", names.PAIR), Row("routed_confidence_step_calibrated", names.PAIR)
DOUBLE_MATH, DOUBLE_CHAT = Row("single_double", names.MATH), Row("single_double", names.CHAT)
VARIANTS = (MATH, CHAT, SMALL, LARGE, AVERAGED, ROUTED, MERGED)  # the rows of the paper's main tables

Step = Evidence | str
Claim = Callable[[Findings, Where], Iterator[Step]]
_CLAIMS: dict[str, Claim] = {}


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A claim's verdict under one condition.

    Attributes:
        claim: Its number.
        where: Temperature and draft family.
        verdict: What the evidence says.
        evidence: Every comparison made.
        gaps: What could not be compared, and why.
    """

    claim: str
    where: Where
    verdict: Verdict
    evidence: list[Evidence]
    gaps: list[str]

    @property
    def decisive(self) -> Evidence | None:
        """The comparison that decides: the clearest failure, else the least certain one; None without any."""
        if not self.evidence:
            return None
        if failures := clear_failures(self.evidence):
            return max(failures, key=_clearness)
        unsettled = [item for item in self.evidence if item.outcome != Outcome.HOLDS]
        return min(unsettled or self.evidence, key=_clearness)

    @property
    def applies(self) -> bool:
        """Whether the claim says anything under this condition."""
        return bool(self.evidence or self.gaps)


def _clearness(item: Evidence) -> float:
    """Returns the estimate's size in half-widths of its interval."""
    width = item.interval.high - item.interval.low
    return abs(item.interval.estimate) / width if width > 0 else math.inf


def judge(claim: str, found: Findings, where: Where) -> Judgement:
    """Returns the verdict on a claim by its number under one condition."""
    steps = list(_CLAIMS[claim](found, where))
    evidence = [step for step in steps if isinstance(step, Evidence)]
    gaps = [step for step in steps if isinstance(step, str)]
    return Judgement(claim=claim, where=where, verdict=conclude(evidence), evidence=evidence, gaps=gaps)


def claim(number: str) -> Callable[[Claim], Claim]:
    """Registers a function as the claim of that number."""

    def register(function: Claim) -> Claim:
        _CLAIMS[number] = function
        return function

    return register


def compare(
    found: Findings,
    where: Where,
    benchmark: str,
    a: Row,
    direction: Direction,
    b: Row,
    *,
    share: float = 0.0,
    stands_for: str = "",
) -> Iterator[Step]:
    """Yields the comparison tau(a) - tau(b) on a benchmark.

    Args:
        share: Margin of "the same" as a share of tau(b).
        stands_for: The benchmark that the claim is about, if another one stands in for it.
    """
    what = f"{a.title} − {b.title}, {names.benchmark_title(benchmark)}"
    if stands_for not in ("", benchmark):
        what += f" (stands in for {names.benchmark_title(stands_for)})"
    interval = found.difference(where, benchmark, a, b)
    if interval is None:
        yield f"{what}: not replayed"
    else:
        margin = share * (found.tau(where, benchmark, b) or 0.0)
        yield Evidence(what=what, direction=direction, interval=interval, margin=margin)


def matched_first(benchmark: str) -> tuple[Row, Row]:
    """Returns (matched specialist, the other one) of a benchmark."""
    return (MATH, CHAT) if names.is_math(benchmark) else (CHAT, MATH)


def above_on_every_benchmark(found: Findings, where: Where, row: Row, others: tuple[Row, ...]) -> Iterator[Step]:
    """Yields row - other on every benchmark, for each of the others."""
    for benchmark in found.benchmarks(where):
        for other in others:
            yield from compare(found, where, benchmark, row, Direction.GREATER, other)
