"""Acceptance by depth: what share of the cycles that reached a depth went on, how it changes, who leads where.

Rates are conditional, in percent: of the cycles whose path has d - 1 accepted nodes, those that accepted a d-th.
"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from taps.analysis import measures
from taps.analysis.intervals import Quantities
from taps.analysis.labels import Labels
from taps.analysis.ratios import ratios
from taps.analysis.summaries import KEYS, PLACE, SEED, columns_of, share_frame


def depth_counts(cycles: pd.DataFrame, labels: Labels, *, num_draft_tokens: int) -> pd.DataFrame:
    """Returns num_reached and num_accepted per KEYS, training seed, question and depth; single drafters, no sweep."""
    part = cycles[cycles["strategy"].eq("single") & cycles["num_draft_tokens"].eq(num_draft_tokens)]
    part = part[~labels.is_sweep(part["drafters"])]
    return measures.acceptance_by_depth(part, by=[*KEYS, SEED, "question"])


def depth_rates(counts: pd.DataFrame) -> Quantities:
    """Returns conditional acceptance (percent) per KEYS and depth."""
    return ratios(counts, [*KEYS, "depth"], "num_accepted", "num_reached", training_seed=SEED).scaled(100)


def reached(counts: pd.DataFrame, rates: Quantities) -> pd.Series:
    """Returns the cycles that reached each row of `depth_rates`, in its order."""
    keys = [*KEYS, "depth"]
    total = counts.groupby(keys, observed=True)["num_reached"].sum().reset_index().astype({"benchmark": str})
    return rates.keys.merge(total, on=keys, how="left")["num_reached"]


def acceptance_by_depth(counts: pd.DataFrame) -> pd.DataFrame:
    """Returns conditional acceptance (percent of the cycles that reached a depth) and its change from the depth before.

    `joint_percent` is the product of the conditional rates down to the depth.
    """
    keys = [*KEYS, "depth"]
    rates = depth_rates(counts)
    table = share_frame(rates, "acceptance_percent").sort_values(keys, ignore_index=True)
    table["joint_percent"] = (
        100 * (table["acceptance_percent"] / 100).groupby([table[key] for key in KEYS], observed=True).cumprod()
    )
    step = _since(rates, KEYS, lambda depth: depth - 1, "step")
    reached = counts.groupby(keys, observed=True)["num_reached"].sum().reset_index().astype({"benchmark": str})
    return table.merge(step, on=keys, how="left").merge(reached, on=keys).rename(columns={"num_reached": "num_cycles"})


def depth_gap(counts: pd.DataFrame, pair: tuple[str, str]) -> pd.DataFrame:
    """Returns the first drafter's lead over the second at each depth (points), and its growth."""
    rates = depth_rates(counts[counts["drafters"].isin(pair)])
    place = [*PLACE, "num_draft_tokens", "depth"]
    pairs = []
    for _, group in rates.keys.groupby(place, observed=True, sort=True):
        rows = dict(zip(group["drafters"], group.index, strict=True))
        if len(rows) == 2:
            pairs.append((rows[pair[0]], rows[pair[1]]))
    a, b = columns_of(pairs)
    gaps = rates.minus(a, b, rates.keys.iloc[a][place])
    growth = _since(gaps, place[:-1], lambda _: 1, "growth")
    table = gaps.frame("gap", "gap_low", "gap_high").merge(growth, on=place, how="left")
    return table.sort_values(place, ignore_index=True)


def _since(rates: Quantities, group_by: list[str], before: Callable[[int], int], name: str) -> pd.DataFrame:
    """Returns each depth's rate minus that of the depth `before` it: keys, `name`, `<name>_low`, `<name>_high`."""
    pairs = []
    for _, group in rates.keys.groupby(group_by, observed=True, sort=True):
        rows = dict(zip(group["depth"], group.index, strict=True))
        pairs += [(row, rows[before(depth)]) for depth, row in rows.items() if depth > 1 and before(depth) in rows]
    a, b = columns_of(pairs)
    table = rates.minus(a, b, rates.keys.iloc[a]).frame(name, f"{name}_low", f"{name}_high")
    return table.drop(columns=["num_questions", "num_training_seeds"])
