"""Intervals of shares, which a symmetric interval would push below 0 or above 1, or collapse at either end.

    share of questions      exact (Clopper-Pearson): 14 of 14 is [0.77, 1]
    share of cycles, nodes  questions bring several each, so the binomial law holds for fewer of them, the *effective
                            number* p (1 - p) / variance, corrected for the degrees of freedom of the variance; at
                            0 or 1, where no variance is seen, as many as there are questions (Korn-Graubard)

Source: C. Clopper, E. Pearson (1934); E. Korn, B. Graubard, "Confidence intervals for proportions with small expected
number of positive counts estimated from survey data" (1998).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from taps.analysis.distributions import LEVEL, beta_quantile, t_quantile
from taps.analysis.intervals import Quantities
from taps.analysis.two_way import FEWEST_QUESTIONS, standard_errors


def clopper_pearson(successes: ArrayLike, trials: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Returns (low, high) of the exact 95 % interval of a share; NaN without trials.

    Args:
        successes: 0 to `trials`, not necessarily integers (a tie between two drafters is half a success).
        trials: Number of independent trials, not necessarily an integer.
    """
    successes, trials = np.broadcast_arrays(np.asarray(successes, dtype=float), np.asarray(trials, dtype=float))
    tail = (1 - LEVEL) / 2
    # a parameter of 0 is put aside: there the bound is the end of the range
    low = beta_quantile(tail, np.where(successes > 0, successes, 1.0), trials - successes + 1)
    high = beta_quantile(1 - tail, successes + 1, np.where(successes < trials, trials - successes, 1.0))
    unknown = ~(trials > 0)
    low = np.where(unknown, np.nan, np.where(successes > 0, low, 0.0))
    return low, np.where(unknown, np.nan, np.where(successes < trials, high, 1.0))


def question_shares(votes: pd.DataFrame, keys: Sequence[str], vote: str) -> pd.DataFrame:
    """Returns share, low, high and num_questions per combination of `keys`: exact intervals over questions.

    Args:
        votes: One row per keys and question.
        vote: Column of what the question counts for: 0 to 1.
    """
    table = votes.groupby(list(keys), observed=True, sort=True)[vote].agg(["sum", "size"]).reset_index()
    low, high = clopper_pearson(table["sum"], table["size"])
    share = table["sum"] / table["size"]
    return table[list(keys)].assign(share=share, low=low, high=high, num_questions=table["size"])


def clustered_shares(shares: Quantities) -> tuple[np.ndarray, np.ndarray]:
    """Returns (low, high), float64 [R], for ratios that are shares of cycles or nodes; NaN without enough questions.

    Args:
        shares: Ratios in [0, 1] or means of such, not differences.
    """
    spread = standard_errors(shares.values, shares.residuals, shares.benchmark_of, shares.num_effective)
    estimates, num_questions = shares.estimates, shares.num_questions.sum(axis=1)
    variances = np.square(spread.errors)
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = estimates * (1 - estimates) / variances * np.square(t_quantile(np.inf) / spread.quantiles)
    seen = (variances > 0) & (estimates > 0) & (estimates < 1)
    trials = np.where(seen, effective, num_questions)
    enough = ((shares.num_questions >= FEWEST_QUESTIONS) | (shares.num_questions == 0)).all(axis=1)
    trials = np.where(enough & np.isfinite(estimates), trials, np.nan)
    return clopper_pearson(np.where(np.isnan(trials), 0.0, estimates * trials), trials)
