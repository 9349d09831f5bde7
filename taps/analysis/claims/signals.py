"""Which signal should route, and how do acceptance and entropy behave? C15 to C20, K4, K5, K8, K10."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from taps import published
from taps.analysis.claims.registry import (
    Claim,
    Step,
    Topic,
    above_on_average,
    asks,
    contrast,
    matched_benchmarks,
    numbered,
)
from taps.analysis.findings import Findings, Where
from taps.analysis.labels import BY_ENTROPY, BY_HISTORY, HINDSIGHT, ROUTER, Labels
from taps.analysis.verdicts import CLEAR_SHARE, Direction, Evidence, Interval
from taps.decoding.strategy import CALIBRATED

Steps = Callable[[Findings, Where], Iterator[Step]]


def _ask(labels: Labels, number: str, name: str, statement: str, finding: str, steps: Steps) -> Claim:
    topic, key = Topic.SIGNALS, number == "K5"
    return numbered(labels, number, name, statement=statement, finding=finding, topic=topic, steps=steps, is_key=key)


# --- entropy and confidence of accepted and rejected nodes -----------------------------------------------------------


@asks
def accepted_and_rejected(labels: Labels) -> Iterator[Claim]:
    """Yields whether entropy and confidence tell accepted tokens from rejected ones."""
    yield _ask(
        labels,
        "C15",
        "entropy of rejected is higher",
        "Rejected tokens have a higher entropy than accepted ones, for every drafter and benchmark",
        "rejected tokens have the higher entropy",
        partial(_signal, signal="entropy", direction=Direction.GREATER),
    )
    yield _ask(
        labels,
        "C17",
        "confidence of accepted is higher",
        "Accepted tokens have a higher confidence than rejected ones",
        "accepted tokens have the higher confidence",
        partial(_signal, signal="confidence", direction=Direction.LESS),
    )


def _signal(found: Findings, where: Where, *, signal: str, direction: Direction) -> Iterator[Step]:
    """Yields rejected - accepted of a signal for every drafter and benchmark."""
    labels, frame = found.labels, found.at("node_signals", where)
    frame = frame[frame["signal"] == signal] if not frame.empty else frame
    if frame.empty:
        yield "node statistics were not recorded"
        return
    for drafters, benchmark in frame[["drafters", "benchmark"]].itertuples(index=False, name=None):
        interval = found.interval(
            "node_signals", where, "difference", drafters=drafters, benchmark=benchmark, signal=signal
        )
        what = f"{signal} of rejected − accepted, {labels.drafters(drafters)}, {labels.benchmark(benchmark)}"
        if interval is None:
            yield f"{what}: no rejected or no accepted nodes"
        else:
            yield Evidence(what=what, direction=direction, interval=interval)


@asks
def entropy_is_highest_out_of_domain(labels: Labels) -> Iterator[Claim]:
    """Yields the paper's claim that every drafter's entropy is highest on MT-Bench, and the math drafter's most."""
    if labels.roles.plays_the_paper:
        finding = "entropy is highest on MT-Bench, and the math drafter's is extreme there"
        yield _ask(labels, "C16", "", "", finding, _entropy_is_highest)


def _entropy_is_highest(found: Findings, where: Where) -> Iterator[Step]:
    labels, special = found.labels, published.paper()["highest_entropy"]
    highest, drafter = special["benchmark"], special["drafter"]
    frame = found.at("node_signals", where)
    if frame.empty or highest not in set(frame["benchmark"]):
        yield f"node statistics on {labels.benchmark(highest)} were not recorded"
        return

    def accepted(drafters: str, benchmark: str) -> Interval | None:
        key = {"drafters": drafters, "benchmark": benchmark, "signal": "entropy"}
        return found.interval("node_signals", where, "accepted", "accepted_low", "accepted_high", **key)

    drafters = list(dict.fromkeys(frame["drafters"]))
    others = [benchmark for benchmark in found.benchmarks(where) if benchmark != highest]
    pairs = [((name, highest), (name, benchmark)) for name in drafters for benchmark in others]
    pairs += [((drafter, highest), (name, highest)) for name in drafters if name != drafter]
    for high, low in pairs:
        what = " − ".join(
            f"{labels.drafters(name)} on {labels.benchmark(benchmark)}" for name, benchmark in (high, low)
        )
        one, two = accepted(*high), accepted(*low)
        if one is None or two is None:
            yield f"entropy, {what}: not recorded"
        else:
            yield Evidence(what=f"entropy, {what}", direction=Direction.GREATER, interval=one.minus_independent(two))


# --- routers ---------------------------------------------------------------------------------------------------------


@asks
def routers_find_the_matched_drafter(labels: Labels) -> Iterator[Claim]:
    """Yields whether confidence finds the matched drafter: with hindsight, as deployed, and against entropy."""
    if not (labels.main and any(labels.matched(name) for name in labels.roles.benchmarks)):
        return
    often = f"on more than {CLEAR_SHARE:g} % of the prompts"
    yield _ask(
        labels,
        "C18",
        "hindsight picks matched",
        f"A router with hindsight, which compares finished runs, picks the matched drafter {often}",
        f"the offline router, with hindsight, picks the matched drafter {often} of each benchmark",
        _hindsight_picks_the_matched,
    )
    yield _ask(
        labels,
        "K10",
        "confidence picks matched",
        f"Routing by confidence, as deployed, picks the matched drafter {often} of each domain (balanced accuracy)",
        f"the deployed router picks the matched drafter {often} of each domain",
        _deployed_picks_the_matched,
    )
    yield _ask(
        labels,
        "C19",
        "entropy routes less clearly",
        "Routing by entropy finds the matched drafter less often than routing by confidence (balanced accuracy)",
        "confidence finds the matched drafter more often than entropy does",
        _entropy_routes_less_clearly,
    )


def _hindsight_picks_the_matched(found: Findings, where: Where) -> Iterator[Step]:
    labels, row = found.labels, found.labels.combined(HINDSIGHT)
    for benchmark, matched in matched_benchmarks(found, where):
        what = (
            f"questions that hindsight gives to the matched drafter − {CLEAR_SHARE:g} %, {labels.benchmark(benchmark)}"
        )
        key = {**row._asdict(), "benchmark": benchmark, "drafter": matched.drafters}
        bounds = ("questions_percent", "questions_low", "questions_high")
        share = found.interval("routing_shares", where, *bounds, **key)
        if share is None:
            yield f"{what}: not replayed"
        else:
            yield Evidence(what=what, direction=Direction.GREATER, interval=share.minus(CLEAR_SHARE))


def _deployed_picks_the_matched(found: Findings, where: Where) -> Iterator[Step]:
    what = f"balanced accuracy of routing by confidence − {CLEAR_SHARE:g} %"
    accuracy = found.interval("router_accuracy", where, "accuracy_percent", **found.labels.combined(ROUTER)._asdict())
    if accuracy is None:
        yield f"{what}: not replayed"
    else:
        yield Evidence(what=what, direction=Direction.GREATER, interval=accuracy.minus(CLEAR_SHARE))


def _entropy_routes_less_clearly(found: Findings, where: Where) -> Iterator[Step]:
    what = "balanced accuracy, confidence − entropy, points"
    key = {"a_strategy": ROUTER, "b_strategy": BY_ENTROPY, "drafters": found.labels.main}
    interval = found.interval("router_differences", where, "difference", **key)
    if interval is None:
        yield f"{what}: not replayed"
    else:
        yield Evidence(what=what, direction=Direction.GREATER, interval=interval)


@asks
def signals_compared(labels: Labels) -> Iterator[Claim]:
    """Yields whether confidence, entropy, history or calibrated confidence gives the better router."""
    if not labels.main:
        return
    rows = (
        (
            "K4",
            "history beats confidence",
            "Routing by each drafter's history beats routing by confidence",
            BY_HISTORY,
            ROUTER,
        ),
        ("K5", "confidence beats entropy", "Routing by confidence beats routing by entropy", ROUTER, BY_ENTROPY),
        ("K8", "calibration improves", "Calibrating confidence improves routing by it", ROUTER + CALIBRATED, ROUTER),
    )
    for number, name, statement, better, worse in rows:
        finding = f"{statement[0].lower()}{statement[1:]}"
        yield _ask(labels, number, name, statement, finding, partial(_router_beats, better=better, worse=worse))


def _router_beats(found: Findings, where: Where, *, better: str, worse: str) -> Iterator[Step]:
    labels = found.labels
    yield from above_on_average(found, where, labels.combined(better), [labels.combined(worse)])


# --- depth -----------------------------------------------------------------------------------------------------------


@asks
def acceptance_falls_with_depth(labels: Labels) -> Iterator[Claim]:
    """Yields whether conditional acceptance falls with depth, as one slope over drafters and benchmarks."""
    yield _ask(
        labels,
        "C20",
        "falls with depth",
        "Acceptance falls with depth",
        "acceptance falls with depth",
        _falls_with_depth,
    )


def _falls_with_depth(found: Findings, where: Where) -> Iterator[Step]:
    what = "change of conditional acceptance per step of depth, points, mean over drafters and benchmarks"
    yield from contrast(found, where, "depth slope", what, Direction.LESS)
