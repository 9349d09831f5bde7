"""Nominal 95 % intervals hold the truth in 93 to 97 % of simulated studies, training seeds included.

Each figure comes from 4,000 (seeds: 2,000) replications: Monte Carlo error 0.0034 (0.0049). The tables of all cases are
those of `python -m tests.support.interval_coverage`.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.interval_coverage import QUESTIONS, Crossed, question_coverage, seed_coverage, seed_pairing

KINDS = ("ratio", "difference", "mean", "difference of means")


@pytest.mark.parametrize("lengths", ["full", "mixed"])
@pytest.mark.parametrize("num_questions", QUESTIONS)
def test_over_questions(num_questions: int, lengths: str) -> None:
    rng = np.random.default_rng([1, num_questions])
    found = question_coverage(rng, replications=4000, num_questions=num_questions, lengths=lengths)
    assert {kind: found[kind] for kind in KINDS if not 0.93 <= found[kind] <= 0.97} == {}


@pytest.mark.parametrize("num_questions", QUESTIONS)
def test_over_answers_of_very_different_lengths(num_questions: int) -> None:
    """From 3 to 512 tokens; residuals over sum(d) and Q - 1 degrees would cover 0.90 at 7 questions."""
    rng = np.random.default_rng([2, num_questions])
    found = question_coverage(rng, replications=4000, num_questions=num_questions, lengths="wide")
    assert {kind: found[kind] for kind in KINDS if not 0.93 <= found[kind] <= 0.97} == {}


# (spread over seeds, over questions, the part of it that is new under every seed)
SPREADS = [(0.01, 0.21, 0.5), (0.03, 0.105, 0.5), (0.054, 0.07, 0.25)]


@pytest.mark.parametrize(("seed_sd", "question_sd", "share"), SPREADS)
@pytest.mark.parametrize("num_questions", QUESTIONS)
@pytest.mark.parametrize("num_seeds", [2, 3, 5])
def test_over_seeds_and_questions(
    num_seeds: int, num_questions: int, seed_sd: float, question_sd: float, share: float
) -> None:
    """Two seeds, one degree of freedom: rather too wide; three: up to 0.98, where seeds hardly matter."""
    case = Crossed(
        num_seeds=num_seeds, num_questions=num_questions, seed_sd=seed_sd, question_sd=question_sd, share=share
    )
    found = seed_coverage(np.random.default_rng([num_seeds, num_questions]), case, replications=2000)
    low, high = 0.93, {2: 0.995, 3: 0.98, 5: 0.975}[num_seeds]
    assert {kind: found[kind] for kind in KINDS if not low <= found[kind] <= high} == {}


def test_questions_alone_do_not_cover_training_seeds() -> None:
    """What an interval from one seed says about the recipe: 40 questions, seeds as far apart as chat on GSM8K."""
    case = Crossed(num_seeds=1, num_questions=40, seed_sd=0.054, question_sd=0.105, share=0.5)
    assert seed_coverage(np.random.default_rng(0), case, replications=2000)["difference"] < 0.6


@pytest.mark.parametrize("num_seeds", [2, 3, 5])
def test_pairing_by_seed_is_right_for_rows_that_share_draft_models_and_for_rows_that_do_not(num_seeds: int) -> None:
    """Taking the former for independent makes their intervals wider than they need be; Monte Carlo error 0.0015."""
    apart, sharing = (
        seed_pairing(np.random.default_rng(0), replications=20_000, num_seeds=num_seeds, correlation=correlation)
        for correlation in (0.0, 0.8)
    )
    assert 0.945 <= apart["paired"][0] <= 0.955
    assert 0.945 <= sharing["paired"][0] <= 0.955
    assert sharing["independent"][0] > 0.98
