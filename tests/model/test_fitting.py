"""Batches are as large as the memory allows, and smaller after it ran out; the answers stay the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from taps.model import sampler
from taps.model.fitting import continue_texts, texts_that_fit
from taps.model.sampling import Draws, Sampling
from taps.plumbing.errors import TapsError
from tests.support.live_fixtures import tiny_target

PROMPTS = [[1, 2, 3], [7], [4, 4, 9, 0, 2, 11, 5, 8], [3, 3], [10, 1, 6]]
ARGUMENTS: dict[str, Any] = {"sampling": Sampling(), "draws": None, "max_new_tokens": 9}


@pytest.fixture(scope="module")
def target():
    return tiny_target()


@pytest.fixture
def sizes(monkeypatch):
    """Returns the sizes of the batches that are tried; those above `limit` run out of memory."""
    tried = SimpleNamespace(sizes=[], limit=99, error=torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"))
    real = sampler.continue_batch

    def continue_batch(target, prompts, **arguments):
        tried.sizes.append(len(prompts))
        if len(prompts) > tried.limit:
            raise tried.error
        return real(target, prompts, **arguments)

    monkeypatch.setattr(sampler, "continue_batch", continue_batch)
    return tried


def tokens(answers):
    return [answer.tokens.tolist() for answer in answers]


def test_one_batch_where_there_is_room(target, sizes):
    assert tokens(continue_texts(target, PROMPTS, **ARGUMENTS)) == tokens(
        sampler.continue_batch(target, PROMPTS, **ARGUMENTS)
    )
    assert sizes.sizes == [5, 5]


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("DefaultCPUAllocator: can't allocate memory: you")],
)
def test_a_batch_that_is_too_large_is_halved_and_the_rest_goes_on(target, sizes, capsys, error):
    expected = tokens(sampler.continue_batch(target, PROMPTS, **ARGUMENTS))
    sizes.sizes, sizes.limit, sizes.error = [], 2, error
    sampled = {**ARGUMENTS, "sampling": Sampling(temperature=1.0), "draws": [Draws(0, str(i), 0) for i in range(5)]}
    assert tokens(continue_texts(target, PROMPTS, **ARGUMENTS)) == expected
    assert sizes.sizes == [5, 3, 2, 2, 1]
    assert "out of memory: 2 texts at a time" in capsys.readouterr().err
    halved = tokens(continue_texts(target, PROMPTS, **sampled))
    sizes.limit = 99
    assert halved == tokens(continue_texts(target, PROMPTS, **sampled))


def test_a_single_text_that_is_too_much_is_named(target, sizes):
    sizes.limit = 0
    with pytest.raises(TapsError, match="no memory for a single text, found 3 tokens and 9 new ones; lower max_new"):
        continue_texts(target, PROMPTS, **ARGUMENTS)


def test_other_errors_pass(target, sizes):
    sizes.limit, sizes.error = 0, RuntimeError("something else")
    with pytest.raises(RuntimeError, match="something else"):
        continue_texts(target, PROMPTS, **ARGUMENTS)


def test_the_room_is_asked_for(target, monkeypatch):
    assert texts_that_fit(target, prompt=100, new=100) > 10**9  # a CPU
    memory = SimpleNamespace(free=52e9)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (memory.free, 80e9))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 3e9)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 2e9)
    config = {
        "hidden_size": 5120,
        "intermediate_size": 13824,
        "num_attention_heads": 40,
        "num_hidden_layers": 40,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
    }
    parameters = [torch.empty(0, dtype=torch.bfloat16)]
    vicuna: Any = SimpleNamespace(
        device=torch.device("cuda"), config=config, model=SimpleNamespace(parameters=lambda: iter(parameters))
    )
    many = texts_that_fit(vicuna, prompt=300, new=1024)
    assert 30 < many < 45  # of the paper's 64
    memory.free = 0.0
    assert texts_that_fit(vicuna, prompt=300, new=1024) == 1
