"""Identifiers of a study as words, in whatever is printed: tables for people, and the list of gaps.

A CSV keeps the identifiers, which scripts look up; Markdown, LaTeX and the page have titles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pandas as pd

from taps.analysis.labels import Labels
from taps.analysis.rendering import Table


def in_words(table: Table, labels: Labels) -> Table:
    """Returns the table with titles in place of identifiers in its columns in print."""
    titles = _titles(labels)
    named = {name: table.shown[name].map(titles[name]) for name in table.shown.columns if name in titles}
    return replace(table, shown=table.shown.assign(**named))


def _titles(labels: Labels) -> dict[str, Callable[[str], str]]:
    """Returns column in print -> identifier -> title."""
    benchmark, method, strategy, drafters = labels.benchmark, labels.method, labels.strategy, labels.drafters

    def either(name: str) -> str:
        """Returns the title of what a row is compared with: a method or a draft model."""
        return method(name) if name in labels.roles.methods else drafters(name)

    def contrast(name: str) -> str:
        """Returns the name of a contrast; those of one drafter end with it."""
        what, comma, drafter = name.partition(", ")
        return f"{what}{comma}{drafters(drafter)}" if comma else name

    return {
        **dict.fromkeys(("benchmark", "b benchmark", "source"), benchmark),
        **dict.fromkeys(("method", "b method"), method),
        **dict.fromkeys(("strategy", "a strategy", "b strategy"), strategy),
        **dict.fromkeys(("drafters", "a drafters", "b drafters", "drafter"), drafters),
        "against": either,
        "contrast": contrast,
    }


def gaps_in_words(gaps: pd.DataFrame, labels: Labels) -> list[str]:
    """Returns one phrase per row of `results.missing`."""
    words = []
    for row in cast(Any, gaps).itertuples():
        where = f"{labels.benchmark(row.benchmark)}, {labels.method(row.method)}, T = {row.temperature:g}"
        what = f"{labels.row(row.strategy, row.drafters)} on " if row.strategy else ""
        seeds = "" if row.seed == -1 else f", training seed {row.training_seed}, seed {row.seed}"
        words.append(f"{what}{where}{seeds} ({row.what})")
    return words
