"""Which signal should route, and how do acceptance and entropy behave? C15 to C20, K4, K5, K8."""

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
    matched_benchmarks,
    numbered,
)
from taps.analysis.findings import Findings, Where
from taps.analysis.labels import BY_ENTROPY, BY_HISTORY, MEAN, PER_ANSWER, ROUTER, Labels, Row
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
    """Yields whether confidence picks the matched drafter, clearly, and more clearly than entropy does."""
    if not (labels.main and any(labels.matched(name) for name in labels.roles.benchmarks)):
        return
    yield _ask(
        labels,
        "C18",
        "confidence picks matched",
        f"Routing by confidence picks the matched drafter on more than {CLEAR_SHARE:g} % of each benchmark's prompts",
        f"confidence picks the matched drafter in more than {CLEAR_SHARE:g} % of the questions everywhere",
        _confidence_picks_the_matched,
    )
    yield _ask(
        labels,
        "C19",
        "entropy routes less clearly",
        "Routing by entropy picks the matched drafter in fewer cycles than routing by confidence",
        "confidence picks the matched drafter in more cycles than entropy does",
        _entropy_routes_less_clearly,
    )


def _matched_share(found: Findings, where: Where, row: Row, benchmark: str, matched: Row, unit: str) -> Interval | None:
    """Returns how often (percent of `unit`) a router picks the matched drafter."""
    key = {**row._asdict(), "benchmark": benchmark, "drafter": matched.drafters}
    return found.interval("routing_shares", where, f"{unit}_percent", f"{unit}_low", f"{unit}_high", **key)


def _confidence_picks_the_matched(found: Findings, where: Where) -> Iterator[Step]:
    labels = found.labels
    for benchmark, matched in matched_benchmarks(found, where):
        what = f"questions routed to the matched drafter − {CLEAR_SHARE:g} %, {labels.benchmark(benchmark)}"
        share = _matched_share(found, where, labels.combined(PER_ANSWER), benchmark, matched, "questions")
        if share is None:
            yield f"{what}: not replayed"
        else:
            yield Evidence(what=what, direction=Direction.GREATER, interval=share.minus(CLEAR_SHARE))


def _entropy_routes_less_clearly(found: Findings, where: Where) -> Iterator[Step]:
    labels = found.labels
    for benchmark, matched in matched_benchmarks(found, where):
        what = f"cycles routed to the matched drafter, confidence − entropy, {labels.benchmark(benchmark)}"
        one = _matched_share(found, where, labels.combined(ROUTER), benchmark, matched, "cycles")
        two = _matched_share(found, where, labels.combined(BY_ENTROPY), benchmark, matched, "cycles")
        if one is None or two is None:
            yield f"{what}: not replayed"
        else:
            yield Evidence(what=what, direction=Direction.GREATER, interval=one.minus_independent(two))


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
    """Yields whether each depth's conditional acceptance is below the one before, for every drafter and benchmark."""
    yield _ask(
        labels,
        "C20",
        "falls with depth",
        "Acceptance falls with every step of depth",
        "acceptance falls with every step of depth",
        _falls_with_depth,
    )


def _falls_with_depth(found: Findings, where: Where) -> Iterator[Step]:
    labels, frame = found.labels, found.at("acceptance_by_depth", where)
    frame = frame[frame["benchmark"].ne(MEAN) & frame["depth"].gt(1)] if not frame.empty else frame
    if frame.empty:
        yield "acceptance by depth was not computed"
    for drafters, benchmark, depth in frame[["drafters", "benchmark", "depth"]].itertuples(index=False, name=None):
        what = f"depth {depth} − depth {depth - 1}, {labels.drafters(drafters)}, {labels.benchmark(benchmark)}"
        key = {"drafters": drafters, "benchmark": benchmark, "depth": depth}
        interval = found.interval("acceptance_by_depth", where, "step", "step_low", "step_high", **key)
        if interval is None:
            yield f"{what}: no draft reached it"
        else:
            yield Evidence(what=what, direction=Direction.LESS, interval=interval)
