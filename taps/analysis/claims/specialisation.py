"""Does each specialist win on the benchmarks that are matched to it? C1 to C4, C21, K15, K16."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from taps import published
from taps.analysis.claims.registry import Claim, Step, Topic, asks, compare, contrast, numbered
from taps.analysis.findings import Findings, Where
from taps.analysis.labels import Labels, Row
from taps.analysis.verdicts import Direction


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
    title, drafter = labels.benchmark(benchmark), labels.drafters(matched)
    stand_ins = [name for name in labels.roles.benchmarks if labels.published_benchmark(name) == benchmark]
    if stand_ins and benchmark not in stand_ins:
        title += f" ({' and '.join(map(labels.benchmark, stand_ins))} in its place)"
    return numbered(
        labels,
        number,
        f"{matched} wins on {benchmark}",
        statement=f"The {drafter} drafter beats every other specialist on {title}",
        finding=f"the {drafter} drafter wins on {title}",
        topic=Topic.SPECIALISATION,
        steps=partial(_specialist_wins, benchmark=benchmark, matched=matched),
        is_key=True,
        is_primary=True,
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
    """Yields whether the matched specialist's conditional acceptance leads, as one number over depths."""
    if labels.pairs and any(labels.matched(name) for name in labels.roles.benchmarks):
        yield numbered(
            labels,
            "C21",
            "leads at every depth",
            statement="The matched specialist's acceptance leads over the depths of the draft tree",
            finding="the matched specialist leads over the depths"
            + (", on math by a growing margin" if labels.roles.plays_the_paper else ""),
            topic=Topic.SPECIALISATION,
            steps=_leads_at_every_depth,
        )


def _leads_at_every_depth(found: Findings, where: Where) -> Iterator[Step]:
    labels = found.labels
    what = "matched − other specialist, points of acceptance, mean over depths and benchmarks"
    yield from contrast(found, where, "lead", what, Direction.GREATER)
    if labels.roles.plays_the_paper:
        grows_for = published.paper()["lead_grows_for"]
        what = f"change of that lead per step of depth, benchmarks of the {grows_for} specialist"
        yield from contrast(found, where, f"lead slope, {grows_for}", what, Direction.GREATER)


@asks
def words_matter_more_than_the_domain(labels: Labels) -> Iterator[Claim]:
    """Yields whether learning the target's own answers helps, and whether it helps more than the right domain."""
    for method in labels.roles.own_answers:
        for against in labels.roles.methods[method].compared_with:
            rows = (
                (
                    "K15",
                    "own answers help",
                    "own answers",
                    "Training on the target's own answers to the same prompts beats training on the corpus's answers",
                ),
                (
                    "K16",
                    "words before domain",
                    "own answers − domain",
                    "The target's own words gain more than the matched domain does",
                ),
            )
            for number, name, wanted, statement in rows:
                yield numbered(
                    labels,
                    number if method == labels.roles.own_answers[0] else "",
                    f"{name}, {method}",
                    statement=statement,
                    finding=f"{statement[0].lower()}{statement[1:]}",
                    topic=Topic.SPECIALISATION,
                    steps=partial(_own_answers, method=method, against=against, wanted=wanted),
                )


def _own_answers(found: Findings, where: Where, *, method: str, against: str, wanted: str) -> Iterator[Step]:
    if where.method != against:
        return  # judged once, under the method that it repeats
    what = f"{wanted}, matched specialists on their benchmarks"
    other = Where(where.temperature, method)
    if other in found.conditions:
        yield from contrast(found, other, wanted, what, Direction.GREATER, against=against)
