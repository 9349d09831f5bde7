"""Questions that the paper did not ask and its conclusions depend on: the controls K1 to K9."""

from __future__ import annotations

from collections.abc import Iterator

from taps.analysis import names
from taps.analysis.claims.registry import (
    ADAPTIVE,
    AVERAGED,
    BY_ENTROPY,
    BY_HISTORY,
    CALIBRATED,
    CHAT,
    DOUBLE_CHAT,
    DOUBLE_MATH,
    LARGE,
    MATCHED,
    MATH,
    MERGED,
    ROUTED,
    Step,
    above_on_every_benchmark,
    claim,
    compare,
    matched_first,
)
from taps.analysis.findings import Findings, Where
from taps.analysis.verdicts import SIMILAR_SHARE, Direction, Evidence

STATEMENTS = {
    "K1": "Merged trees beat the better specialist even when it may verify as many nodes as both trees hold",
    "K2": "At one drafter's node budget a merged tree still beats both specialists on average",
    "K3": "Leaning towards the drafter that is winning improves the merged tree at one drafter's budget",
    "K4": "Routing by each drafter's history beats routing by confidence",
    "K5": "Routing by confidence beats routing by entropy",
    "K6": "HASS beats EAGLE-2 trained with the same compute",
    "K7": "The large mixture is as good as the matched specialist on every benchmark",
    "K8": "Calibrating confidence improves routing by it",
    "K9": "Averaged weights are as good as the specialists when these continue from one common draft model",
}


@claim("K1")
def merging_beats_double_budget(found: Findings, where: Where) -> Iterator[Step]:
    """Merged trees are above both specialists with twice the nodes, on every benchmark."""
    yield from above_on_every_benchmark(found, where, MERGED, (DOUBLE_MATH, DOUBLE_CHAT))


@claim("K2")
def matched_merge_beats_specialists(found: Findings, where: Where) -> Iterator[Step]:
    """The merged tree of matched budget has a mean above both specialists'."""
    for specialist in (MATH, CHAT):
        yield from compare(found, where, "mean", MATCHED, Direction.GREATER, specialist)


@claim("K3")
def adaptive_merge_improves(found: Findings, where: Where) -> Iterator[Step]:
    """The adaptive merged tree has a mean above the plain one of the same budget."""
    yield from compare(found, where, "mean", ADAPTIVE, Direction.GREATER, MATCHED)


@claim("K4")
def history_beats_confidence(found: Findings, where: Where) -> Iterator[Step]:
    """Routing by history has a mean above routing by confidence."""
    yield from compare(found, where, "mean", BY_HISTORY, Direction.GREATER, ROUTED)


@claim("K5")
def confidence_beats_entropy(found: Findings, where: Where) -> Iterator[Step]:
    """Routing by confidence has a mean above routing by entropy."""
    yield from compare(found, where, "mean", ROUTED, Direction.GREATER, BY_ENTROPY)


@claim("K6")
def hass_wins_at_equal_compute(found: Findings, where: Where) -> Iterator[Step]:
    """Each specialist's mean is higher with HASS than with EAGLE-2 trained for the same compute."""
    if where.method != "hass":
        return  # judged once, under HASS
    for row in (MATH, CHAT):
        what = f"HASS − {names.method_title('eagle2_long')}, {row.title}, mean"
        key = {**row._asdict(), "benchmark": "mean", "b_method": "eagle2_long"}
        interval = found.interval("method_differences", where, "difference", **key)
        if interval is None:
            yield f"{what}: EAGLE-2 was not trained for that compute"
        else:
            yield Evidence(what=what, direction=Direction.GREATER, interval=interval)


@claim("K7")
def large_mixture_is_as_good(found: Findings, where: Where) -> Iterator[Step]:
    """On every benchmark the large mixture is not worse than the matched specialist by more than the margin."""
    for benchmark in found.benchmarks(where):
        matched, _ = matched_first(benchmark)
        yield from compare(found, where, benchmark, LARGE, Direction.NOT_WORSE, matched, share=SIMILAR_SHARE)


@claim("K8")
def calibration_improves_routing(found: Findings, where: Where) -> Iterator[Step]:
    """Routing by calibrated confidence has a mean above routing by raw confidence."""
    yield from compare(found, where, "mean", CALIBRATED, Direction.GREATER, ROUTED)


@claim("K9")
def averaging_works_from_one_start(found: Findings, where: Where) -> Iterator[Step]:
    """Averaging specialists that share a start, the mean is not below either specialist's by more than the margin."""
    if where.method != "eagle2":
        return  # judged once, under the family that the shared specialists belong to
    shared = Where(where.temperature, "eagle2_shared")
    if shared in found.conditions:
        for specialist in (MATH, CHAT):
            yield from compare(found, shared, "mean", AVERAGED, Direction.NOT_WORSE, specialist, share=SIMILAR_SHARE)
    else:
        yield "no specialists from one common start were trained"
