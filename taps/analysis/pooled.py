"""One number where a claim speaks of many cells: a slope, a dip, a mean over drafters and benchmarks; with interval.

"Acceptance falls with every step of depth" is 60 comparisons cell by cell, of which some are undecided by construction;
as one slope it is one comparison. `taps.analysis.contrasts` has the weights, this module says of what.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import pandas as pd

from taps.analysis.contrasts import Weights, difference, dip_below_chord, mean, pooled, slope, weighted
from taps.analysis.intervals import Quantities
from taps.analysis.labels import MEAN, Labels, Row
from taps.analysis.ratios import balanced_weights
from taps.analysis.verdicts import FEWEST_QUESTIONS

WORDS = (
    "`dip`: how far the sweep of the averaging weight lies below the chord between the two specialists. `temperature`: "
    "tau at this temperature minus tau at 0, mean over the standing rows. `family`: tau of this method minus that of "
    "`against`, mean over the standing rows; `specialists`: over the specialists alone. `own answers`: the matched "
    "specialist trained on the target's own answers minus the one trained on the corpus's; `domain`: the latter minus "
    "the other specialists; both on the benchmarks with a matched specialist."
)
DEPTH_WORDS = (
    "Of conditional acceptance, in points. `depth slope`: its change per step of depth, mean over single drafters and "
    "benchmarks, depths counting by their cycles. `lead`: the matched specialist's minus that of `against`, mean over "
    "depths; `lead slope`: its change per step of depth, for each specialist over the benchmarks matched to it."
)
COLUMNS = ["contrast", "temperature", "method", "benchmark", "against"]
_DEPTHS = 2  # a slope needs two


class Contrast(NamedTuple):
    """One row of the table: what it is, and its weights over the rows of some quantities."""

    contrast: str
    temperature: float
    method: str
    benchmark: str
    against: str
    weights: Weights


def of_acceptance(tau: Quantities, labels: Labels, *, num_draft_tokens: int) -> pd.DataFrame:
    """Returns the contrasts of acceptance lengths: COLUMNS, estimate, interval and p value.

    Args:
        tau: As `summaries.acceptance` returns it.
        labels: Who plays which part.
        num_draft_tokens: The budget that is looked at.
    """
    keys = tau.keys[tau.keys["num_draft_tokens"].eq(num_draft_tokens)]
    rows: dict[tuple[float, str, str], dict[Row, int]] = {}
    for row in cast(Any, keys).itertuples():
        cell = rows.setdefault((float(row.temperature), str(row.method), str(row.benchmark)), {})
        cell[Row(str(row.strategy), str(row.drafters))] = int(row.Index)
    found = [*_dips(rows, labels), *_temperatures(rows, labels), *_families(rows, labels), *_own_answers(rows, labels)]
    return _frame(tau, found)


Cells = Mapping[tuple[float, str, str], Mapping[Row, int]]


def _dips(cells: Cells, labels: Labels) -> Iterator[Contrast]:
    if labels.swept_pair is None:
        return
    weights = dict(zip(labels.swept_pair, (0.0, 1.0), strict=True))
    weights |= {name: weight for name in labels.roles.drafters if (weight := labels.weight(name)) is not None}
    for (temperature, method, benchmark), rows in cells.items():
        held = {
            weights[row.drafters]: at
            for row, at in rows.items()
            if row == Row("single", row.drafters) and row.drafters in weights
        }
        if len(held) > 2 and {0.0, 1.0} <= held.keys():
            points = sorted(held)
            found = dip_below_chord([held[point] for point in points], points)
            yield Contrast("dip", temperature, method, benchmark, "", found)


def _temperatures(cells: Cells, labels: Labels) -> Iterator[Contrast]:
    found = []
    for (temperature, method, benchmark), rows in cells.items():
        others = cells.get((0.0, method, benchmark), {})
        if temperature != 0 and benchmark != MEAN and (weights := _change(rows, others, labels.variants)):
            found.append(Contrast("temperature", temperature, method, benchmark, "", weights))
    yield from _with_means(found, labels)


def _families(cells: Cells, labels: Labels) -> Iterator[Contrast]:
    found = []
    for (temperature, method, benchmark), rows in cells.items():
        if benchmark == MEAN:
            continue
        compared = labels.roles.methods[method].compared_with if method in labels.roles.methods else []
        for against in compared:
            others = cells.get((temperature, against, benchmark), {})
            for name, standing in (("family", labels.variants), ("specialists", labels.specialists)):
                if weights := _change(rows, others, standing):
                    found.append(Contrast(name, temperature, method, benchmark, against, weights))
    yield from _with_means(found, labels)


def _change(rows: Mapping[Row, int], others: Mapping[Row, int], standing: Sequence[Row]) -> Weights:
    """Returns the mean change of the standing rows that both have; nothing where there is none."""
    shared = [row for row in standing if row in rows and row in others]
    return pooled([difference({rows[row]: 1.0}, {others[row]: 1.0}) for row in shared]) if shared else {}


def _with_means(found: Sequence[Contrast], labels: Labels) -> Iterator[Contrast]:
    """Yields contrasts and their means over the benchmarks that each is held on, domains weighing the same."""
    yield from found
    groups: dict[tuple[str, float, str, str], dict[str, Weights]] = {}
    for item in found:
        key = (item.contrast, item.temperature, item.method, item.against)
        groups.setdefault(key, {})[item.benchmark] = item.weights
    for (contrast, temperature, method, against), parts in groups.items():
        if len(parts) > 1:
            shares = balanced_weights({name: labels.domain(name) for name in parts})
            weights = weighted([(shares[name], part) for name, part in parts.items()])
            yield Contrast(contrast, temperature, method, MEAN, against, weights)


def _own_answers(cells: Cells, labels: Labels) -> Iterator[Contrast]:
    for method in labels.roles.own_answers:
        for against in labels.roles.methods[method].compared_with:
            for temperature in sorted({key[0] for key in cells if key[1] == method}):
                words, domains = {}, {}
                for benchmark in labels.roles.benchmarks:
                    matched = labels.matched(benchmark)
                    own, base = (cells.get((temperature, name, benchmark), {}) for name in (method, against))
                    rows = {name: Row("single", name) for name in labels.roles.specialists}
                    if matched is None or rows[matched] not in own or not set(rows.values()) <= base.keys():
                        continue
                    learned = {base[rows[matched]]: 1.0}
                    others = mean([base[row] for name, row in rows.items() if name != matched])
                    words[benchmark] = difference({own[rows[matched]]: 1.0}, learned)
                    domains[benchmark] = difference(learned, others)
                if words:
                    shares = balanced_weights({name: str(labels.matched(name)) for name in words})
                    one, two = (weighted([(shares[name], part[name]) for name in part]) for part in (words, domains))
                    yield Contrast("own answers", temperature, method, MEAN, against, one)
                    yield Contrast("domain", temperature, method, MEAN, against, two)
                    yield Contrast("own answers − domain", temperature, method, MEAN, against, difference(one, two))


def of_depth(rates: Quantities, reached: pd.Series, labels: Labels) -> pd.DataFrame:
    """Returns the contrasts of conditional acceptance by depth, as `of_acceptance` does.

    Args:
        rates: Percent per KEYS and depth (`depths.depth_rates`).
        reached: Cycles that reached each of its rows: how much a depth counts in a slope.
        labels: Who plays which part.
    """
    curves: dict[tuple[float, str, str], dict[str, dict[int, int]]] = {}
    enough = (
        rates.num_questions.sum(axis=1) >= FEWEST_QUESTIONS
    )  # a depth that few reach has an interval of its own kind
    for row in cast(Any, rates.keys[enough]).itertuples():
        cell = curves.setdefault((float(row.temperature), str(row.method), str(row.benchmark)), {})
        cell.setdefault(str(row.drafters), {})[int(row.depth)] = int(row.Index)
    found = [*_falls(curves, reached), *_leads(curves, reached, labels)]
    return _frame(rates, [*found, *_over_benchmarks(found, labels)])


Curves = Mapping[tuple[float, str, str], Mapping[str, Mapping[int, int]]]


def _falls(curves: Curves, reached: pd.Series) -> Iterator[Contrast]:
    for place, drafters in curves.items():
        slopes = [_slope(curve, reached) for curve in drafters.values() if len(curve) >= _DEPTHS]
        if slopes:
            yield Contrast("depth slope", *place, "", pooled(slopes))


def _leads(curves: Curves, reached: pd.Series, labels: Labels) -> Iterator[Contrast]:
    for place, drafters in curves.items():
        matched = labels.matched(place[2])
        for other in labels.roles.specialists if matched in drafters else ():
            if matched is None or other == matched or other not in drafters:
                continue
            one, two = drafters[matched], drafters[other]
            depths = sorted(one.keys() & two.keys())
            gaps = [difference({one[depth]: 1.0}, {two[depth]: 1.0}) for depth in depths]
            yield Contrast("lead", *place, other, pooled(gaps))
            if len(depths) >= _DEPTHS:
                importance = [float(min(reached.iloc[one[depth]], reached.iloc[two[depth]])) for depth in depths]
                slopes = (slope([curve[depth] for depth in depths], depths, importance) for curve in (one, two))
                yield Contrast("lead slope", *place, other, difference(*slopes))


def _slope(curve: Mapping[int, int], reached: pd.Series) -> Weights:
    depths = sorted(curve)
    rows = [curve[depth] for depth in depths]
    return slope(rows, depths, [float(reached.iloc[row]) for row in rows])


def _over_benchmarks(found: list[Contrast], labels: Labels) -> Iterator[Contrast]:
    """Yields each contrast's mean over benchmarks and, for leads, over the other specialists; also per specialist."""
    groups: dict[tuple[str, float, str], list[Weights]] = {}
    for item in found:
        groups.setdefault(item[:3], []).append(item.weights)
        if item.contrast == "lead slope":
            groups.setdefault((f"lead slope, {labels.matched(item.benchmark)}", *item[1:3]), []).append(item.weights)
    for (contrast, temperature, method), weights in groups.items():
        yield Contrast(contrast, temperature, method, MEAN, "", pooled(weights))


def _frame(quantities: Quantities, contrasts: list[Contrast]) -> pd.DataFrame:
    keys = pd.DataFrame([item[:-1] for item in contrasts], columns=COLUMNS)
    if not contrasts:
        numbers = ("estimate", "low", "high", "num_questions", "num_training_seeds", "p_value")
        return keys.assign(**dict.fromkeys(numbers, 0.0))
    return quantities.combined([item.weights for item in contrasts], keys).frame("estimate", p_value="p_value")
