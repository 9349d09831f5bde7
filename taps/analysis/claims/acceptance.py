"""Claims about acceptance length: C1 to C14."""

from __future__ import annotations

from collections.abc import Iterator

from taps.analysis import names
from taps.analysis.claims.registry import (
    AVERAGED,
    CHAT,
    LARGE,
    MATH,
    MERGED,
    ROUTED,
    SMALL,
    VARIANTS,
    Step,
    above_on_every_benchmark,
    claim,
    compare,
    matched_first,
)
from taps.analysis.findings import Findings, Row, Where
from taps.analysis.verdicts import SIMILAR_SHARE, Direction

# --- specialisation and mixtures -------------------------------------------------------------------------------------


def _specialist_wins(found: Findings, where: Where, benchmark: str) -> Iterator[Step]:
    """Yields matched - other specialist on a benchmark, or on the one that stands in for it."""
    held = found.benchmarks(where)
    stand_ins = [name for name in held if names.STAND_INS.get(name) == benchmark]
    title = names.benchmark_title(benchmark)
    if benchmark not in held:
        yield f"{title} is not in this study" + (", another benchmark stands in for it" if stand_ins else "")
    for name in [benchmark] if benchmark in held else stand_ins:
        matched, other = matched_first(name)
        yield from compare(found, where, name, matched, Direction.GREATER, other, stands_for=benchmark)


@claim("C1")
def chat_wins_on_mt_bench(found: Findings, where: Where) -> Iterator[Step]:
    """Chat - Math on MT-Bench is above 0."""
    yield from _specialist_wins(found, where, "mt_bench")


@claim("C2")
def math_wins_on_gsm8k(found: Findings, where: Where) -> Iterator[Step]:
    """Math - Chat on GSM8K is above 0."""
    yield from _specialist_wins(found, where, "gsm8k")


@claim("C3")
def math_wins_on_math_500(found: Findings, where: Where) -> Iterator[Step]:
    """Math - Chat on MATH-500 (or its stand-in) is above 0."""
    yield from _specialist_wins(found, where, "math_500")


@claim("C4")
def math_wins_on_svamp(found: Findings, where: Where) -> Iterator[Step]:
    """Math - Chat on SVAMP (or its stand-in) is above 0."""
    yield from _specialist_wins(found, where, "svamp")


@claim("C5")
def small_mixture_beats_both_specialists(found: Findings, where: Where) -> Iterator[Step]:
    """The small mixture's mean is above both specialists'."""
    for specialist in (MATH, CHAT):
        yield from compare(found, where, "mean", SMALL, Direction.GREATER, specialist)


@claim("C6")
def large_mixture_wins_only_at_zero(found: Findings, where: Where) -> Iterator[Step]:
    """The large mixture's mean is above the small one's at T = 0 and below it at T = 1."""
    direction = Direction.GREATER if where.temperature == 0 else Direction.LESS
    yield from compare(found, where, "mean", LARGE, direction, SMALL)


@claim("C7")
def averaged_is_lowest(found: Findings, where: Where) -> Iterator[Step]:
    """Every other variant's mean is above the half-and-half average's."""
    for row in VARIANTS:
        if row != AVERAGED:
            yield from compare(found, where, "mean", row, Direction.GREATER, AVERAGED)


@claim("C8")
def sweep_dips_in_the_middle(found: Findings, where: Where) -> Iterator[Step]:
    """On every benchmark both ends of the averaging sweep (its extreme weights) are above its middle (0.5)."""
    swept = {name: names.chat_weight(name) for name in set(found.at("acceptance_length", where)["drafters"])}
    weights = {name: weight for name, weight in swept.items() if weight is not None}
    low, high = (pick(weights, key=lambda name: weights[name], default="") for pick in (min, max))
    if not weights or not weights[low] < 0.5 < weights[high]:
        yield "no sweep of the averaging weight with points on both sides of 0.5"
        return
    for benchmark in found.benchmarks(where):
        for end in (low, high):
            yield from compare(found, where, benchmark, Row("single", end), Direction.GREATER, AVERAGED)


# --- composing specialists -------------------------------------------------------------------------------------------


@claim("C9")
def routing_beats_each_specialist(found: Findings, where: Where) -> Iterator[Step]:
    """Routing by confidence has a mean above both specialists'."""
    for specialist in (MATH, CHAT):
        yield from compare(found, where, "mean", ROUTED, Direction.GREATER, specialist)


@claim("C10")
def routing_equals_matched_specialist(found: Findings, where: Where) -> Iterator[Step]:
    """On every benchmark routing by confidence is within the margin of the matched specialist."""
    for benchmark in found.benchmarks(where):
        matched, _ = matched_first(benchmark)
        yield from compare(found, where, benchmark, ROUTED, Direction.SIMILAR, matched, share=SIMILAR_SHARE)


@claim("C11")
def merging_beats_routing(found: Findings, where: Where) -> Iterator[Step]:
    """Merged trees are above routing by confidence on every benchmark."""
    for benchmark in found.benchmarks(where):
        yield from compare(found, where, benchmark, MERGED, Direction.GREATER, ROUTED)


@claim("C12")
def merging_beats_best_specialist(found: Findings, where: Where) -> Iterator[Step]:
    """Merged trees are above both specialists on every benchmark (so above the better one, whichever it is)."""
    yield from above_on_every_benchmark(found, where, MERGED, (MATH, CHAT))


@claim("C13")
def merging_is_best_of_all(found: Findings, where: Where) -> Iterator[Step]:
    """Merged trees have a mean above every other variant's."""
    for row in VARIANTS:
        if row != MERGED:
            yield from compare(found, where, "mean", MERGED, Direction.GREATER, row)


@claim("C14")
def merging_is_best_composition(found: Findings, where: Where) -> Iterator[Step]:
    """Merged trees have a mean above averaged weights' and above routing's."""
    for row in (AVERAGED, ROUTED):
        yield from compare(found, where, "mean", MERGED, Direction.GREATER, row)
