"""What a claim is, how one is registered and judged, and the comparisons that claims are made of.

A claim yields `Evidence` (a comparison with its interval) and `str` (a part that cannot be tested, and why); under a
condition that it says nothing about it yields nothing. `taps.analysis.verdicts` decides; nothing here looks at a point
estimate.

The modules of this package hold functions under `@asks`: what a study is asked, given who plays which part in it. A
study of the paper's specialists is asked the paper's claims under their numbers (C1 to C25) and our controls
(K); any other study is asked the same of its own specialists, mixtures and benchmarks.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from taps import published
from taps.analysis.findings import Findings, Where
from taps.analysis.labels import MEAN, Labels, Row
from taps.analysis.multiplicity import holm
from taps.analysis.verdicts import (
    LEVEL,
    SIMILAR_SHARE,
    Direction,
    Evidence,
    Outcome,
    Verdict,
    clear_failures,
    conclude,
    gain_margin,
    p_value,
)
from taps.plumbing.catalogue import modules_of

Step = Evidence | str


class Topic(IntEnum):
    """The question of the study that a claim answers a part of."""

    SPECIALISATION = 1
    MIXTURES = 2
    COMPOSITION = 3
    SIGNALS = 4
    CONDITIONS = 5  # asked in the table of claims only


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement that results bear out or not.

    Attributes:
        id: The paper's number, ours, or a short name.
        statement: The claim, one full sentence.
        finding: What the results say if they bear it out, to follow `Yes:` or `whether`.
        topic: Whose question it answers.
        steps: (tables, condition) -> the comparisons that it makes.
        is_key: Whether its verdict gives the topic's short answer.
        is_primary: Whether it is one of the few that the study is made for; their verdicts are corrected together.
        published: The published numbers' own verdicts: {temperature, method, verdict, detail} each.
    """

    id: str
    statement: str
    finding: str
    topic: Topic
    steps: Callable[[Findings, Where], Iterator[Step]]
    is_key: bool = False
    is_primary: bool = False
    published: Sequence[dict[str, Any]] = field(default_factory=tuple)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A claim's verdict under one condition.

    Attributes:
        claim: The claim's id.
        where: Temperature and method.
        verdict: What the evidence says.
        evidence: Every comparison made.
        gaps: What could not be compared, and why.
        p_value: Of the verdict (`taps.analysis.verdicts`), NaN where it has none.
        is_primary: Whether it is corrected together with the other primary ones.
        p_corrected: The p value after that correction; NaN for an exploratory judgement, and for one not testable here.
    """

    claim: str
    where: Where
    verdict: Verdict
    evidence: list[Evidence]
    gaps: list[str]
    p_value: float = math.nan
    is_primary: bool = False
    p_corrected: float = math.nan

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


def judge(claim: Claim, found: Findings, where: Where) -> Judgement:
    """Returns the verdict on a claim under one condition."""
    steps = list(claim.steps(found, where))
    evidence = [step for step in steps if isinstance(step, Evidence)]
    gaps = [step for step in steps if isinstance(step, str)]
    verdict = conclude(evidence)
    return Judgement(
        claim=claim.id,
        where=where,
        verdict=verdict,
        evidence=evidence,
        gaps=gaps,
        p_value=p_value(evidence, verdict),
    )


def judge_all(claims: Sequence[Claim], found: Findings) -> list[Judgement]:
    """Returns the judgements of all claims under all conditions that they speak about, primary ones corrected.

    A claim that the study cannot test is none of the tests that are corrected for: that was settled before any result.
    """
    judged = [judge(claim, found, where) for claim in claims for where in found.families]
    judged = [item for item in judged if item.applies]
    primary = {claim.id for claim in claims if claim.is_primary}
    judged = [replace(item, is_primary=item.claim in primary and item.where == found.main_condition) for item in judged]
    places = [at for at, item in enumerate(judged) if item.is_primary and item.verdict != Verdict.NOT_TESTABLE]
    for at, corrected in zip(places, holm([judged[at].p_value for at in places]), strict=True):
        judged[at] = _corrected(judged[at], float(corrected))
    return judged


def _corrected(item: Judgement, p_corrected: float) -> Judgement:
    """Returns a primary judgement that stands only if its corrected p value is below the level."""
    decided = item.verdict in (Verdict.REPRODUCED, Verdict.CONTRADICTED)
    if decided and math.isfinite(p_corrected) and p_corrected >= LEVEL:
        gap = "the interval decides alone, but not after the correction for the number of primary claims"
        item = replace(item, verdict=Verdict.UNDECIDED, gaps=[*item.gaps, gap])
    return replace(item, p_corrected=p_corrected if math.isfinite(p_corrected) else 1.0)


# --- registration ----------------------------------------------------------------------------------------------------

Asks = Callable[[Labels], Iterator[Claim]]
_ASKED: list[Asks] = []


def asks(function: Asks) -> Asks:
    """Registers a function: the study's labels -> the claims that it is asked."""
    _ASKED.append(function)
    return function


def claims_of(labels: Labels) -> list[Claim]:
    """Returns the claims that a study is asked: numbered ones in their order, then the others by topic."""
    for module in modules_of("taps.analysis.claims"):
        importlib.import_module(module)
    claims = [claim for function in _ASKED for claim in function(labels)]
    numbers = [*(item["id"] for item in published.claims()), *(f"K{number}" for number in range(1, 100))]
    return sorted(claims, key=lambda claim: numbers.index(claim.id) if claim.id in numbers else 1000 + claim.topic)


def numbered(labels: Labels, number: str, name: str, *, statement: str, **facts: Any) -> Claim:
    """Returns a claim under the paper's number or ours where the study has the paper's specialists, else under `name`.

    Args:
        number: e.g. `C9`, whose statement and published verdicts are the paper's; or `K2`; empty for neither.
        name: For a study of other names.
        statement: For a study of other names, and of our own claims.
        facts: The other fields of Claim.
    """
    if not (number and labels.roles.plays_the_paper):
        return Claim(id=name, statement=statement, **facts)
    paper = next((item for item in published.claims() if item["id"] == number), None)
    if paper is None:
        return Claim(id=number, statement=statement, **facts)
    return Claim(id=number, statement=paper["statement"], published=paper["published"], **facts)


# --- comparisons -----------------------------------------------------------------------------------------------------


def compare(
    found: Findings,
    where: Where,
    benchmark: str,
    a: Row,
    direction: Direction,
    b: Row,
    *,
    stands_for: str = "",
) -> Iterator[Step]:
    """Yields the comparison tau(a) - tau(b) on a benchmark; its margin is a share of b's gain.

    Args:
        stands_for: The benchmark that the claim is about, if another one stands in for it.
    """
    labels = found.labels
    what = f"{labels.row(*a)} − {labels.row(*b)}, {labels.benchmark(benchmark)}"
    if stands_for not in ("", benchmark):
        what += f" (stands in for {labels.benchmark(stands_for)})"
    interval = found.difference(where, benchmark, a, b)
    if interval is None:
        yield f"{what}: not replayed"
    else:
        margin = gain_margin(found.tau(where, benchmark, b) or 1.0, SIMILAR_SHARE)
        yield Evidence(what=what, direction=direction, interval=interval, margin=margin)


def contrast(
    found: Findings,
    where: Where,
    name: str,
    what: str,
    direction: Direction,
    *,
    against: str = "",
    margin: float = 0.0,
) -> Iterator[Step]:
    """Yields one number over many cells (`taps.analysis.pooled`), the mean over benchmarks."""
    for table in ("contrasts", "depth_contrasts"):
        key = {"contrast": name, "benchmark": MEAN, **({"against": against} if against else {})}
        interval = found.interval(table, where, "estimate", **key)
        if interval is not None:
            yield Evidence(what=what, direction=direction, interval=interval, margin=margin)
            return
    yield f"{what}: not computed"


def above(
    found: Findings, where: Where, row: Row, others: Sequence[Row], *, benchmarks: Sequence[str]
) -> Iterator[Step]:
    """Yields row - other on every benchmark, for each of the others but itself."""
    for benchmark in benchmarks:
        for other in others:
            if other != row:
                yield from compare(found, where, benchmark, row, Direction.GREATER, other)


def above_on_average(found: Findings, where: Where, row: Row, others: Sequence[Row]) -> Iterator[Step]:
    """Yields the difference of means over benchmarks, row - other, for each of the others but itself."""
    yield from above(found, where, row, others, benchmarks=[MEAN])


def matched_benchmarks(found: Findings, where: Where) -> list[tuple[str, Row]]:
    """Returns the benchmarks of a condition that a specialist is matched to, with that specialist's row."""
    held = [(name, found.labels.matched(name)) for name in found.benchmarks(where)]
    return [(name, Row("single", matched)) for name, matched in held if matched is not None]


def every(labels: Labels) -> str:
    """Returns `both specialists` or `every specialist`."""
    return "both specialists" if len(labels.specialists) == 2 else "every specialist"
