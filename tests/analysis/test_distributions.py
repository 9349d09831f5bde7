"""Tests of taps.analysis.distributions against printed tables, closed forms and mpmath."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.analysis.distributions import beta_cdf, beta_quantile, degrees_of_quantile, t_quantile, t_two_sided

# two-sided 5 % points of Student's distribution, as printed in every textbook
TABLE = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 6: 2.4469, 13: 2.1604, 39: 2.0227, 120: 1.9799}


def test_t_quantiles_are_those_of_the_printed_table() -> None:
    found = t_quantile(list(TABLE))
    np.testing.assert_allclose(found, list(TABLE.values()), atol=6e-5)
    assert float(t_quantile(math.inf)) == pytest.approx(1.959964, abs=1e-4)
    assert np.isnan(t_quantile([math.nan, 3.0])).tolist() == [True, False]


@settings(deadline=None)  # the first call makes a table
@given(st.floats(1, 500))
def test_quantile_and_p_value_agree(degrees: float) -> None:
    quantile = t_quantile(degrees)
    assert float(t_two_sided(quantile, degrees)) == pytest.approx(0.05, abs=1e-6)
    assert float(degrees_of_quantile(quantile)) == pytest.approx(degrees, rel=1e-3)


def test_t_p_values_in_closed_form() -> None:
    t = np.array([-3.0, 0.0, 0.5, 12.7])
    np.testing.assert_allclose(t_two_sided(t, 1), 1 - 2 / np.pi * np.arctan(np.abs(t)), rtol=1e-12)
    np.testing.assert_allclose(t_two_sided(t, 2), 1 - np.abs(t) / np.sqrt(2 + t**2), rtol=1e-10, atol=1e-15)
    assert float(t_two_sided(1.959964, 1e9)) == pytest.approx(0.05, abs=1e-5)
    assert t_two_sided([math.nan, 1.0], [3.0, math.nan]).tolist() == pytest.approx([math.nan] * 2, nan_ok=True)


def test_beta_is_the_binomial_tail() -> None:
    """P(at least k of n) = I_p(k, n - k + 1)."""
    for n, k, p in ((14, 13, 0.8), (40, 3, 0.1), (7, 7, 0.5), (200, 120, 0.55)):
        tail = sum(math.comb(n, j) * p**j * (1 - p) ** (n - j) for j in range(k, n + 1))
        assert float(beta_cdf(p, k, n - k + 1)) == pytest.approx(tail, rel=1e-11)


def test_beta_is_that_of_mpmath() -> None:
    mpmath = pytest.importorskip("mpmath", reason="a dependency of torch's, not of ours")
    rng = np.random.default_rng(0)
    x, a, b = rng.random(60), 10 ** rng.uniform(-1, 3, 60), 10 ** rng.uniform(-1, 3, 60)
    expected = [float(mpmath.betainc(p, q, 0, at, regularized=True)) for at, p, q in zip(x, a, b, strict=True)]
    np.testing.assert_allclose(beta_cdf(x, a, b), expected, atol=1e-12)


def test_beta_at_the_ends() -> None:
    assert beta_cdf([0.0, 1.0], 2, 3).tolist() == [0.0, 1.0]
    assert np.isnan(beta_cdf([math.nan], 2, 3)).all()
    assert np.isnan(beta_quantile(0.1, math.nan, 3))


def test_beta_quantile_inverts() -> None:
    rng = np.random.default_rng(1)
    probability = rng.uniform(0.001, 0.999, 200)
    a, b = 10 ** rng.uniform(-0.7, 2.5, (2, 200))
    found = beta_quantile(probability, a, b)
    # where the density is steep, neighbouring floats differ in probability
    assert (beta_cdf(np.maximum(found - 1e-12, 0), a, b) - 1e-9 <= probability).all()
    assert (beta_cdf(np.minimum(found + 1e-12, 1), a, b) + 1e-9 >= probability).all()
