"""Estimates with intervals: acceptance length and its differences, depth, node signals, routing shares, node budgets.

`taps.analysis.measures` defines the quantities, each a ratio of sums over questions; `taps.analysis.intervals` gives
their intervals; here they meet. The frames returned are tidy: keys, an estimate, its interval. `mean` stands for the
mean over benchmarks in which every domain weighs the same (`taps.study.roles`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from taps.analysis import measures
from taps.analysis.counted import weighted_sums
from taps.analysis.intervals import Quantities
from taps.analysis.labels import BY_ENTROPY, MATCHED, MEAN, MERGER, ROUTER, Labels, Row, routers
from taps.analysis.ratios import balanced_weights, ratios, with_means
from taps.analysis.results import ROW
from taps.analysis.shares import clustered_shares, question_shares

KEYS = ["temperature", "method", *ROW[:2], "benchmark", ROW[2]]  # what a row of the acceptance table is
SEED = "training_seed"
_PLACE = ["temperature", "method", "benchmark"]


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
    held = table.groupby(_PLACE[:2], observed=True)["benchmark"]
    weights = held.transform(lambda names: names.map(balanced_weights({name: domains[name] for name in set(names)})))
    weights = weights.astype(float)
    weighted = table.assign(weight=weights, **{name: table[name] * weights for name in others})
    over = weighted.groupby([name for name in KEYS if name != "benchmark"], observed=True)
    means = over[others].sum(min_count=1).div(over["weight"].sum(), axis=0)
    means = means.join(over[["num_cycles", "num_tokens"]].sum()).join(over["seeds"].first())
    return pd.concat([table, means.reset_index().assign(benchmark="mean")], ignore_index=True)


# --- differences -----------------------------------------------------------------------------------------------------


def references(labels: Labels) -> list[Row]:
    """Returns what every other row is compared with: single drafters, the controls, the standing compositions."""
    composed = [labels.combined(name) for name in (ROUTER, BY_ENTROPY, MERGER, MATCHED)] if labels.main else []
    return [*labels.specialists, *labels.mixtures, labels.averaged, *labels.doubled, *composed]


def paired_differences(tau: Quantities, standards: Sequence[Row], *, num_draft_tokens: int) -> pd.DataFrame:
    """Returns tau(a) - tau(b) at one node budget, for every row against each of the standards, each pair once."""
    keys = tau.keys[tau.keys["num_draft_tokens"] == num_draft_tokens]
    pairs: list[tuple[int, int]] = []
    for _, group in keys.groupby(_PLACE, observed=True, sort=True):
        rows = dict(zip(zip(group["strategy"], group["drafters"], strict=True), group.index, strict=True))
        references = {key: rows[key] for key in standards if key in rows}
        order = [*references, *(key for key in rows if key not in references)]
        pairs += [
            (rows[a], rows[b])
            for position, a in enumerate(order)
            for b in references
            if a != b and (a not in references or order.index(b) > position)
        ]
    a, b = _columns(pairs)
    difference = _pair_keys(tau.keys, a, b)[[*_PLACE, "a_strategy", "a_drafters", "b_strategy", "b_drafters"]]
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
    a, b = _columns(found)
    keys = tau.keys.iloc[a].assign(**{f"b_{column}": tau.keys[column].to_numpy()[b]})
    differences = with_domain_means(tau.minus(a, b, keys), labels, f"b_{column}")
    table = differences.frame("difference", p_value="p_value")
    return table.sort_values([*KEYS, f"b_{column}"], ignore_index=True)


def _columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    array = np.array(pairs, dtype=int).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _pair_keys(keys: pd.DataFrame, a: np.ndarray, b: np.ndarray) -> pd.DataFrame:
    one = keys.iloc[a].reset_index(drop=True).rename(columns={name: f"a_{name}" for name in ROW[:2]})
    two = keys.iloc[b].reset_index(drop=True)[ROW[:2]].rename(columns=lambda name: f"b_{name}")
    return pd.concat([one, two], axis=1)


# --- depth -----------------------------------------------------------------------------------------------------------


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
    table = _shares(rates, "acceptance_percent").sort_values(keys, ignore_index=True)
    table["joint_percent"] = (
        100 * (table["acceptance_percent"] / 100).groupby([table[key] for key in KEYS], observed=True).cumprod()
    )
    step = _since(rates, KEYS, lambda depth: depth - 1, "step")
    reached = counts.groupby(keys, observed=True)["num_reached"].sum().reset_index().astype({"benchmark": str})
    return table.merge(step, on=keys, how="left").merge(reached, on=keys).rename(columns={"num_reached": "num_cycles"})


def depth_gap(counts: pd.DataFrame, pair: tuple[str, str]) -> pd.DataFrame:
    """Returns the first drafter's lead over the second at each depth (points), and its growth."""
    rates = depth_rates(counts[counts["drafters"].isin(pair)])
    place = [*_PLACE, "num_draft_tokens", "depth"]
    pairs = []
    for _, group in rates.keys.groupby(place, observed=True, sort=True):
        rows = dict(zip(group["drafters"], group.index, strict=True))
        if len(rows) == 2:
            pairs.append((rows[pair[0]], rows[pair[1]]))
    a, b = _columns(pairs)
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
    a, b = _columns(pairs)
    table = rates.minus(a, b, rates.keys.iloc[a]).frame(name, f"{name}_low", f"{name}_high")
    return table.drop(columns=["num_questions", "num_training_seeds"])


def _shares(percent: Quantities, value: str, low: str = "low", high: str = "high") -> pd.DataFrame:
    """Returns the frame of shares of cycles in percent, whose intervals stay within 0 and 100."""
    lows, highs = clustered_shares(percent.scaled(0.01))
    return percent.frame(value, low, high).assign(**{low: 100 * lows, high: 100 * highs})


# --- nodes, routers, budgets -----------------------------------------------------------------------------------------


def node_signals(nodes: pd.DataFrame, labels: Labels) -> pd.DataFrame:
    """Returns mean entropy (nats) and confidence of accepted and rejected nodes with their paired difference.

    Rejected are the children of the last accepted node. `confidence` is the node's probability given its parent.

    Args:
        nodes: As `results.load_nodes` returns them.
    """
    keys = [*_PLACE, "drafters", "num_draft_tokens"]
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
    rejected, accepted = _columns(pairs)
    table = means.minus(rejected, accepted, means.keys.iloc[rejected][keys]).frame("difference", p_value="p_value")
    single = means.frame("mean")
    for verdict, positions in (("accepted", accepted), ("rejected", rejected)):
        part = single.iloc[positions].reset_index(drop=True)
        table[verdict], table[f"{verdict}_low"], table[f"{verdict}_high"] = part["mean"], part["low"], part["high"]
    return table


def routing_shares(cycles: pd.DataFrame, *, num_draft_tokens: int) -> pd.DataFrame:
    """Returns how often each router at one budget picks each of its drafters: percent of cycles and of questions.

    With one training seed the intervals of the questions' shares are exact.
    """
    shares = _router_votes(cycles, num_draft_tokens=num_draft_tokens)
    identity = [*_ROUTER, "drafters", "drafter"]
    of_cycles = ratios(shares, identity, "picked", "cycles", training_seed=SEED).scaled(100)
    table = _shares(of_cycles, "cycles_percent", "cycles_low", "cycles_high")
    columns = ["questions_percent", "questions_low", "questions_high"]
    if shares[SEED].nunique() > 1:
        of_questions = ratios(shares.assign(one=1), identity, "share_of_questions", "one", training_seed=SEED)
        questions = _shares(of_questions.scaled(100), *columns)[[*identity, *columns]]
    else:
        exact = question_shares(shares, identity, "share_of_questions")
        questions = exact[identity].assign(
            **{name: 100 * exact[part] for name, part in zip(columns, ("share", "low", "high"), strict=True)}
        )
    return table.merge(questions.astype({"benchmark": str}), on=identity).sort_values(identity, ignore_index=True)


_ROUTER = [*_PLACE, "strategy", "num_draft_tokens"]


def _router_votes(cycles: pd.DataFrame, *, num_draft_tokens: int) -> pd.DataFrame:
    """Returns per router, training seed, question and drafter: its share of the cycles, and its vote."""
    routed = cycles[cycles["strategy"].astype(str).isin(routers())]
    routed = routed[routed["num_draft_tokens"] == num_draft_tokens]
    group = [*_ROUTER, SEED, "drafters", "question"]
    shares = measures.routing_shares(routed, by=[*_ROUTER, SEED, "question"])
    sizes = weighted_sums(routed.assign(cycles=1), group, ["cycles"]).reset_index()
    shares = shares.merge(sizes, on=group)
    return shares.assign(picked=shares["share_of_cycles"] * shares["cycles"])


def router_accuracy(
    cycles: pd.DataFrame, labels: Labels, *, num_draft_tokens: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns how well each router finds the matched drafter (percent), and routing by confidence against the others.

    The measure is the mean over domains of the share of questions whose cycles went mostly to the matched drafter. A
    router that always picks the same one has 100 / number of domains. Benchmarks without a matched specialist are left
    out, and routers whose drafters lack it.
    """
    shares = _router_votes(cycles, num_draft_tokens=num_draft_tokens)
    matched = {name: labels.matched(name) for name in map(str, shares["benchmark"].unique())}
    right = shares[shares["drafter"].eq(shares["benchmark"].astype(str).map(matched))]
    columns = [*_ROUTER[:2], *_ROUTER[3:], "drafters"]
    if right.empty:
        numbers = ["low", "high", "num_questions"]
        keys = [*columns[:2], "drafters", "a_strategy", "b_strategy"]
        return pd.DataFrame(columns=[*columns, "accuracy_percent", *numbers]), pd.DataFrame(
            columns=[*keys, "difference", *numbers]
        )
    right = right.assign(benchmark=right["benchmark"].astype(str), one=1)
    found = ratios(right, [*_ROUTER, "drafters"], "share_of_questions", "one", training_seed=SEED)
    means = with_means(found, domains={name: str(matched[name]) for name in set(right["benchmark"])})
    means = means.take(means.keys["benchmark"].eq("mean").to_numpy()).scaled(100)
    pairs = []
    for _, group in means.keys.groupby([*_ROUTER[:2], "drafters", "num_draft_tokens"], observed=True, sort=True):
        rows = dict(zip(group["strategy"], group.index, strict=True))
        pairs += [(rows[ROUTER], other) for name, other in rows.items() if ROUTER in rows and name != ROUTER]
    a, b = _columns(pairs)
    compared = means.keys.iloc[a].drop(columns=["benchmark", "strategy"]).assign(a_strategy=ROUTER)
    compared = compared.assign(b_strategy=means.keys["strategy"].to_numpy()[b])
    differences = means.minus(a, b, compared).frame("difference", p_value="p_value")
    table = _shares(means, "accuracy_percent").drop(columns="benchmark").sort_values(columns, ignore_index=True)
    return table, differences


def node_budgets(cycles: pd.DataFrame) -> pd.DataFrame:
    """Returns what each row spends: verified nodes and drafters run per cycle, target forwards per 100 tokens."""
    columns = ["num_nodes", "num_drafted", "emitted"]
    sums = weighted_sums(cycles.assign(cycles=1), KEYS, [*columns, "cycles"])
    means = sums[columns].div(sums["cycles"], axis=0).reset_index().sort_values(KEYS, ignore_index=True)
    means["target_forwards_per_100_tokens"] = 100 / means["emitted"]
    means["draft_trees_per_100_tokens"] = 100 * means["num_drafted"] / means["emitted"]
    return means.drop(columns="emitted")
