"""Tests of taps.analysis.shares: exact intervals of printed values, clusters, and a router over domains and seeds."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from taps.analysis.ratios import ratios, with_means
from taps.analysis.shares import clopper_pearson, clustered_shares, question_shares


def test_exact_intervals_of_known_counts() -> None:
    """Ends in closed form, 1 - (tail)^(1/n); 7 of 10 and 81 of 263 (A. Agresti's and R. Newcombe's examples)."""
    low, high = clopper_pearson([14, 0, 7, 81], [14, 14, 10, 263])
    np.testing.assert_allclose(low, [0.025 ** (1 / 14), 0.0, 0.3475, 0.2527], atol=6e-5)
    np.testing.assert_allclose(high, [1.0, 1 - 0.025 ** (1 / 14), 0.9333, 0.3676], atol=6e-5)
    assert np.isnan(clopper_pearson(0, 0)).all()


@pytest.mark.parametrize("trials", [7, 14, 40])
def test_exact_intervals_hold_the_truth_at_least_as_often_as_they_say(trials: int) -> None:
    """No simulation: the probabilities of all counts, for shares all over the range."""
    low, high = clopper_pearson(np.arange(trials + 1), trials)
    counts = [math.comb(trials, k) for k in range(trials + 1)]
    for share in np.linspace(0.01, 0.99, 50):
        law = np.array([count * share**k * (1 - share) ** (trials - k) for k, count in enumerate(counts)])
        assert law[(low <= share) & (share <= high)].sum() >= 0.95


def test_shares_of_questions() -> None:
    votes = pd.DataFrame({"router": ["a"] * 4 + ["b"] * 2, "vote": [1, 1, 0.5, 1, 0, 0]})
    table = question_shares(votes, ["router"], "vote").set_index("router")
    assert table.loc["a", "share"] == 0.875
    assert table.loc["b", "low"] == 0
    assert table.loc["b", "high"] == pytest.approx(1 - 0.025**0.5)
    assert table["num_questions"].tolist() == [4, 2]


def _picked(rates: np.ndarray, cycles: int, rng: np.random.Generator) -> pd.DataFrame:
    """Returns cycles sent to a drafter, with one rate per replication and question."""
    replication, question = (axis.ravel() for axis in np.indices(rates.shape))
    picked = rng.binomial(cycles, rates).ravel()
    frame = {"benchmark": "b", "replication": replication, "question": question, "picked": picked, "cycles": cycles}
    return pd.DataFrame(frame)


@pytest.mark.parametrize("questions", [7, 14, 40])
def test_shares_of_cycles_hold_the_truth(questions: int) -> None:
    """Cycles of a question resemble each other; a share of 0.85, near its end. Monte Carlo error 0.004."""
    rng = np.random.default_rng(questions)
    sums = _picked(rng.beta(0.85 * 6, 0.15 * 6, (3000, questions)), 25, rng)
    low, high = clustered_shares(ratios(sums, ["benchmark", "replication"], "picked", "cycles"))
    assert 0.93 <= np.mean((low <= 0.85) & (high >= 0.85)) <= 0.985
    assert (low >= 0).all()
    assert (high <= 1).all()


def test_all_cycles_alike_are_as_uncertain_as_their_questions() -> None:
    rng = np.random.default_rng(0)
    low, high = clustered_shares(ratios(_picked(np.ones((1, 14)), 25, rng), ["benchmark"], "picked", "cycles"))
    assert low[0] == pytest.approx(0.025 ** (1 / 14))
    assert high[0] == 1
    none = ratios(_picked(np.ones((1, 1)), 25, rng), ["benchmark"], "picked", "cycles")
    assert np.isnan(clustered_shares(none)).all()


def test_means_of_shares_stay_within_their_range() -> None:
    rng = np.random.default_rng(0)
    sums = pd.concat([_picked(np.full((1, 9), 0.97), 20, rng).assign(benchmark=name) for name in "ab"])
    found = with_means(ratios(sums, ["benchmark", "replication"], "picked", "cycles"), within=["replication"])
    low, high = clustered_shares(found)
    assert ((low < found.estimates) & (found.estimates < high) & (high <= 1)).all()


def test_balanced_accuracy_with_training_seeds() -> None:
    """A router that says math in every question under two seeds, and in nine of ten under a third."""
    rng = np.random.default_rng(0)
    rates = {"math": (1.0, 1.0, 0.9), "chat": (0.0, 0.0, 0.1)}
    parts = [
        _picked(np.full((1, 14), rate), 1, rng).assign(benchmark=domain, seed=seed)
        for domain, of_seed in rates.items()
        for seed, rate in enumerate(of_seed)
    ]
    keys = ["benchmark", "replication"]
    found = ratios(pd.concat(parts), keys, "picked", "cycles", training_seed="seed")
    low, high = clustered_shares(with_means(found, within=["replication"]))
    assert 0.3 < low[2] < 0.5 < high[2] < 0.7
