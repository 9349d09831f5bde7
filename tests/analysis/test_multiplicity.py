"""Tests of taps.analysis.multiplicity: Holm's correction by hand and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.analysis.multiplicity import all_of, any_of, holm


def test_holm_by_hand() -> None:
    """0.01 x 4, 0.02 x 3, 0.03 x 2; the last, 0.04 x 1, may not fall below the one before."""
    assert holm([0.03, 0.01, 0.04, 0.02]).tolist() == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.4, 0.9]).tolist() == pytest.approx([0.8, 0.9])
    assert holm([]).tolist() == []


def test_a_claim_without_a_p_value_counts_and_stays_without() -> None:
    assert holm([0.02, math.nan, 0.01]).tolist() == pytest.approx([0.04, math.nan, 0.03], nan_ok=True)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_the_raw_and_bonferroni_and_keeps_the_order(p_values: list[float]) -> None:
    corrected = holm(p_values)
    raw = np.array(p_values)
    assert (corrected >= raw).all()
    assert (corrected <= np.minimum(raw * len(raw), 1) + 1e-12).all()
    assert (np.diff(corrected[np.argsort(raw, kind="stable")]) >= 0).all()


def test_holm_keeps_the_share_of_families_with_a_wrong_rejection() -> None:
    """Five true claims of eight that share their data; Monte Carlo error 0.002."""
    rng = np.random.default_rng(0)
    statistics = 0.7 * rng.standard_normal((10_000, 8)) + 0.71 * rng.standard_normal((10_000, 1))
    statistics[:, 5:] += 4
    p_values = np.vectorize(math.erfc)(np.abs(statistics) / math.sqrt(2))
    wrong = [(holm(row)[:5] < 0.05).any() for row in p_values]
    assert 0.02 < np.mean(wrong) < 0.05
    assert np.mean((p_values[:, :5] < 0.05).any(axis=1)) > 0.12  # without correction


def test_parts() -> None:
    assert all_of([0.01, 0.04]) == 0.04
    assert any_of([0.01, 0.04]) == 0.02
    assert any_of([0.9, 0.8]) == 1.0
    assert math.isnan(all_of([0.01, math.nan]))
    assert any_of([0.01, math.nan]) == 0.01
    assert math.isnan(all_of([]))
    assert math.isnan(any_of([]))
