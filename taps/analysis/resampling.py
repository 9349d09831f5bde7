"""Bootstrap over questions, vectorised: every quantity is a ratio of sums over questions, all share the same resamples.

A resample draws as many questions as the benchmark has, with replacement; a question brings all its turns, cycles and
seeds. Quantities of one benchmark are resampled together, so a difference of two draws is a paired difference.
Source: percentile bootstrap (Efron); 10,000 resamples, seeded per benchmark.

Shape letters: B resamples, Q questions, R quantities.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

NUM_RESAMPLES = 10_000
LEVEL = 0.95
# An interval from one question would have width zero and claim certainty.
FEWEST_QUESTIONS = 2


@dataclass(frozen=True, kw_only=True)
class Quantities:
    """R estimates and their resamples.

    Attributes:
        keys: R rows that say what each quantity is.
        estimates: float64 [R].
        draws: float32 [R, B]; NaN where a resample leaves a quantity undefined or there are too few questions.
        num_questions: int [R] questions behind each.
    """

    keys: pd.DataFrame
    estimates: np.ndarray
    draws: np.ndarray
    num_questions: np.ndarray

    def minus(self, a: np.ndarray, b: np.ndarray, keys: pd.DataFrame) -> Quantities:
        """Returns the paired differences of columns `a` and `b` (int arrays), described by `keys`."""
        return Quantities(
            keys=keys.reset_index(drop=True),
            estimates=self.estimates[a] - self.estimates[b],
            draws=self.draws[a] - self.draws[b],
            num_questions=np.minimum(self.num_questions[a], self.num_questions[b]),
        )

    def frame(self, value: str, low: str = "low", high: str = "high") -> pd.DataFrame:
        """Returns the keys with estimate, interval and `num_questions` as columns."""
        lows, highs = intervals(self.draws)
        columns = {value: self.estimates, low: lows, high: highs, "num_questions": self.num_questions}
        return self.keys.assign(**columns)


def intervals(draws: np.ndarray) -> np.ndarray:
    """Returns float64 [2, R]: the percentile interval of each row; NaN for a row with a NaN.

    Args:
        draws: float [R, B].
    """
    tail = (1 - LEVEL) / 2
    return np.quantile(draws, [tail, 1 - tail], axis=1).astype(np.float64)


def resample_counts(num_questions: int, *, benchmark: str, seed: int, num_resamples: int = NUM_RESAMPLES) -> np.ndarray:
    """Returns float32 [B, Q]: how often each question is drawn; the same for equal arguments."""
    rng = np.random.default_rng([seed, zlib.crc32(benchmark.encode())])
    share = np.full(num_questions, 1 / num_questions)
    return rng.multinomial(num_questions, share, size=num_resamples).astype(np.float32)


def ratios(sums: pd.DataFrame, keys: Sequence[str], numerator: str, denominator: str, *, seed: int) -> Quantities:
    """Returns sum(numerator) / sum(denominator) for each combination of `keys`, with resamples.

    Args:
        sums: One row per keys and question: columns `keys` (with `benchmark`), `question`, numerator, denominator.
        keys: What identifies a quantity; must contain `benchmark`.
        seed: Of the resamples.
    """
    parts = [
        _ratios_of_benchmark(part, list(keys), numerator, denominator, str(benchmark), seed)
        for benchmark, part in sums.groupby("benchmark", observed=True, sort=True)
    ]
    if not parts:
        empty = np.empty((0, NUM_RESAMPLES), dtype=np.float32)
        return Quantities(keys=sums[list(keys)], estimates=np.empty(0), draws=empty, num_questions=np.empty(0, int))
    return _joined(parts)


def _ratios_of_benchmark(
    sums: pd.DataFrame, keys: list[str], numerator: str, denominator: str, benchmark: str, seed: int
) -> Quantities:
    group = sums.groupby(keys, observed=True, sort=True)
    columns = group.ngroup().to_numpy()
    questions, rows = np.unique(sums["question"].astype(str).to_numpy(), return_inverse=True)
    top, bottom = (np.zeros((int(columns.max()) + 1, len(questions))) for _ in range(2))
    np.add.at(top, (columns, rows), sums[numerator].to_numpy(dtype=np.float64))
    np.add.at(bottom, (columns, rows), sums[denominator].to_numpy(dtype=np.float64))
    counts = resample_counts(len(questions), benchmark=benchmark, seed=seed)
    with np.errstate(invalid="ignore", divide="ignore"):
        draws = (top.astype(np.float32) @ counts.T) / (bottom.astype(np.float32) @ counts.T)
        estimates = top.sum(axis=1) / bottom.sum(axis=1)
    num_questions = (bottom > 0).sum(axis=1)
    draws[~np.isfinite(draws)] = np.nan
    draws[num_questions < FEWEST_QUESTIONS] = np.nan
    return Quantities(
        keys=group.size().reset_index()[keys], estimates=estimates, draws=draws, num_questions=num_questions
    )


def with_means(quantities: Quantities) -> Quantities:
    """Returns the quantities and, behind them, their unweighted means over benchmarks (`benchmark` = `mean`).

    A mean exists for what is held on *every* benchmark of its (temperature, method): others are not comparable.
    Benchmarks are resampled independently of each other.
    """
    keys = quantities.keys
    others = [name for name in keys.columns if name != "benchmark"]
    wanted = keys.groupby(["temperature", "method"], observed=True)["benchmark"].transform("nunique").to_numpy()
    means: list[Quantities] = []
    for values, rows in keys.groupby(others, observed=True, sort=True).indices.items():
        if len(rows) == wanted[rows[0]] and len(rows) > 1:
            key = pd.DataFrame([values], columns=others).assign(benchmark="mean")[list(keys.columns)]
            means.append(
                Quantities(
                    keys=key,
                    estimates=quantities.estimates[rows].mean(keepdims=True),
                    draws=quantities.draws[rows].mean(axis=0, keepdims=True),
                    num_questions=quantities.num_questions[rows].sum(keepdims=True),
                )
            )
    return _joined([quantities, *means])


def _joined(parts: Sequence[Quantities]) -> Quantities:
    return Quantities(
        keys=pd.concat([part.keys.astype({"benchmark": str}) for part in parts], ignore_index=True),
        estimates=np.concatenate([part.estimates for part in parts]),
        draws=np.concatenate([part.draws for part in parts]),
        num_questions=np.concatenate([part.num_questions for part in parts]),
    )
