"""Can specialists be combined: by averaging weights, by routing, by merging trees? C7 to C14, K1 to K3, K9, K11 on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from taps.analysis.claims.registry import (
    Claim,
    Step,
    Topic,
    above,
    above_on_average,
    asks,
    compare,
    contrast,
    every,
    matched_benchmarks,
    numbered,
)
from taps.analysis.findings import Findings, Where
from taps.analysis.labels import (
    ADAPTIVE,
    DOUBLED,
    MATCHED,
    MEAN,
    MERGER,
    ROUTER,
    Labels,
    Row,
    strategy_and_depth,
)
from taps.analysis.verdicts import Direction, Evidence

Steps = Callable[[Findings, Where], Iterator[Step]]


def _ask(labels: Labels, number: str, name: str, statement: str, finding: str, steps: Steps, **facts: bool) -> Claim:
    topic = Topic.COMPOSITION
    return numbered(labels, number, name, statement=statement, finding=finding, topic=topic, steps=steps, **facts)


# --- averaging -------------------------------------------------------------------------------------------------------


@asks
def averaging(labels: Labels) -> Iterator[Claim]:
    """Yields whether averaged weights are the worst of all, as good as the specialists, and dip in the middle."""
    if "averaged" in labels.roles.drafters or labels.roles.plays_the_paper:
        yield _ask(
            labels,
            "C7",
            "average is worst",
            "Averaging the specialists' weights has the lowest average of all variants",
            "averaging their weights is the worst of all variants",
            _averaged_is_lowest,
            is_primary=True,
        )
    if "averaged" in labels.roles.drafters:
        yield _ask(
            labels,
            "",
            "average as good as specialists",
            f"Averaged weights are as good as {every(labels)} on average",
            f"averaged weights are as good as {every(labels)} on average",
            _averaged_is_as_good,
        )
    if labels.swept_pair or labels.roles.plays_the_paper:
        yield _ask(
            labels,
            "C8",
            "sweep dips",
            "The sweep of the averaging weight dips below the line between the two specialists",
            "the sweep of the averaging weight dips below the line between the two specialists",
            _sweep_dips_in_the_middle,
        )
    yield from _common_start(labels)


def _averaged_is_lowest(found: Findings, where: Where) -> Iterator[Step]:
    """Yields every other variant's mean - the average's."""
    labels = found.labels
    for row in labels.variants:
        if row != labels.averaged:
            yield from compare(found, where, MEAN, row, Direction.GREATER, labels.averaged)


def _averaged_is_as_good(found: Findings, where: Where) -> Iterator[Step]:
    labels = found.labels
    for specialist in labels.specialists:
        yield from compare(found, where, MEAN, labels.averaged, Direction.NOT_WORSE, specialist)


def _sweep_dips_in_the_middle(found: Findings, where: Where) -> Iterator[Step]:
    what = "how far the averages lie below the chord between the two specialists, mean over weights and benchmarks"
    yield from contrast(found, where, "dip", what, Direction.GREATER)


def _common_start(labels: Labels) -> Iterator[Claim]:
    started = [name for name, method in labels.roles.methods.items() if method.common_start]

    def steps(found: Findings, where: Where) -> Iterator[Step]:
        """Yields average - specialist among those that share a start, judged once, under the first family."""
        if where.method != found.families[0].method:
            return
        shared = [Where(where.temperature, name) for name in started]
        if not any(one in found.conditions for one in shared):
            yield "no specialists from one common start were trained"
        for one in shared:
            for specialist in found.labels.specialists if one in found.conditions else ():
                average = found.labels.averaged
                yield from compare(found, one, MEAN, average, Direction.NOT_WORSE, specialist)

    if started or labels.roles.plays_the_paper:
        words = "averaged weights are as good as the specialists when these continue from one common draft model"
        yield _ask(labels, "K9", "average from one start", f"{words[0].upper()}{words[1:]}", words, steps)


# --- routing ---------------------------------------------------------------------------------------------------------


@asks
def routing(labels: Labels) -> Iterator[Claim]:
    """Yields whether routing by confidence beats every specialist, and equals the matched one."""
    if labels.main or labels.roles.plays_the_paper:
        yield _ask(
            labels,
            "C9",
            "routing beats specialists",
            f"Routing by confidence beats {every(labels)} on average",
            "routing by confidence beats each specialist on average",
            _routing_beats_each_specialist,
            is_key=True,
            is_primary=True,
        )
        yield _ask(
            labels,
            "C10",
            "routing equals matched",
            "Routing by confidence equals the matched specialist on each benchmark, not more",
            "routing by confidence is as good as the matched specialist on every benchmark",
            _routing_equals_matched,
        )


def _routing_beats_each_specialist(found: Findings, where: Where) -> Iterator[Step]:
    yield from above_on_average(found, where, found.labels.combined(ROUTER), found.labels.specialists)


def _routing_equals_matched(found: Findings, where: Where) -> Iterator[Step]:
    routed = found.labels.combined(ROUTER)
    for benchmark, matched in matched_benchmarks(found, where):
        yield from compare(found, where, benchmark, routed, Direction.SIMILAR, matched)


# --- merging ---------------------------------------------------------------------------------------------------------


@asks
def merging(labels: Labels) -> Iterator[Claim]:
    """Yields whether merged trees beat routing, the specialists, all variants, and what is left at equal nodes."""
    if not (labels.main or labels.roles.plays_the_paper):
        return
    rows = (
        ("C11", "merging beats routing", "Merged trees beat routing on every benchmark", _merging_beats_routing),
        (
            "C12",
            "merging beats specialists",
            f"Merged trees beat {every(labels)} on every benchmark",
            _beats_specialists,
        ),
        ("C13", "merging is best", "Merged trees have the highest average of all variants", _is_best),
        (
            "C14",
            "merging is best composition",
            "Merged trees are the best of the ways to compose specialists (averaged, routed, merged)",
            _is_best_composition,
        ),
        (
            "K1",
            "merging beats double budget",
            "Merged trees beat the better specialist even when it may verify as many nodes as both trees hold",
            _beats_double_budget,
        ),
        (
            "K2",
            "matched merge beats specialists",
            f"At one drafter's node budget a merged tree still beats {every(labels)} on average",
            _matched_beats_specialists,
        ),
        (
            "K3",
            "adaptive merge improves",
            "Leaning towards the drafter that is winning improves the merged tree at one drafter's budget",
            _adaptive_improves,
        ),
    )
    for number, name, statement, steps in rows:
        yield _ask(labels, number, name, statement, f"{statement[0].lower()}{statement[1:]}", steps)


@asks
def merging_against_all_data(labels: Labels) -> Iterator[Claim]:
    """Yields whether merged specialists beat one drafter of the same data in total, at equal nodes, passes, time."""
    if not (labels.main and labels.roles.all_data):
        return
    one = f"one drafter trained on the same data in total ({labels.drafters(labels.roles.all_data)})"
    rows = (
        (
            "K11",
            "merging beats all data",
            f"At equal nodes, merged trees beat {one}, though they take a draft pass of every specialist",
            _beats_all_data,
        ),
        (
            "K12",
            "doubled merging beats all data",
            f"At twice the nodes, merged trees beat {one}",
            _doubled_beats_all_data,
        ),
        ("K13", "passes", f"At equal nodes and equal draft passes, merged trees beat {one}", _beats_at_equal_passes),
        ("K14", "speed", f"At equal nodes, merged trees decode faster than {one}, on this machine", _is_faster),
    )
    for number, name, statement, steps in rows:
        finding = f"{statement[0].lower()}{statement[1:]}"
        is_first = number == "K11"
        yield _ask(labels, number, name, statement, finding, steps, is_key=is_first, is_primary=is_first)


def _all_data(labels: Labels, strategy: str = "single") -> Row:
    return Row(strategy, labels.roles.all_data or "")


def _beats_all_data(found: Findings, where: Where) -> Iterator[Step]:
    labels = found.labels
    yield from above_on_average(found, where, labels.combined(MATCHED), [_all_data(labels)])


def _doubled_beats_all_data(found: Findings, where: Where) -> Iterator[Step]:
    labels = found.labels
    yield from above_on_average(found, where, labels.combined(MERGER), [_all_data(labels, DOUBLED)])


def _beats_at_equal_passes(found: Findings, where: Where) -> Iterator[Step]:
    labels, held = found.labels, found.at("acceptance_length", where)
    names = sorted(set(held.loc[held["drafters"].eq(labels.main), "strategy"]) - {MATCHED})
    shallow = [name for name in names if strategy_and_depth(name)[0] == MATCHED]
    if not shallow:
        yield "merged trees so shallow that all drafters together take one drafter's passes: not replayed"
    for strategy in shallow:
        yield from above_on_average(found, where, labels.combined(strategy), [_all_data(labels)])


def _is_faster(found: Findings, where: Where) -> Iterator[Step]:
    labels = found.labels
    a, b = labels.combined(MATCHED), _all_data(labels)
    what = f"predicted tokens/s, {labels.row(*a)} − {labels.row(*b)}, mean over benchmarks"
    interval = found.difference(where, MEAN, a, b, table="speed_differences")
    if interval is None:
        yield f"{what}: not measured"
    else:
        yield Evidence(what=what, direction=Direction.GREATER, interval=interval)


def _merging_beats_routing(found: Findings, where: Where) -> Iterator[Step]:
    labels = found.labels
    others = [labels.combined(ROUTER)]
    yield from above(found, where, labels.combined(MERGER), others, benchmarks=found.benchmarks(where))


def _beats_specialists(found: Findings, where: Where) -> Iterator[Step]:
    """Yields merged - specialist, so above the better one, whichever it is."""
    labels = found.labels
    yield from above(found, where, labels.combined(MERGER), labels.specialists, benchmarks=found.benchmarks(where))


def _is_best(found: Findings, where: Where) -> Iterator[Step]:
    yield from above_on_average(found, where, found.labels.combined(MERGER), found.labels.variants)


def _is_best_composition(found: Findings, where: Where) -> Iterator[Step]:
    labels = found.labels
    yield from above_on_average(found, where, labels.combined(MERGER), [labels.averaged, labels.combined(ROUTER)])


def _beats_double_budget(found: Findings, where: Where) -> Iterator[Step]:
    labels = found.labels
    yield from above(found, where, labels.combined(MERGER), labels.doubled, benchmarks=found.benchmarks(where))


def _matched_beats_specialists(found: Findings, where: Where) -> Iterator[Step]:
    yield from above_on_average(found, where, found.labels.combined(MATCHED), found.labels.specialists)


def _adaptive_improves(found: Findings, where: Where) -> Iterator[Step]:
    labels = found.labels
    yield from above_on_average(found, where, labels.combined(ADAPTIVE), [labels.combined(MATCHED)])
