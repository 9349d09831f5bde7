"""Distribution functions and quantiles of the beta and of Student's t distribution, for arrays.

Written out because none of the declared dependencies has them; with SciPy declared, `scipy.special.betainc` and
`betaincinv` are `beta_cdf` and `beta_quantile`.
Source: DLMF 8.17 (regularised incomplete beta function: symmetry 8.17.4, continued fraction 8.17.22).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95  # of every interval of the report
# Above this many degrees of freedom Student's t and the normal distribution agree to six digits.
MOST_DEGREES = 1e6

_log_gamma = np.vectorize(math.lgamma, otypes=[float])
_TINY = 1e-300
_MAX_TERMS = 10_000
_HALVINGS = 60  # of [0, 1]: to the last digit


def beta_cdf(x: ArrayLike, a: ArrayLike, b: ArrayLike) -> np.ndarray:
    """Returns P(X <= x) for X of the beta distribution, the regularised incomplete beta function; float64, broadcast.

    NaN gives NaN.

    Args:
        x: Where to take it, in [0, 1].
        a, b: Parameters, above 0.
    """
    given = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (x, a, b)))
    known = np.all([np.isfinite(value) for value in given], axis=0)
    x, a, b = (np.where(known, value, 0.5) for value in given)
    mirrored = x > (a + 1) / (a + b + 2)  # there the fraction of the mirror image converges fast
    y = np.where(mirrored, 1 - x, x)
    p, q = np.where(mirrored, b, a), np.where(mirrored, a, b)
    with np.errstate(divide="ignore"):
        front = np.exp(p * np.log(y) + q * np.log1p(-y) + _log_gamma(p + q) - _log_gamma(p) - _log_gamma(q)) / p
    value = np.where(y > 0, front * _continued_fraction(y, p, q), 0.0)
    return np.where(known, np.where(mirrored, 1 - value, value), np.nan)


def _continued_fraction(x: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Returns DLMF 8.17.22 without the factor in front, by Lentz's method."""
    upper = np.ones_like(x)
    lower = 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    value = lower.copy()
    for m in range(1, _MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            lower = 1 / _away_from_zero(1 + term * lower)
            upper = _away_from_zero(1 + term / upper)
            factor = lower * upper
            value = value * factor
        if np.all(np.abs(factor - 1) < 1e-14):
            return value
    raise AssertionError(f"no convergence within {_MAX_TERMS} terms, a up to {a.max()}, b up to {b.max()}")


def _away_from_zero(value: np.ndarray) -> np.ndarray:
    return np.where(np.abs(value) < _TINY, _TINY, value)


def beta_quantile(probability: ArrayLike, a: ArrayLike, b: ArrayLike) -> np.ndarray:
    """Returns the x with `beta_cdf(x, a, b)` = probability, by bisection; float64, broadcast."""
    wanted, a, b = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (probability, a, b)))
    known = np.isfinite(wanted) & np.isfinite(a) & np.isfinite(b)
    low, high = np.zeros(wanted.shape), np.ones(wanted.shape)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = beta_cdf(middle, a, b) < wanted
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(known, (low + high) / 2, np.nan)


def t_quantile(degrees: ArrayLike) -> np.ndarray:
    """Returns the t with P(|T| <= t) = LEVEL under Student's distribution, to about 1e-5; float64.

    NaN gives NaN.

    Args:
        degrees: Degrees of freedom, 1 or more, not necessarily integers.
    """
    inverse, quantiles = _quantiles_by_inverse_degrees()
    return np.interp(1.0 / np.asarray(degrees, dtype=np.float64), inverse, quantiles)


def t_two_sided(t: ArrayLike, degrees: ArrayLike) -> np.ndarray:
    """Returns P(|T| >= |t|) under Student's distribution, the two-sided p value of t statistics; float64, broadcast."""
    statistic, of = np.asarray(t, dtype=np.float64), np.minimum(np.asarray(degrees, dtype=np.float64), MOST_DEGREES)
    return beta_cdf(of / (of + statistic**2), of / 2, 0.5)


def degrees_of_quantile(quantile: ArrayLike) -> np.ndarray:
    """Returns the degrees of freedom, 1 to MOST_DEGREES, whose `t_quantile` is the one given; float64."""
    inverse, quantiles = _quantiles_by_inverse_degrees()
    found = np.interp(np.asarray(quantile, dtype=np.float64), quantiles, inverse)
    return 1 / np.maximum(found, 1 / MOST_DEGREES)


@lru_cache(maxsize=1)
def _quantiles_by_inverse_degrees() -> tuple[np.ndarray, np.ndarray]:
    """Returns the table that `t_quantile` and its inverse read: 1 / degrees, rising from 0 to 1, and the quantiles.

    The quantile is smooth in 1 / degrees; T^2 / (degrees + T^2) is beta distributed.
    """
    inverse = np.linspace(0.0, 1.0, 2001)
    degrees = 1 / np.maximum(inverse, 1 / MOST_DEGREES)
    square = beta_quantile(LEVEL, 0.5, degrees / 2)
    return inverse, np.sqrt(degrees * square / (1 - square))
