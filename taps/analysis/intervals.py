"""Intervals of ratios of sums over questions, their means, differences and contrasts: one residual per question.

A ratio r = sum(n) / sum(d) over the questions of a benchmark moves, when question i is left out, by its *residual*

    u_i = (n_i - r d_i) / (sum(d) - d_i),      sum over i of (u_i - mean)^2 (Q - 1) / Q  estimates its variance

and r is the centre of an interval of Student's t. Anything linear in ratios has the same linear combination of their
residuals: a mean over benchmarks (independent samples of questions), a difference (paired, since a question's residuals
are subtracted before they are squared), a slope. So all intervals come from one table of residuals, without resampling.
`taps.analysis.ratios` makes the table.

    degrees of freedom    effective questions - 1, Kish's (sum d)^2 / sum d^2: fewer than Q where a few long answers
                          hold most of the weight. A combination has the fewest of its parts; benchmarks are put
                          together as `taps.analysis.two_way` says
    training seeds        the estimate is the mean over seeds of the seeds' ratios; the interval covers seeds and
                          questions if there are two seeds or more, else questions only (`num_training_seeds` says so)
    two rows, many seeds  are paired by seed: a merged, averaged or routed row *consists* of its specialists of that
                          seed, and the draft models of one seed share initial weights. Independent draws would be
                          right only where neither holds; pairing always is, at the price of some degrees of freedom.
                          A combination has the seeds that all its rows have, so its estimate may differ from that of
                          the rows' own means

No interval, NaN, is given for fewer than FEWEST_QUESTIONS questions on a benchmark, and for an estimate without any
spread: no sample shows that every question gives the same. One case is known exactly: a *difference* that is zero in
every question (two rows that do the same) has the interval [0, 0] and p = 1.

Coverage of the nominal 95 %, by simulation: 0.94 to 0.97 at 7, 14 and 40 questions, also when answers have 3 to 512
tokens (`python -m tests.support.interval_coverage`); the percentile bootstrap covers 0.87 to 0.89 at 7.
Source: B. Efron, C. Stein, "The jackknife estimate of variance" (1981); L. Kish, "Survey sampling" (1965).

Shape letters: R quantities, S training seeds, Q questions of all benchmarks one behind another, B benchmarks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from taps.analysis.distributions import t_two_sided
from taps.analysis.two_way import FEWEST_QUESTIONS, standard_errors

# What is smaller than this share of the quantities that went in is rounding.
_ROUNDING = 1e-6
_BY_ROW = ("values", "residuals", "num_questions", "num_effective", "scale", "is_difference")


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """R estimates with 95 % intervals.

    Attributes:
        estimates, lows, highs: float64 [R]; low and high are NaN without an interval.
        p_values: float64 [R] two-sided, of "the quantity is 0"; NaN without an interval.
    """

    estimates: np.ndarray
    lows: np.ndarray
    highs: np.ndarray
    p_values: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Quantities:
    """R quantities that are linear in ratios, as seen on every question.

    Attributes:
        keys: R rows that say what each quantity is.
        values: float64 [R, S] one value per training seed, NaN for a seed that a quantity has not.
        residuals: float32 [R, S, Q] what each question adds to the estimate; the sum of squares is the variance.
        benchmark_of: int [Q] index of each question's benchmark.
        num_questions: int [R, B] questions behind each, 0 for a benchmark that takes no part.
        num_effective: float64 [R, B] the same, questions of little weight counting for less.
        scale: float64 [R] the size of what was put together: what rounding is measured by.
        is_difference: bool [R] whether the weights of what was put together sum to zero.
    """

    keys: pd.DataFrame
    values: np.ndarray
    residuals: np.ndarray
    benchmark_of: np.ndarray
    num_questions: np.ndarray
    num_effective: np.ndarray
    scale: np.ndarray
    is_difference: np.ndarray

    @property
    def estimates(self) -> np.ndarray:
        """float64 [R]: means over training seeds; NaN without a seed."""
        present = np.isfinite(self.values)
        with np.errstate(invalid="ignore"):
            return np.where(present, self.values, 0.0).sum(axis=1) / present.sum(axis=1)

    @property
    def num_training_seeds(self) -> np.ndarray:
        """int [R]: training seeds behind each; with one, the interval covers the questions only."""
        return np.isfinite(self.values).sum(axis=1)

    @cached_property
    def intervals(self) -> Intervals:
        """Estimates, 95 % intervals and p values."""
        spread = standard_errors(self.values, self.residuals, self.benchmark_of, self.num_effective)
        estimates, rounding = self.estimates, _ROUNDING * self.scale
        taking_part = self.num_questions > 0
        enough = ((self.num_questions >= FEWEST_QUESTIONS) | ~taking_part).all(axis=1) & taking_part.any(axis=1)
        still = spread.errors <= rounding
        identical = enough & still & self.is_difference & (np.abs(estimates) <= rounding)
        known = enough & ~still & np.isfinite(estimates)
        half = np.where(known, spread.quantiles * spread.errors, np.where(identical, 0.0, np.nan))
        centre = np.where(identical, 0.0, estimates)
        with np.errstate(invalid="ignore", divide="ignore"):
            p_values = t_two_sided(np.where(known, estimates / spread.errors, np.nan), spread.degrees)
        return Intervals(
            estimates=centre,
            lows=centre - half,
            highs=centre + half,
            p_values=np.where(identical, 1.0, p_values),
        )

    def frame(self, value: str, low: str = "low", high: str = "high", p_value: str | None = None) -> pd.DataFrame:
        """Returns the keys with estimate, interval, `num_questions` and `num_training_seeds` as columns.

        Args:
            value, low, high: Names of the columns.
            p_value: Name of a column for the p value; none by default.
        """
        found = self.intervals
        columns = {value: found.estimates, low: found.lows, high: found.highs}
        columns |= {"num_questions": self.num_questions.sum(axis=1), "num_training_seeds": self.num_training_seeds}
        columns |= {p_value: found.p_values} if p_value else {}
        return self.keys.assign(**columns)

    def take(self, rows: np.ndarray) -> Quantities:
        """Returns the quantities of an int or bool array of rows."""
        arrays = {name: getattr(self, name)[rows] for name in _BY_ROW}
        return replace(self, keys=self.keys.loc[self.keys.index[rows]].reset_index(drop=True), **arrays)

    def scaled(self, factor: float) -> Quantities:
        """Returns the quantities in another unit, e.g. `scaled(100)` in percent."""
        return replace(
            self,
            values=self.values * factor,
            residuals=self.residuals * np.float32(factor),
            scale=self.scale * abs(factor),
        )

    def minus(self, a: ArrayLike, b: ArrayLike, keys: pd.DataFrame) -> Quantities:
        """Returns the paired differences of rows `a` and `b` (positions), described by `keys`."""
        a, b = np.asarray(a, dtype=int), np.asarray(b, dtype=int)
        values = self.values[a] - self.values[b]
        return replace(
            self,
            keys=keys.reset_index(drop=True),
            values=values,
            residuals=_without(self.residuals[a] - self.residuals[b], values),
            num_questions=fewest(self.num_questions[a], self.num_questions[b]),
            num_effective=fewest(self.num_effective[a], self.num_effective[b]),
            scale=np.maximum(self.scale[a], self.scale[b]),
            is_difference=np.ones(len(values), dtype=bool),
        )

    def combined(self, weights: Sequence[Mapping[int, float]], keys: pd.DataFrame) -> Quantities:
        """Returns weighted sums of the quantities: means, slopes, any contrast (`taps.analysis.contrasts`).

        Args:
            weights: For each result, row -> weight; a weight of 0 leaves the row out.
            keys: What each result is.
        """
        parts = [[(row, weight) for row, weight in each.items() if weight] for each in weights]
        values, scale, total, size = (np.zeros((len(parts), *rest)) for rest in (self.values.shape[1:], (), (), ()))
        residuals = np.zeros((len(parts), *self.residuals.shape[1:]), dtype=np.float32)
        num_questions = np.zeros((len(parts), self.num_questions.shape[1]), dtype=int)
        num_effective, of_differences = np.zeros(num_questions.shape), np.ones(len(parts), dtype=bool)
        for term in range(max(map(len, parts), default=0)):  # all results' first rows, then all second ones, ...
            at = np.array([place for place, part in enumerate(parts) if len(part) > term])
            rows = np.array([parts[place][term][0] for place in at])
            factors = np.array([parts[place][term][1] for place in at], dtype=np.float64)
            values[at] += factors[:, None] * self.values[rows]
            residuals[at] += factors[:, None, None].astype(np.float32) * self.residuals[rows]
            num_questions[at] = fewest(num_questions[at], self.num_questions[rows])
            num_effective[at] = fewest(num_effective[at], self.num_effective[rows])
            scale[at] += np.abs(factors) * self.scale[rows]
            of_differences[at] &= self.is_difference[rows]
            total[at], size[at] = total[at] + factors, size[at] + np.abs(factors)
        is_difference = of_differences | (np.abs(total) <= _ROUNDING * size)
        return replace(
            self,
            keys=keys.reset_index(drop=True),
            values=values,
            residuals=_without(residuals, values),
            num_questions=num_questions,
            num_effective=num_effective,
            scale=scale,
            is_difference=is_difference,
        )


def _without(residuals: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Returns the residuals [R, S, Q] with zeros for the seeds that have no value [R, S]."""
    return np.where(np.isfinite(values)[:, :, None], residuals, np.float32(0))


def fewest(*counts: np.ndarray) -> np.ndarray:
    """Returns the smallest of several counts, where a count of 0 says that a benchmark takes no part."""
    stacked = np.stack(counts)
    taking_part = stacked > 0
    most = stacked.max(axis=0)
    return np.where(taking_part, stacked, most).min(axis=0)


def joined(parts: Sequence[Quantities], keys: pd.DataFrame) -> Quantities:
    """Returns several quantities of the same questions, one behind another, described by `keys`."""
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _BY_ROW}
    return replace(parts[0], keys=keys.reset_index(drop=True), **arrays)
