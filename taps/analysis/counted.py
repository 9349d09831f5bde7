"""Cycles and nodes of a replay, counted: rows that no table tells apart become one that says how many they are.

A study of the paper's size has 18 million cycles and as many groups of nodes; what the tables need of them is a few
percent of that. Each file is counted as it is read, so memory holds one file's rows and everybody's counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

WEIGHT = "weight"
_LATER = 2  # stands for every cycle of an answer but its first


def weights(cycles: pd.DataFrame) -> pd.Series:
    """Returns how many cycles each row stands for; one each where nothing was counted."""
    return cycles[WEIGHT] if WEIGHT in cycles else pd.Series(1, index=cycles.index)


def weighted_sums(frame: pd.DataFrame, by: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """Returns the sums of columns over the cycles that the rows of each group of `by` stand for."""
    times = frame[list(columns)].mul(weights(frame), axis=0)
    return times.groupby([frame[name] for name in by], observed=True, sort=True).sum()


def count_cycles(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Returns one row per combination of `columns` with its number of cycles as `weight`.

    `cycle` is 1 for the first cycle of an answer and 2 for any later one.
    """
    later = pc.min_element_wise(table.column("cycle"), pa.scalar(_LATER, table.column("cycle").type))
    table = table.set_column(table.column_names.index("cycle"), "cycle", later).select(list(columns))
    return _grouped(table, columns, [([], "count_all")]).rename_columns([*columns, WEIGHT])


def count_nodes(nodes: pa.Table, cycles: pa.Table, columns: Sequence[str], means: Sequence[str]) -> pa.Table:
    """Returns one row per combination of `columns`, with the number of its nodes as `count` and means over these.

    Args:
        nodes: Rows of a file of nodes: columns, sequence, count, and means as float32.
        cycles: Rows of its cycles: sequence, question.
        columns: `question` among them, which a node has from its sequence.
        means: Columns that are means over a row's `count` nodes; float64 in the result.
    """
    sequence, first = np.unique(cycles.column("sequence").to_numpy(), return_index=True)
    question = cycles.column("question").combine_chunks()
    place = np.searchsorted(sequence, nodes.column("sequence").to_numpy())
    nodes = nodes.append_column("question", question.take(pa.array(first[place])))
    count = nodes.column("count")
    for name in means:
        total = pc.multiply(nodes.column(name).cast(pa.float64()), count.cast(pa.float64()))
        nodes = nodes.set_column(nodes.column_names.index(name), name, total)
    sums = _grouped(nodes, columns, [("count", "sum"), *((name, "sum") for name in means)])
    sums = sums.rename_columns([*columns, "count", *means])
    for name in means:
        mean = pc.divide(sums.column(name), sums.column("count").cast(pa.float64()))
        sums = sums.set_column(sums.column_names.index(name), name, mean)
    return sums


def _grouped(table: pa.Table, columns: Sequence[str], what: list[tuple[object, str]]) -> pa.Table:
    """Returns the aggregates of each group, in the order in which the groups first appear."""
    found = table.group_by(list(columns), use_threads=False).aggregate(what)
    return found.select([*columns, *(name for name in found.column_names if name not in columns)])
