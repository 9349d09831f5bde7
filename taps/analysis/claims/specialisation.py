"""Does each specialist win on the benchmarks that are matched to it? C1 to C4, C21."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from taps import published
from taps.analysis.claims.registry import Claim, Step, Topic, asks, compare, numbered
from taps.analysis.findings import Findings, Where
from taps.analysis.labels import Labels, Row
from taps.analysis.verdicts import Direction, Evidence


@asks
def specialists_win(labels: Labels) -> Iterator[Claim]:
    """Yields, for each matched benchmark, whether its specialist is above every other one on it."""
    paper = published.paper()["wins"] if labels.roles.plays_the_paper else {}
    stand_ins = {name for name in labels.roles.benchmarks if labels.published_benchmark(name) in set(paper) - {name}}
    for benchmark, number in paper.items():
        matched = published.paper()["benchmarks"][benchmark]["matched"]
        yield _wins(labels, benchmark, matched, number)
    for benchmark in labels.roles.benchmarks:
        matched = labels.matched(benchmark)
        if matched is not None and benchmark not in paper and benchmark not in stand_ins:
            yield _wins(labels, benchmark, matched, "")


def _wins(labels: Labels, benchmark: str, matched: str, number: str) -> Claim:
    title = labels.benchmark(benchmark)
    return numbered(
        labels,
        number,
        f"{matched} wins on {benchmark}",
        statement=f"The {matched} drafter beats every other specialist on {title}",
        finding=f"the {matched} drafter wins on {title}" + (" or its stand-in" if number in ("C3", "C4") else ""),
        topic=Topic.SPECIALISATION,
        steps=partial(_specialist_wins, benchmark=benchmark, matched=matched),
        is_key=True,
    )


def _specialist_wins(found: Findings, where: Where, *, benchmark: str, matched: str) -> Iterator[Step]:
    """Yields matched - other specialist on a benchmark, or on the one that stands in for it."""
    labels, held = found.labels, found.benchmarks(where)
    stand_ins = [name for name in held if name != benchmark and labels.published_benchmark(name) == benchmark]
    if benchmark not in held:
        suffix = ", another benchmark stands in for it" if stand_ins else ""
        yield f"{labels.benchmark(benchmark)} is not in this study{suffix}"
    for name in [benchmark] if benchmark in held else stand_ins:
        for other in labels.specialists:
            if other.drafters != matched:
                own = Row("single", matched)
                yield from compare(found, where, name, own, Direction.GREATER, other, stands_for=benchmark)


@asks
def matched_specialist_leads_at_every_depth(labels: Labels) -> Iterator[Claim]:
    """Yields whether the matched specialist's conditional acceptance leads at every depth of the tree."""
    if labels.pairs and any(labels.matched(name) for name in labels.roles.benchmarks):
        yield numbered(
            labels,
            "C21",
            "leads at every depth",
            statement="The matched specialist leads at every depth of the draft tree",
            finding="the matched specialist leads at every depth"
            + (", on math by a growing margin" if labels.roles.plays_the_paper else ""),
            topic=Topic.SPECIALISATION,
            steps=_leads_at_every_depth,
        )


def _leads_at_every_depth(found: Findings, where: Where) -> Iterator[Step]:
    labels = found.labels
    grows_for = published.paper()["lead_grows_for"] if labels.roles.plays_the_paper else None
    tables = {pair: found.at(labels.depth_gap(pair), where) for pair in labels.pairs}
    if all(frame.empty for frame in tables.values()):
        yield "both specialists are needed" if len(labels.pairs) == 1 else "two specialists are needed"
        return
    for pair, frame in tables.items():
        for benchmark, depth in frame[["benchmark", "depth"]].itertuples(index=False, name=None) if len(frame) else ():
            matched = labels.matched(benchmark)
            if matched in pair:
                grows = matched == grows_for and depth == 3
                for value in ("gap", "growth") if grows else ("gap",):
                    yield _lead(found, where, pair, benchmark, int(depth), value)


def _lead(found: Findings, where: Where, pair: tuple[str, str], benchmark: str, depth: int, value: str) -> Step:
    labels, matched = found.labels, found.labels.matched(benchmark)
    name = (
        "matched − other specialist"
        if len(labels.pairs) == 1
        else " − ".join(labels.drafters(one) for one in sorted(pair, key=lambda one: one != matched))
    )
    what = f"{name} at depth {depth}, {labels.benchmark(benchmark)}" + (", minus depth 1" if value == "growth" else "")
    interval = found.interval(
        labels.depth_gap(pair), where, value, f"{value}_low", f"{value}_high", benchmark=benchmark, depth=depth
    )
    if interval is None:
        return f"{what}: no draft reached it"
    signed = interval if matched == pair[0] else -interval
    return Evidence(what=what, direction=Direction.GREATER, interval=signed)
