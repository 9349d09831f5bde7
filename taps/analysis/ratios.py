"""Ratios of sums over questions and their means over benchmarks, as `taps.analysis.intervals.Quantities`.

Shape letters: R quantities, S training seeds, Q questions of all benchmarks one behind another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from taps.analysis.intervals import Quantities, fewest, joined
from taps.analysis.two_way import FEWEST_QUESTIONS


def ratios(
    sums: pd.DataFrame, keys: Sequence[str], numerator: str, denominator: str, *, training_seed: str | None = None
) -> Quantities:
    """Returns sum(numerator) / sum(denominator) for each combination of `keys`, in their order.

    Args:
        sums: Rows with columns `keys` (`benchmark` among them), `question`, numerator, denominator and the training
            seed. Rows of one question, quantity and training seed are summed; a question without rows does not count.
        keys: What identifies a quantity.
        training_seed: Column of the training seed; without one, all rows are of one seed.
    """
    keys = list(keys)
    groups = sums.groupby(keys, observed=True, sort=True)
    rows = groups.ngroup().to_numpy()
    questions = sums[["benchmark", "question"]].astype(str).groupby(["benchmark", "question"], sort=True)
    columns = questions.ngroup().to_numpy()
    benchmark_of, _ = pd.factorize(questions.size().index.get_level_values(0))
    quantity = groups.size().reset_index()[keys].astype({"benchmark": str})
    seeds, seed_of = (np.zeros(1), 0) if training_seed is None else np.unique(sums[training_seed], return_inverse=True)
    shape = (groups.ngroups, max(len(seeds), 1), len(benchmark_of))
    places = (rows * shape[1] + seed_of) * shape[2] + columns
    tops, bottoms = (
        np.bincount(places, sums[name].to_numpy(dtype=np.float64), minlength=int(np.prod(shape))).reshape(shape)
        for name in (numerator, denominator)
    )
    return linearised(quantity, tops, bottoms, benchmark_of)


def linearised(keys: pd.DataFrame, tops: np.ndarray, bottoms: np.ndarray, benchmark_of: np.ndarray) -> Quantities:
    """Returns sum(tops) / sum(bottoms) over the questions, for every row and training seed.

    Args:
        keys: R rows that say what each ratio is.
        tops, bottoms: float64 [R, S, Q]; a question with bottom 0 does not count. Each row has questions of one
            benchmark only.
        benchmark_of: int [Q] index of each question's benchmark.
    """
    counts = bottoms > 0
    num, total = counts.sum(axis=2), bottoms.sum(axis=2)  # [R, S]
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.where(total > 0, tops.sum(axis=2) / total, np.nan)
        moved = np.where(counts, (tops - values[:, :, None] * bottoms) / (total[:, :, None] - bottoms), 0.0)
        centred = np.where(counts, moved - moved.sum(axis=2, keepdims=True) / num[:, :, None], 0.0)
        residuals = centred * np.sqrt((num - 1) / num)[:, :, None]
        effective = total**2 / np.square(bottoms).sum(axis=2)
    residuals[~(np.isfinite(values) & (num >= FEWEST_QUESTIONS))] = 0.0
    # counted under the training seed that has the fewest, on the benchmark that the row belongs to
    own = (counts.any(axis=1) @ np.eye(int(benchmark_of.max(initial=-1)) + 1)[benchmark_of]) > 0
    return Quantities(
        keys=keys,
        values=values,
        residuals=residuals.astype(np.float32),
        benchmark_of=benchmark_of,
        num_questions=np.where(own, fewest(*num.T)[:, None], 0),
        num_effective=np.where(own, fewest(*np.nan_to_num(effective).T)[:, None], 0.0),
        scale=np.abs(np.nan_to_num(values)).max(axis=1, initial=0.0),
        is_difference=np.zeros(len(values), dtype=bool),
    )


def with_means(
    quantities: Quantities,
    *,
    domains: Mapping[str, str] | None = None,
    within: Sequence[str] = ("temperature", "method"),
    label: str = "mean",
) -> Quantities:
    """Returns the quantities and, behind them, their means over benchmarks (`benchmark` = label).

    A mean exists for what is held on *every* benchmark of its `within` (those with a domain, if domains are told), at
    least two: other means would not be comparable. Domains weigh the same by the benchmarks that are held there: a
    method of fewer benchmarks has weights of its own.

    Args:
        domains: Benchmark -> domain, for weights of `balanced_weights`; benchmarks weigh the same by default.
        within: Keys that tell apart the conditions that may have different benchmarks.
        label: What the mean is called.
    """
    keys = quantities.keys
    others = [name for name in keys.columns if name != "benchmark"]
    part = keys if domains is None else keys[keys["benchmark"].isin(list(domains))]
    wanted = part.groupby(list(within), observed=True)["benchmark"].transform("nunique")
    number = part.groupby(others, observed=True, sort=True).ngroup().to_numpy()
    order = np.argsort(number, kind="stable")
    groups = np.split(part.index.to_numpy()[order], np.flatnonzero(np.diff(number[order])) + 1)
    sums: list[dict[int, float]] = []
    for rows in groups:
        if len(rows) > 1 and len(rows) == wanted[rows[0]]:
            names = [str(name) for name in keys["benchmark"].to_numpy()[rows]]
            shares = balanced_weights({name: name if domains is None else domains[name] for name in names})
            sums.append({row: shares[name] for row, name in zip(rows.tolist(), names, strict=True)})
    named = keys.iloc[[next(iter(row_weights)) for row_weights in sums]].assign(benchmark=label)
    together = quantities.combined(sums, named)
    return joined([quantities, together], pd.concat([keys, named], ignore_index=True))


def balanced_weights(domains: Mapping[str, str]) -> dict[str, float]:
    """Returns benchmark -> weight, every domain weighing the same, and the benchmarks of a domain the same.

    Args:
        domains: Benchmark -> domain.
    """
    sizes = pd.Series(domains).value_counts()
    return {benchmark: 1 / (len(sizes) * int(sizes[domain])) for benchmark, domain in domains.items()}
