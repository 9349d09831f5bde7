"""Estimates with intervals: acceptance length and its differences, node signals, node budgets.

`taps.analysis.measures` defines the quantities, each a ratio of sums over questions; `taps.analysis.intervals` gives
their intervals; here they meet. The frames returned are tidy: keys, an estimate, its interval. `mean` stands for the
mean over benchmarks in which every domain weighs the same (`taps.study.roles`). Acceptance by depth is in
`taps.analysis.depths`, what routers choose in `taps.analysis.routing`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from taps.analysis import measures
from taps.analysis.counted import weighted_sums
from taps.analysis.intervals import Quantities
from taps.analysis.labels import BY_ENTROPY, MATCHED, MEAN, MERGER, ROUTER, Labels, Row
from taps.analysis.ratios import balanced_weights, ratios, with_means
from taps.analysis.results import ROW
from taps.analysis.shares import clustered_shares

KEYS = ["temperature", "method", *ROW[:2], "benchmark", ROW[2]]  # what a row of the acceptance table is
SEED = "training_seed"
PLACE = ["temperature", "method", "benchmark"]


def acceptance(cycles: pd.DataFrame, labels: Labels) -> tuple[Quantities, pd.DataFrame]:
    """Returns tau of every row as seen on every question, and the acceptance table with all its definitions."""
    sums = measures.question_sums(cycles, by=[*KEYS, SEED]).reset_index()
    numerator, denominator = measures.DEFINITIONS["tau"](sums)
    tau = with_domain_means(
        ratios(sums.assign(top=numerator, bottom=denominator), KEYS, "top", "bottom", training_seed=SEED), labels
    )
    table = tau.frame("tau", "tau_low", "tau_high").merge(_definitions(cycles, sums, labels), on=KEYS, how="left")
    columns = ["tau", "tau_low", "tau_high", *(name for name in measures.DEFINITIONS if name != "tau")]
    counts = ["num_cycles", "num_tokens", "num_questions", "num_training_seeds", "seeds"]
    return tau, table[[*KEYS, *columns, *counts]].sort_values(KEYS, ignore_index=True)


def with_domain_means(quantities: Quantities, labels: Labels, *more: str) -> Quantities:
    """Returns the quantities with their means over benchmarks, every domain weighing the same.

    Args:
        quantities: Of single benchmarks, no means among them.
        labels: Which know the domain of each benchmark.
        more: Keys beside temperature and method that tell apart conditions which may have different benchmarks.
    """
    domains = _domains(labels, quantities.keys["benchmark"])
    return with_means(quantities, domains=domains, within=["temperature", "method", *more])


def _domains(labels: Labels, benchmarks: pd.Series) -> dict[str, str]:
    return {name: labels.domain(name) for name in map(str, benchmarks.unique())}


def _definitions(cycles: pd.DataFrame, sums: pd.DataFrame, labels: Labels) -> pd.DataFrame:
    """Returns the other definitions of tau (means over training seeds) and the counts per KEYS, means included."""
    others = [name for name in measures.DEFINITIONS if name != "tau"]
    table = sums.groupby(KEYS, observed=True)[["cycles", "tokens"]].sum().rename(columns=lambda name: f"num_{name}")
    for name in others:
        top, bottom = measures.DEFINITIONS[name](sums)
        parts = sums[[*KEYS, SEED]].assign(top=top, bottom=bottom)
        parts = parts.groupby([*KEYS, SEED], observed=True)[["top", "bottom"]].sum()
        values = parts["top"] / parts["bottom"].where(parts["bottom"] > 0)
        table[name] = values.groupby(KEYS, observed=True).mean()
    seeds = cycles[[*KEYS, "seed"]].drop_duplicates().sort_values("seed").groupby(KEYS, observed=True)["seed"]
    table = table.join(seeds.agg(lambda values: "+".join(map(str, values))).rename("seeds")).reset_index()
    table = table.astype({"benchmark": str})
    domains = _domains(labels, table["benchmark"])
    held = table.groupby(PLACE[:2], observed=True)["benchmark"]
    weights = held.transform(lambda names: names.map(balanced_weights({name: domains[name] for name in set(names)})))
    weights = weights.astype(float)
    weighted = table.assign(weight=weights, **{name: table[name] * weights for name in others})
    over = weighted.groupby([name for name in KEYS if name != "benchmark"], observed=True)
    means = over[others].sum(min_count=1).div(over["weight"].sum(), axis=0)
    means = means.join(over[["num_cycles", "num_tokens"]].sum()).join(over["seeds"].first())
    return pd.concat([table, means.reset_index().assign(benchmark="mean")], ignore_index=True)


def references(labels: Labels) -> list[Row]:
    """Returns what every other row is compared with: single drafters, the controls, the standing compositions."""
    composed = [labels.combined(name) for name in (ROUTER, BY_ENTROPY, MERGER, MATCHED)] if labels.main else []
    return [*labels.specialists, *labels.mixtures, labels.averaged, *labels.doubled, *composed]


def paired_differences(tau: Quantities, standards: Sequence[Row], *, num_draft_tokens: int) -> pd.DataFrame:
    """Returns tau(a) - tau(b) at one node budget, for every row against each of the standards, each pair once."""
    keys = tau.keys[tau.keys["num_draft_tokens"] == num_draft_tokens]
    pairs: list[tuple[int, int]] = []
    for _, group in keys.groupby(PLACE, observed=True, sort=True):
        rows = dict(zip(zip(group["strategy"], group["drafters"], strict=True), group.index, strict=True))
        references = {key: rows[key] for key in standards if key in rows}
        order = [*references, *(key for key in rows if key not in references)]
        pairs += [
            (rows[a], rows[b])
            for position, a in enumerate(order)
            for b in references
            if a != b and (a not in references or order.index(b) > position)
        ]
    a, b = columns_of(pairs)
    difference = _pair_keys(tau.keys, a, b)[[*PLACE, "a_strategy", "a_drafters", "b_strategy", "b_drafters"]]
    table = tau.minus(a, b, difference.assign(num_draft_tokens=num_draft_tokens)).frame("difference", p_value="p_value")
    return table.sort_values(list(difference.columns), ignore_index=True)


def differences_between(
    tau: Quantities, labels: Labels, column: str, pairs: list[tuple[object, object]]
) -> pd.DataFrame:
    """Returns tau(a) - tau(b) of the same row under two values of `column` (`method` or `temperature`).

    The first of each pair stands in the column itself, the second in `b_<column>`. Means are over the benchmarks that
    both have.
    """
    others = [name for name in KEYS if name != column]
    found: list[tuple[int, int]] = []
    cells = tau.keys[tau.keys["benchmark"].ne(MEAN)]
    for _, group in cells.groupby(others, observed=True, sort=True):
        rows = dict(zip(group[column], group.index, strict=True))
        found += [(rows[a], rows[b]) for a, b in pairs if a in rows and b in rows]
    a, b = columns_of(found)
    keys = tau.keys.iloc[a].assign(**{f"b_{column}": tau.keys[column].to_numpy()[b]})
    differences = with_domain_means(tau.minus(a, b, keys), labels, f"b_{column}")
    table = differences.frame("difference", p_value="p_value")
    return table.sort_values([*KEYS, f"b_{column}"], ignore_index=True)


def columns_of(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns (first rows, second rows), int [n] each, of n pairs of rows; two empty arrays for none."""
    array = np.array(pairs, dtype=int).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _pair_keys(keys: pd.DataFrame, a: np.ndarray, b: np.ndarray) -> pd.DataFrame:
    one = keys.iloc[a].reset_index(drop=True).rename(columns={name: f"a_{name}" for name in ROW[:2]})
    two = keys.iloc[b].reset_index(drop=True)[ROW[:2]].rename(columns=lambda name: f"b_{name}")
    return pd.concat([one, two], axis=1)


def node_signals(nodes: pd.DataFrame, labels: Labels) -> pd.DataFrame:
    """Returns mean entropy (nats) and confidence of accepted and rejected nodes with their paired difference.

    Rejected are the children of the last accepted node. `confidence` is the node's probability given its parent.

    Args:
        nodes: As `results.load_nodes` returns them.
    """
    keys = [*PLACE, "drafters", "num_draft_tokens"]
    nodes = nodes[~labels.is_sweep(nodes["drafters"])]
    judged = measures.judged_nodes(nodes, by=[*keys, SEED, "question"])
    tables = []
    for signal, column in (("entropy", "entropy"), ("confidence", "conditional_confidence")):
        sums = judged.assign(total=judged[column] * judged["count"])
        means = ratios(sums, [*keys, "verdict"], "total", "count", training_seed=SEED)
        tables.append(_accepted_and_rejected(means, keys).assign(signal=signal))
    return pd.concat(tables, ignore_index=True).sort_values([*keys, "signal"], ignore_index=True)


def _accepted_and_rejected(means: Quantities, keys: list[str]) -> pd.DataFrame:
    pairs = []
    for _, group in means.keys.groupby(keys, observed=True, sort=True):
        rows = dict(zip(group["verdict"], group.index, strict=True))
        if len(rows) == 2:
            pairs.append((rows["rejected"], rows["accepted"]))
    rejected, accepted = columns_of(pairs)
    table = means.minus(rejected, accepted, means.keys.iloc[rejected][keys]).frame("difference", p_value="p_value")
    single = means.frame("mean")
    for verdict, positions in (("accepted", accepted), ("rejected", rejected)):
        part = single.iloc[positions].reset_index(drop=True)
        table[verdict], table[f"{verdict}_low"], table[f"{verdict}_high"] = part["mean"], part["low"], part["high"]
    return table


def node_budgets(cycles: pd.DataFrame) -> pd.DataFrame:
    """Returns what each row spends: verified nodes and drafters run per cycle, target forwards per 100 tokens."""
    columns = ["num_nodes", "num_drafted", "emitted"]
    sums = weighted_sums(cycles.assign(cycles=1), KEYS, [*columns, "cycles"])
    means = sums[columns].div(sums["cycles"], axis=0).reset_index().sort_values(KEYS, ignore_index=True)
    means["target_forwards_per_100_tokens"] = 100 / means["emitted"]
    means["draft_trees_per_100_tokens"] = 100 * means["num_drafted"] / means["emitted"]
    return means.drop(columns="emitted")


def share_frame(percent: Quantities, value: str, low: str = "low", high: str = "high") -> pd.DataFrame:
    """Returns the frame of shares of cycles in percent, whose intervals stay within 0 and 100."""
    lows, highs = clustered_shares(percent.scaled(0.01))
    return percent.frame(value, low, high).assign(**{low: 100 * lows, high: 100 * highs})
