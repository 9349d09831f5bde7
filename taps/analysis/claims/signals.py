"""Claims about entropy, confidence, routing shares and depth: C15 to C21."""

from __future__ import annotations

from collections.abc import Iterator

from taps.analysis import names
from taps.analysis.claims.registry import BY_ENTROPY, ROUTED, ROUTED_TURN, Step, claim, matched_first
from taps.analysis.findings import Findings, Row, Where
from taps.analysis.verdicts import CLEAR_SHARE, Direction, Evidence, Interval


def _signal(found: Findings, where: Where, signal: str, direction: Direction) -> Iterator[Step]:
    """Yields rejected - accepted of a signal for every drafter and benchmark."""
    frame = found.at("node_signals", where)
    frame = frame[frame["signal"] == signal] if not frame.empty else frame
    if frame.empty:
        yield "node statistics were not recorded"
        return
    for drafters, benchmark in frame[["drafters", "benchmark"]].itertuples(index=False, name=None):
        interval = found.interval(
            "node_signals", where, "difference", drafters=drafters, benchmark=benchmark, signal=signal
        )
        what = f"{signal} of rejected − accepted, {names.drafters_title(drafters)}, {names.benchmark_title(benchmark)}"
        if interval is None:
            yield f"{what}: no rejected or no accepted nodes"
        else:
            yield Evidence(what=what, direction=direction, interval=interval)


@claim("C15")
def rejected_entropy_is_higher(found: Findings, where: Where) -> Iterator[Step]:
    """Rejected nodes have a higher entropy, for every drafter and benchmark."""
    yield from _signal(found, where, "entropy", Direction.GREATER)


@claim("C16")
def entropy_is_highest_on_mt_bench(found: Findings, where: Where) -> Iterator[Step]:
    """Every drafter's accepted entropy is higher on MT-Bench than on other benchmarks, and there Math's is highest."""
    frame = found.at("node_signals", where)
    if frame.empty or "mt_bench" not in set(frame["benchmark"]):
        yield "node statistics on MT-Bench were not recorded"
        return

    def accepted(drafters: str, benchmark: str) -> Interval | None:
        key = {"drafters": drafters, "benchmark": benchmark, "signal": "entropy"}
        return found.interval("node_signals", where, "accepted", "accepted_low", "accepted_high", **key)

    drafters = list(dict.fromkeys(frame["drafters"]))
    others = [benchmark for benchmark in found.benchmarks(where) if benchmark != "mt_bench"]
    pairs = [((name, "mt_bench"), (name, benchmark)) for name in drafters for benchmark in others]
    pairs += [((names.MATH, "mt_bench"), (name, "mt_bench")) for name in drafters if name != names.MATH]
    for high, low in pairs:
        what = " − ".join(
            f"{names.drafters_title(name)} on {names.benchmark_title(benchmark)}" for name, benchmark in (high, low)
        )
        one, two = accepted(*high), accepted(*low)
        if one is None or two is None:
            yield f"entropy, {what}: not recorded"
        else:
            yield Evidence(what=f"entropy, {what}", direction=Direction.GREATER, interval=one.minus_independent(two))


@claim("C17")
def accepted_confidence_is_higher(found: Findings, where: Where) -> Iterator[Step]:
    """Accepted nodes have a higher confidence, for every drafter and benchmark."""
    yield from _signal(found, where, "confidence", Direction.LESS)


def _matched_share(found: Findings, where: Where, row: Row, benchmark: str, unit: str) -> Interval | None:
    """Returns how often (percent of `unit`) a router picks the matched drafter."""
    matched, _ = matched_first(benchmark)
    key = {**row._asdict(), "benchmark": benchmark, "drafter": matched.drafters}
    return found.interval("routing_shares", where, f"{unit}_percent", f"{unit}_low", f"{unit}_high", **key)


@claim("C18")
def confidence_picks_the_matched_drafter(found: Findings, where: Where) -> Iterator[Step]:
    """Routing by confidence per answer picks the matched drafter in more than CLEAR_SHARE of the questions."""
    for benchmark in found.benchmarks(where):
        what = f"questions routed to the matched drafter − {CLEAR_SHARE:g} %, {names.benchmark_title(benchmark)}"
        share = _matched_share(found, where, ROUTED_TURN, benchmark, "questions")
        if share is None:
            yield f"{what}: not replayed"
        else:
            yield Evidence(what=what, direction=Direction.GREATER, interval=share.minus(CLEAR_SHARE))


@claim("C19")
def entropy_routes_less_clearly(found: Findings, where: Where) -> Iterator[Step]:
    """On every benchmark confidence picks the matched drafter in more cycles than entropy does."""
    for benchmark in found.benchmarks(where):
        what = f"cycles routed to the matched drafter, confidence − entropy, {names.benchmark_title(benchmark)}"
        one = _matched_share(found, where, ROUTED, benchmark, "cycles")
        two = _matched_share(found, where, BY_ENTROPY, benchmark, "cycles")
        if one is None or two is None:
            yield f"{what}: not replayed"
        else:
            yield Evidence(what=what, direction=Direction.GREATER, interval=one.minus_independent(two))


@claim("C20")
def acceptance_falls_with_depth(found: Findings, where: Where) -> Iterator[Step]:
    """For every trained drafter and benchmark each depth's conditional acceptance is below the one before."""
    frame = found.at("acceptance_by_depth", where)
    frame = frame[frame["benchmark"].ne("mean") & frame["depth"].gt(1)] if not frame.empty else frame
    if frame.empty:
        yield "acceptance by depth was not computed"
    for drafters, benchmark, depth in frame[["drafters", "benchmark", "depth"]].itertuples(index=False, name=None):
        what = (
            f"depth {depth} − depth {depth - 1}, {names.drafters_title(drafters)}, {names.benchmark_title(benchmark)}"
        )
        key = {"drafters": drafters, "benchmark": benchmark, "depth": depth}
        interval = found.interval("acceptance_by_depth", where, "step", "step_low", "step_high", **key)
        if interval is None:
            yield f"{what}: no draft reached it"
        else:
            yield Evidence(what=what, direction=Direction.LESS, interval=interval)


@claim("C21")
def matched_specialist_leads_at_every_depth(found: Findings, where: Where) -> Iterator[Step]:
    """The matched specialist's conditional acceptance leads at every depth; on math it grows from depth 1 to 3."""
    frame = found.at("depth_gap", where)
    if frame.empty:
        yield "both specialists are needed"
    for benchmark, depth in frame[["benchmark", "depth"]].itertuples(index=False, name=None) if len(frame) else ():
        sign = 1 if names.is_math(benchmark) else -1
        title = names.benchmark_title(benchmark)
        for value in ("gap", "growth") if names.is_math(benchmark) and depth == 3 else ("gap",):
            what = f"matched − other specialist at depth {depth}, {title}" + (
                ", minus depth 1" if value == "growth" else ""
            )
            interval = found.interval(
                "depth_gap", where, value, f"{value}_low", f"{value}_high", benchmark=benchmark, depth=depth
            )
            if interval is None:
                yield f"{what}: no draft reached it"
            else:
                yield Evidence(what=what, direction=Direction.GREATER, interval=interval if sign == 1 else -interval)
