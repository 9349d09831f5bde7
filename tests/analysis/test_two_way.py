"""Tests of taps.analysis.two_way: the three variances against plain loops, and the quantile between its two ends."""

from __future__ import annotations

import math

import numpy as np
import pytest

from taps.analysis.distributions import t_quantile
from taps.analysis.two_way import StandardErrors, standard_errors

NAN = math.nan


def _errors(
    values: list[list[float]], residuals: np.ndarray, benchmark_of: list[int], num_effective: list[list[float]]
) -> StandardErrors:
    return standard_errors(
        np.array(values), residuals.astype(np.float32), np.array(benchmark_of), np.array(num_effective)
    )


def test_one_seed_is_questions_alone() -> None:
    residuals = np.array([[[0.3, -0.1, -0.2]]])
    found = _errors([[1.5]], residuals, [0, 0, 0], [[3]])
    assert found.errors[0] == pytest.approx(math.sqrt(0.14))
    assert found.quantiles[0] == pytest.approx(float(t_quantile(2)), rel=1e-4)
    assert found.degrees[0] == pytest.approx(2)


def test_benchmarks_add_and_share_their_degrees() -> None:
    residuals = np.array([[[0.3, -0.3, 0.1, 0.0, -0.1]]])
    found = _errors([[1.5]], residuals, [0, 0, 1, 1, 1], [[2, 3]])
    assert found.errors[0] == pytest.approx(math.sqrt(0.18 + 0.02))
    assert found.degrees[0] == pytest.approx(0.2**2 / (0.18**2 / 1 + 0.02**2 / 2))


def _parts(values: np.ndarray, residuals: np.ndarray) -> tuple[float, float, float]:
    """Returns (questions, seeds, both), by plain loops."""
    num_seeds, num_questions = residuals.shape
    mean = [sum(residuals[s, q] for s in range(num_seeds)) / num_seeds for q in range(num_questions)]
    questions = sum(value**2 for value in mean)
    seeds = sum((value - sum(values) / num_seeds) ** 2 for value in values) / (num_seeds - 1) / num_seeds
    both = sum((residuals[s, q] - mean[q]) ** 2 for s in range(num_seeds) for q in range(num_questions))
    return questions, seeds, both / num_seeds / (num_seeds - 1)


@pytest.mark.parametrize("spread", [0.0, 0.02, 0.2, 2.0])
def test_seeds_and_questions_together(spread: float) -> None:
    rng = np.random.default_rng(1)
    residuals = rng.normal(0, 0.03, (3, 8)) + rng.normal(0, 0.03, 8)
    values = 1.5 + spread * np.array([0.1, -0.4, 0.3])
    questions, seeds, both = _parts(values, residuals)
    found = _errors([values.tolist()], residuals[None], [0] * 8, [[8]])
    variance = max(questions + seeds - both, questions, seeds)
    assert found.errors[0] == pytest.approx(math.sqrt(variance), rel=1e-5)
    weight = max(seeds - both / 2, 0)  # of three seeds
    quantile = (questions * 2.36462 + weight * 4.30265) / (questions + weight)
    assert found.quantiles[0] == pytest.approx(quantile, rel=1e-4)
    assert float(t_quantile(found.degrees[0])) == pytest.approx(quantile, rel=1e-4)
    assert 2 - 1e-3 <= found.degrees[0] <= 7 + 1e-2


def test_a_seed_without_a_value_takes_no_part() -> None:
    rng = np.random.default_rng(2)
    residuals, values = rng.normal(0, 0.1, (2, 6)), [1.4, 1.7]
    whole = _errors([values], residuals[None], [0] * 6, [[6]])
    gap = np.insert(residuals, 1, 0.0, axis=0)
    found = _errors([[1.4, NAN, 1.7], [1.4, NAN, NAN]], np.stack([gap, gap * [[1], [0], [0]]]), [0] * 6, [[6], [6]])
    for name in ("errors", "quantiles", "degrees"):
        assert getattr(found, name)[0] == pytest.approx(getattr(whole, name)[0])
    assert found.errors[1] == pytest.approx(np.sqrt((residuals[0] ** 2).sum()), rel=1e-5)
    assert found.degrees[1] == pytest.approx(5)
