"""Tests of taps.model.sampling: the library's own law, and draws that follow it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from taps.model.sampling import Sampling, next_tokens, target_probs, uniforms

settings_of = st.builds(
    Sampling,
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.7]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 1.0]),
    top_k=st.sampled_from([0, 1, 3, 50]),
)


def _logits(seed: int, rows: int = 4, vocab: int = 20) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 2, (rows, vocab)))


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sampling=settings_of)
def test_law_is_that_of_the_librarys_generate(seed, sampling):
    logits = _logits(seed)
    expected = TemperatureLogitsWarper(sampling.temperature)(None, logits)
    if sampling.top_k:
        expected = TopKLogitsWarper(sampling.top_k)(None, expected)
    if sampling.top_p < 1:
        expected = TopPLogitsWarper(sampling.top_p)(None, expected)
    torch.testing.assert_close(target_probs(logits, sampling), expected.softmax(-1), atol=1e-12, rtol=1e-9)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sampling=settings_of, draw=st.floats(0, 1, exclude_max=True))
def test_a_draw_lies_in_the_interval_of_its_token(seed, sampling, draw):
    logits = _logits(seed)
    probs = target_probs(logits, sampling).numpy()
    tokens = next_tokens(logits, sampling, torch.full((4,), draw, dtype=torch.float64)).numpy()
    rows = np.arange(4)
    assert (probs[rows, tokens] > 0).all()
    upper = probs.cumsum(axis=1)[rows, tokens]
    assert (draw <= upper + 1e-12).all()
    assert (draw >= upper - probs[rows, tokens] - 1e-12).all()


def test_the_ends_of_the_unit_interval():
    """Zero must not pick a token of probability zero in front, nor must the largest float fall behind the last one."""
    logits = torch.tensor([[-torch.inf, 0.0, 0.0, -torch.inf]])
    for draw, token in ((0.0, 1), (0.5 - 1e-12, 1), (0.5, 2), (1 - 2**-53, 2)):
        draws = torch.tensor([draw], dtype=torch.float64)
        assert next_tokens(logits, Sampling(temperature=1.0), draws).tolist() == [token]


def test_greedy_needs_no_draw():
    assert next_tokens(torch.tensor([[0.0, 3.0, 1.0], [2.0, 0.0, 1.0]]), Sampling(), None).tolist() == [1, 0]


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    for top_p, kept in ((0.2, 1), (0.5, 1), (0.51, 2), (0.8, 2), (0.96, 4)):
        probs = target_probs(logits, Sampling(temperature=1.0, top_p=top_p))
        assert int((probs > 0).sum()) == kept
        assert float(probs.sum()) == pytest.approx(1)


def test_each_row_has_its_own_draw():
    logits = torch.zeros((3, 4))
    draws = torch.tensor([0.1, 0.6, 0.9], dtype=torch.float64)
    assert next_tokens(logits, Sampling(temperature=1.0), draws).tolist() == [0, 2, 3]


def test_uniforms_belong_to_seed_prompt_and_turn():
    first = uniforms(0, "q1", 0, 50)
    np.testing.assert_array_equal(first, uniforms(0, "q1", 0, 50))
    np.testing.assert_array_equal(first[:20], uniforms(0, "q1", 0, 20))  # a longer limit changes no draw
    others = [uniforms(1, "q1", 0, 50), uniforms(0, "q2", 0, 50), uniforms(0, "q1", 1, 50), uniforms(0, "1", 0, 50)]
    assert all((first != other).all() for other in others)
    assert ((first >= 0) & (first < 1)).all()
