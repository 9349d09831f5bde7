"""Every row of the study, wide, and what a reader needs to compare any two of them: sums per question.

The page shows the rows behind a filter, and its comparison tool computes differences with intervals from the sums, as
`taps.analysis.intervals` does (`templates/compare.js`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from taps import published
from taps.analysis import measures
from taps.analysis.distributions import MOST_DEGREES, t_quantile
from taps.analysis.labels import MEAN, Labels, Row, published_variant
from taps.analysis.rendering import format_interval, format_number
from taps.analysis.sample import INTERVAL, Sample
from taps.analysis.summaries import KEYS, SEED
from taps.analysis.tables import TAU

_QUANTILES = 401  # of Student's t, linear in 1 / degrees: close enough for four decimals of an interval
_PAPER = "`paper` is the published cell: another target of 8B parameters, other corpora. "
_ROW = [name for name in KEYS if name != "benchmark"]


def every_row(sample: Sample, acceptance: pd.DataFrame) -> dict[str, Any]:
    """Returns plain data: a `caption`, `benchmarks`, `rows`, a `pool` of sums, and Student's `quantiles`.

    A row has its words, `cells` (benchmark -> acceptance length in print), `published` (the same, the paper's), and
    `sums`: benchmark -> for each training seed a pair of places in `pool`, emitted tokens and cycles per question, null
    for a seed that the row has not. All rows of a benchmark count its questions in the same order. Quantiles are those
    of the 95 % interval at 1 / degrees of freedom from 0 to 1, equally spaced.

    Args:
        sample: What was replayed.
        acceptance: The table of acceptance lengths.
    """
    labels = sample.labels
    sums = _sums(sample)
    held: dict[Any, pd.DataFrame] = {
        key: part.set_index("benchmark") for key, part in acceptance.groupby(_ROW, sort=False)
    }
    order = sorted(held, key=lambda key: (not _is_standing(labels, sample, key), *_place(labels, key)))
    names = labels.benchmarks(set(acceptance["benchmark"]) - {MEAN})
    inverse = np.linspace(0.0, 1.0, _QUANTILES).clip(1 / MOST_DEGREES)
    return {
        "caption": f"{TAU} {INTERVAL} {_PAPER if labels.roles.plays_the_paper else ''}`mean` is the mean over "
        f"benchmarks, every domain weighing the same. {sample.words()}",
        "benchmarks": [
            {"name": name, "title": labels.benchmark(name), "domain": labels.domain(name)} for name in names
        ],
        "rows": [_row(sample, key, held[key], sums.get(key, {})) for key in order],
        "pool": sums.pool,
        "quantiles": [round(float(value), 6) for value in t_quantile(1 / inverse)],
    }


def _row(sample: Sample, key: Sequence[Any], part: pd.DataFrame, sums: dict[str, Any]) -> dict[str, Any]:
    temperature, method, strategy, drafters, nodes = key
    labels, row = sample.labels, Row(strategy, drafters)
    columns = part[["tau", "tau_low", "tau_high"]].itertuples(name=None)
    numbers = {str(name): (float(tau), float(low), float(high)) for name, tau, low, high in columns}
    variant = published_variant(row) if nodes == sample.num_draft_tokens and labels.roles.plays_the_paper else None
    printed = {name: labels.published_benchmark(name) for name in numbers if name != MEAN}
    found: dict[str, str] = {}
    for name, other in printed.items() if variant else ():
        if (value := published.tau(temperature, method, variant or "", other)) is not None:
            found[name] = format_number(value) + ("" if other == name else f", {labels.benchmark(other)}")
    if variant and MEAN in numbers:
        value = published.balanced_tau(temperature, method, variant, list(printed.values()))
        found |= {} if value is None else {MEAN: format_number(value)}
    return {
        "temperature": f"{temperature:g}",
        "family": labels.method(method),
        "variant": labels.row(*row),
        "strategy": labels.strategy(strategy) if strategy != "single" else "one drafter",
        "drafters": labels.drafters(drafters),
        "nodes": int(nodes),
        "standing": _is_standing(labels, sample, key),
        "cells": {name: format_interval(*values) for name, values in numbers.items()},
        "published": found,
        "sums": sums,
    }


def _is_standing(labels: Labels, sample: Sample, key: Sequence[Any]) -> bool:
    *_, strategy, drafters, nodes = key
    return Row(strategy, drafters) in labels.variants and nodes == sample.num_draft_tokens


def _place(labels: Labels, key: Sequence[Any]) -> tuple[Any, ...]:
    temperature, method, strategy, drafters, nodes = key
    methods = list(labels.roles.methods)
    place = methods.index(method) if method in methods else len(methods)
    return (temperature, place, method, *labels.row_order(strategy, drafters), nodes)


class _Sums(dict[tuple[Any, ...], dict[str, list[list[int] | None]]]):
    """Row -> benchmark -> per training seed the places of its two vectors in `pool`."""

    def __init__(self) -> None:
        super().__init__()
        self.pool: list[list[int]] = []
        self._places: dict[tuple[int, ...], int] = {}

    def place(self, vector: np.ndarray) -> int:
        """Returns where a vector stands; equal ones, such as the tokens of one text, are kept once."""
        key = tuple(int(value) for value in vector)
        if key not in self._places:
            self._places[key] = len(self.pool)
            self.pool.append(list(key))
        return self._places[key]


def _sums(sample: Sample) -> _Sums:
    sums = measures.question_sums(sample.cycles, by=[*KEYS, SEED]).reset_index()
    sums = sums.assign(**{name: sums[name].astype(str) for name in ("benchmark", "question")})
    seeds = sorted(sums[SEED].unique())
    questions = {name: sorted(part["question"].unique()) for name, part in sums.groupby("benchmark", sort=False)}
    found = _Sums()
    grouped: Any = sums.groupby([*_ROW, "benchmark", SEED], observed=True, sort=True)
    for (*key, benchmark, seed), part in grouped:
        own = part.set_index("question")[["tokens", "cycles"]].reindex(questions[benchmark], fill_value=0)
        of_seeds = found.setdefault(tuple(key), {}).setdefault(benchmark, [None] * len(seeds))
        of_seeds[seeds.index(seed)] = [found.place(own[name].to_numpy()) for name in ("tokens", "cycles")]
    return found
