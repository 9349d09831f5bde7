"""Several claims at once: Holm's correction, and claims of several parts.

The primary claims of a study are few and named in advance; their p values are corrected together, so that the
probability of any wrong "holds" or "fails" among them stays below 5 %. Everything else is exploratory.

    a claim of several parts ("on each matched benchmark")    holds as a whole at the largest p value of its parts
    "at least one of them"                                    at the smallest, times their number

Source: S. Holm (1979); the largest p value: R. Berger (1982), "intersection-union".
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Returns float64 [n], Holm's corrected p values in the order given: rejected together at 5 % if below 0.05.

    A NaN, a claim that could not be tested, counts as a test and stays NaN.
    """
    given = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(np.where(np.isnan(given), np.inf, given), kind="stable")
    factors = len(given) - np.arange(len(given))
    corrected = np.empty(len(given))
    corrected[order] = np.minimum(np.maximum.accumulate(np.nan_to_num(given[order], nan=1.0) * factors), 1.0)
    return np.where(np.isnan(given), np.nan, corrected)


def all_of(p_values: Collection[float]) -> float:
    """Returns a p value of "every part holds", whatever the parts share: the largest; NaN if a part has none.

    Only for parts whose estimates lie on the claimed side.
    """
    return math.nan if not p_values or any(math.isnan(value) for value in p_values) else max(p_values)


def any_of(p_values: Collection[float]) -> float:
    """Returns a p value of "at least one part holds", whatever the parts share (Bonferroni); NaN without any."""
    known = [value for value in p_values if not math.isnan(value)]
    return min(1.0, len(known) * min(known)) if known else math.nan
