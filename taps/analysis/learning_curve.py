"""How the study's findings change as draft models get better: the same drafters trained on more and more data.

The methods of the curve (`roles.curve` of the config, least data first) train the same drafters on growing parts of the
same corpora. Each finding is one number per method, over the benchmarks that have a matched specialist and that all of
these methods were evaluated on, every domain weighing the same:

    mixture            acceptance length of the drafter of all specialists' data
    specialisation     matched specialist - mean of the other specialists
    averaging          averaged weights - matched specialist
    routing            routing by confidence - matched specialist
    history            routing by history - routing by confidence
    merging            merged trees at one drafter's nodes - the drafter of all specialists' data

and its change from the first method to the last, whose sign says whether the finding grows towards larger studies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import pandas as pd

from taps.analysis.contrasts import Weights, difference, mean, weighted
from taps.analysis.intervals import Quantities
from taps.analysis.labels import BY_HISTORY, MATCHED, ROUTER, Labels, Row
from taps.analysis.ratios import balanced_weights

COLUMNS = ["temperature", "finding", "method", "since"]
WORDS = (
    "`mixture`: acceptance length of the drafter of all specialists' data. `specialisation`: matched specialist minus "
    "the mean of the others. `averaging`, `routing`: averaged weights and routing by confidence minus the matched "
    "specialist. `history`: routing by history minus by confidence. `merging`: merged trees at one drafter's nodes "
    "minus the drafter of all data. Means over the benchmarks with a matched specialist, domains weighing the same. "
    "Rows with `since` hold the change from that method."
)
Cell = Mapping[Row, int]  # row -> its place among the quantities


def _mixture(rows: Cell, labels: Labels, matched: str) -> Weights:
    return {rows[Row("single", labels.roles.all_data or "")]: 1.0}


def _specialisation(rows: Cell, labels: Labels, matched: str) -> Weights:
    others = [rows[Row("single", name)] for name in labels.roles.specialists if name != matched]
    return difference({rows[Row("single", matched)]: 1.0}, mean(others))


def _minus_matched(row: Callable[[Labels], Row]) -> Callable[[Cell, Labels, str], Weights]:
    return lambda rows, labels, matched: difference({rows[row(labels)]: 1.0}, {rows[Row("single", matched)]: 1.0})


def _history(rows: Cell, labels: Labels, matched: str) -> Weights:
    return difference({rows[labels.combined(BY_HISTORY)]: 1.0}, {rows[labels.combined(ROUTER)]: 1.0})


def _merging(rows: Cell, labels: Labels, matched: str) -> Weights:
    return difference({rows[labels.combined(MATCHED)]: 1.0}, _mixture(rows, labels, matched))


FINDINGS: Mapping[str, Callable[[Cell, Labels, str], Weights]] = {
    "mixture": _mixture,
    "specialisation": _specialisation,
    "averaging": _minus_matched(lambda labels: labels.averaged),
    "routing": _minus_matched(lambda labels: labels.combined(ROUTER)),
    "history": _history,
    "merging": _merging,
}
"""Finding -> its weights on one benchmark: (rows of the benchmark, labels, matched specialist) -> row -> weight."""


def learning_curve(tau: Quantities, labels: Labels, *, num_draft_tokens: int) -> pd.DataFrame:
    """Returns COLUMNS, estimate, interval and p value: every finding per method of the curve, and its changes.

    Args:
        tau: As `summaries.acceptance` returns it.
        labels: Who plays which part.
        num_draft_tokens: The budget that is looked at.
    """
    keys = tau.keys[tau.keys["num_draft_tokens"].eq(num_draft_tokens) & tau.keys["method"].isin(labels.roles.curve)]
    cells: dict[tuple[float, str, str], dict[Row, int]] = {}
    for row in cast(Any, keys).itertuples():
        cell = cells.setdefault((float(row.temperature), str(row.method), str(row.benchmark)), {})
        cell[Row(str(row.strategy), str(row.drafters))] = int(row.Index)
    found = [
        item for temperature in sorted({key[0] for key in cells}) for item in _findings(cells, temperature, labels)
    ]
    table = pd.DataFrame([item[:-1] for item in found], columns=COLUMNS)
    if not found:
        numbers = ("estimate", "low", "high", "num_questions", "num_training_seeds", "p_value")
        return table.assign(**dict.fromkeys(numbers, 0.0))
    return tau.combined([item[-1] for item in found], table).frame("estimate", p_value="p_value")


def _findings(
    cells: Mapping[tuple[float, str, str], Cell], temperature: float, labels: Labels
) -> Iterator[tuple[float, str, str, str, Weights]]:
    """Yields a row's keys and weights."""
    methods = [name for name in labels.roles.curve if any(key[:2] == (temperature, name) for key in cells)]
    benchmarks = [
        name for name in labels.roles.benchmarks
        if labels.matched(name) and all((temperature, method, name) in cells for method in methods)
    ]  # fmt: skip
    shares = balanced_weights({name: str(labels.matched(name)) for name in benchmarks})
    for finding, weights_of in FINDINGS.items():
        curve: dict[str, Weights] = {}
        for method in methods:
            try:
                parts = [
                    (shares[name], weights_of(cells[temperature, method, name], labels, str(labels.matched(name))))
                    for name in benchmarks
                ]
            except KeyError:  # a row that this method was not replayed with
                continue
            curve[method] = weighted(parts)
        for method, weights in curve.items():
            if weights:
                yield temperature, finding, method, "", weights
        if len(curve) > 1:
            first, last = next(iter(curve)), list(curve)[-1]
            yield temperature, finding, last, first, difference(curve[last], curve[first])
