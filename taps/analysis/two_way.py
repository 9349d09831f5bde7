"""Standard errors of linear quantities observed on Q questions under S training seeds, both drawn at random.

Seeds and questions are crossed: the draft models of every seed answer all questions. From one residual u per seed and
question (`taps.analysis.intervals`; sums of their squares are variances) and one value r per seed come three variances
of the mean over seeds:

    V_q    questions              sum over questions of (mean over seeds of u)^2              degrees: questions - 1
    V_s    training seeds         variance of r over seeds / S                                degrees: S - 1
    V_qs   questions x seeds,     sum over both of (u - mean over seeds of u)^2 / (S (S - 1))
           held by V_q and V_s

    variance           max(V_q + V_s - V_qs, V_q, V_s): the unbiased sum, unless it falls below one of its parts
    t quantile         (V_q t_q + W t_s) / (V_q + W), t_q and t_s at their own degrees, W what V_s has beyond V_qs:
                       max(V_s - V_qs (S - 2) / (S - 1), 0)

With one seed there is V_q alone, and the interval covers the questions only. Benchmarks are independent samples of
questions: their V_q add, degrees by Satterthwaite; a seed's draft model is the same on all of them, so V_s is that of
the mean itself.

Why not Satterthwaite's degrees for seeds and questions together: V_s has S - 1 degrees, and where it comes out small by
chance he trusts it; such intervals cover 0.87 with 2 seeds and 0.92 with 3 where seeds matter most. Why W: the less of
V_s is interaction, the more its few degrees count; with 2 seeds that cannot be told, and nothing is taken off. Coverage
of differences and means over the spreads below (`python -m tests.support.interval_coverage`): 0.96 on average with 5
seeds and with 3, least 0.92; 0.975 with 2, least 0.92. These last are wide, t_s being 12.7: two seeds decide little,
three are the fewest that pay.

How large the parts are, in tau, three seeds of the laptop study's draft models on 24 GSM8K and 12 MT-Bench questions:
differences of two rows vary by 0.00 to 0.055 between seeds and 0.01 to 0.23 between questions; of the latter's variance
0.1 to 1.0 (math - chat 0.2, two kinds of merged trees 1.0) is new under every seed.

Source: crossed random effects, A. Owen, "The pigeonhole bootstrap" (2007), and C. Cameron, J. Gelbach, D. Miller,
"Robust inference with multiway clustering" (2011); weighted quantiles: W. Cochran, G. Cox, "Experimental designs"
(1957); degrees over benchmarks: F. Satterthwaite (1946).

Shape letters: R quantities, S training seeds, Q questions of all benchmarks one behind another, B benchmarks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taps.analysis.distributions import degrees_of_quantile, t_quantile

# One question has no spread.
FEWEST_QUESTIONS = 2


@dataclass(frozen=True, kw_only=True)
class StandardErrors:
    """How far R estimates may be off; NaN where a benchmark has too few questions.

    Attributes:
        errors: float64 [R] standard errors.
        quantiles: float64 [R] half-widths of the 95 % intervals in standard errors.
        degrees: float64 [R] degrees of freedom of Student's distribution with these quantiles.
    """

    errors: np.ndarray
    quantiles: np.ndarray
    degrees: np.ndarray


def standard_errors(
    values: np.ndarray, residuals: np.ndarray, benchmark_of: np.ndarray, num_effective: np.ndarray
) -> StandardErrors:
    """Returns the standard errors of the means over seeds.

    Args:
        values: float [R, S] one value per seed, NaN for a seed without one.
        residuals: float [R, S, Q] zero for such a seed, and for a question that does not count.
        benchmark_of: int [Q] index of each question's benchmark.
        num_effective: float [R, B] questions behind each quantity, counted as `taps.analysis.intervals` does; 0 for a
            benchmark that takes no part.
    """
    num_seeds = np.isfinite(values).sum(axis=1)
    seeds = np.maximum(num_seeds, 1)
    mean_residuals = residuals.sum(axis=1, dtype=np.float64) / seeds[:, None]  # [R, Q]
    of_questions, degrees = _of_questions(mean_residuals, benchmark_of, num_effective)
    variances, quantiles = of_questions.copy(), t_quantile(degrees)
    crossed = num_seeds > 1
    if crossed.any():
        of_seeds = np.nanvar(values[crossed], axis=1, ddof=1) / seeds[crossed]
        # sum over seeds of (u - mean)^2 = sum of u^2 - S mean^2, also where a seed without a value adds nothing
        squares = np.einsum("rsq,rsq->r", residuals[crossed], residuals[crossed], dtype=np.float64)
        squares -= seeds[crossed] * np.square(mean_residuals[crossed]).sum(axis=1)
        of_both = np.maximum(squares, 0) / (seeds[crossed] * (seeds[crossed] - 1))
        apart = of_questions[crossed] + of_seeds
        variances[crossed] = np.maximum(apart - of_both, np.maximum(of_questions[crossed], of_seeds))
        beyond = np.maximum(of_seeds - of_both * (seeds[crossed] - 2) / (seeds[crossed] - 1), 0)  # W
        with np.errstate(invalid="ignore"):
            share = np.where(beyond > 0, beyond / (beyond + of_questions[crossed]), 0.0)
        quantiles[crossed] += share * (t_quantile(num_seeds[crossed] - 1) - quantiles[crossed])
        degrees[crossed] = degrees_of_quantile(quantiles[crossed])
    return StandardErrors(errors=np.sqrt(variances), quantiles=quantiles, degrees=degrees)


def _of_questions(
    residuals: np.ndarray, benchmark_of: np.ndarray, num_effective: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns (variance, degrees of freedom) from the residuals [R, Q] of the means over seeds."""
    of_benchmark = np.square(residuals) @ np.eye(num_effective.shape[1])[benchmark_of]  # [R, B]
    degrees = np.maximum(num_effective - 1, 1)
    total = of_benchmark.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        together = total**2 / (of_benchmark**2 / degrees).sum(axis=1)
    smallest = np.where(num_effective > 0, degrees, np.inf).min(axis=1, initial=np.inf)
    return total, np.where(total > 0, together, smallest)
