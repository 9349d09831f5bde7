"""Formulas of memory against the peak of the real code on tensors without numbers, at Llama-3-8B's sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from taps.model.batches import Batch
from taps.model.drafter import DrafterConfig
from taps.model.family import FAMILIES, new_drafter
from taps.model.flops import num_parameters
from taps.model.losses import LossWeights
from taps.model.memory import TargetSizes, features_bytes, forward_bytes, sequence_bytes, training_bytes
from taps.model.noise import Noise
from taps.model.target_head import TargetHead
from taps.model.training import DraftTraining, Recipe
from tests.support.meta_memory import on_meta

LLAMA3_8B = DrafterConfig(
    hidden_size=4096,
    intermediate_size=14336,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    vocab_size=128256,
    max_position_embeddings=8192,
    rms_norm_eps=1e-5,
    rope={"rope_type": "default", "rope_theta": 5e5},
)
TARGET = TargetSizes(layer=LLAMA3_8B, num_layers=32, vocab=128256)
VICUNA_13B: dict[str, Any] = {
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_attention_heads": 40,
    "head_dim": 128,
}


def step_peak(family: str, lengths: list[int], *, dtype: torch.dtype = torch.bfloat16, share: float = 0.7) -> float:
    """Returns the most bytes alive in forward and backward of a training step, weights and both ends included."""
    passes = FAMILIES[family].training.get("alignment_passes", 1)
    recipe = Recipe(
        num_steps=1,
        learning_rate=1.0,
        warmup_share=0.1,
        accumulation=1,
        loss_weights=LossWeights(top_k=FAMILIES[family].training.get("top_k_weight", 0.0)),
        num_passes=passes,
        attention="causal",
        noise=Noise(),
        clip_value=0.0,
        fingerprint="",
    )
    hidden, vocab = LLAMA3_8B.hidden_size, LLAMA3_8B.vocab_size
    num_inputs, num_supervised = sum(lengths), int(share * sum(lengths))
    with on_meta() as memory:
        ends = [torch.empty(vocab, hidden, dtype=dtype) for _ in range(2)]
        head = TargetHead(embedding=ends[0], head=ends[1], token_ids=None, config={})
        module = DraftTraining(new_drafter(LLAMA3_8B).to(dtype), head, recipe, FAMILIES[family])
        batch = Batch(
            next_tokens=torch.empty(num_inputs, dtype=torch.int64),
            features=torch.empty(num_inputs, hidden, dtype=dtype),
            supervised=torch.empty(num_supervised, dtype=torch.int64),
            targets=torch.empty(num_supervised, hidden, dtype=dtype),
            lengths=lengths,
        )
        memory.peak = memory.now
        module(batch).total.backward()
        return memory.peak


# --- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "gigabytes"), [("eagle2", 8), ("hass", 34)])
def test_a_step_of_eight_longest_rows_fits_a_gpu(family, gigabytes):
    """Eight rows of 2,048 tokens, as paper.yaml's longest; next to it come 5 GB of optimizer and buckets."""
    assert step_peak(family, [2048] * 8) < gigabytes * 1e9


@pytest.mark.parametrize("family", ["eagle2", "hass"])
@pytest.mark.parametrize("lengths", [[2048] * 8, [900] * 8, [240] * 8, [2048] + [300] * 7])
def test_training_is_reckoned_with_within_a_fifth(family, lengths):
    peak = step_peak(family, lengths)
    passes = FAMILIES[family].training.get("alignment_passes", 1)
    reckoned = training_bytes(TARGET, head_columns=128256, lengths=lengths, num_passes=passes, width=2)
    reckoned -= 1.1 * num_parameters(LLAMA3_8B) * 16  # fp32 gradients and optimizer, not in the step
    assert peak < reckoned < 1.2 * peak


def test_zero_shares_the_optimizer_and_takes_buckets():
    arguments: dict[str, Any] = {"head_columns": 128256, "lengths": [900] * 8, "num_passes": 1, "width": 2}
    alone = training_bytes(TARGET, **arguments)
    shared = training_bytes(TARGET, **arguments, zero_stage=1, world=4)
    saved, buckets = num_parameters(LLAMA3_8B) * 16 * 3 / 4, num_parameters(LLAMA3_8B) * 6
    assert alone - shared == pytest.approx(1.1 * (saved - buckets))


# --- the target ------------------------------------------------------------------------------------------------------


def forward_peak(num_rows: int, length: int) -> float:
    """Returns the most bytes alive in a forward through two of the library's layers, beyond their weights."""
    names = ("hidden_size", "intermediate_size", "head_dim")
    sizes: dict[str, Any] = {"attn_implementation": "sdpa", **{name: getattr(LLAMA3_8B, name) for name in names}}
    config = LlamaConfig(**sizes, num_attention_heads=32, num_key_value_heads=8)
    with on_meta() as memory, torch.inference_mode():
        layers = [LlamaDecoderLayer(config, number).to(torch.bfloat16) for number in range(2)]
        states = torch.empty((num_rows, length, LLAMA3_8B.hidden_size), dtype=torch.bfloat16)
        angles = torch.empty((2, 1, length, 128), dtype=torch.bfloat16).unbind()
        memory.peak = before = memory.now
        for layer in layers:
            states = layer(states, attention_mask=None, position_embeddings=angles)
        return memory.peak - before


@pytest.mark.parametrize(("rows", "length"), [(8, 2048), (1, 512)])
def test_a_forward_is_reckoned_with_within_a_half(rows, length):
    peak = forward_peak(rows, length)
    assert peak < forward_bytes(LLAMA3_8B, rows * length, 2) < 1.5 * peak


def test_a_text_without_grouped_queries_takes_six_times_the_cache():
    """Vicuna-13B: 0.8 MB per token, so that the paper's 64 texts of 1,144 tokens fit an 80 GB device only in part."""
    layer = DrafterConfig(**{**vars(LLAMA3_8B), **VICUNA_13B, "num_key_value_heads": 40, "vocab_size": 32000})
    vicuna = TargetSizes(layer=layer, num_layers=40, vocab=32000)
    assert vicuna.cache_bytes(2) == pytest.approx(0.82e6, rel=0.01)
    assert vicuna.cache_bytes(2) > 6 * TARGET.cache_bytes(2)
    room = 80e9 - vicuna.weight_bytes(2)
    per_text = sequence_bytes(vicuna, prompt=300, new=1024, width=2)
    assert 30 < room / per_text < 64
    assert (80e9 - TARGET.weight_bytes(2)) / sequence_bytes(TARGET, prompt=300, new=1024, width=2) > 64


def test_weights_are_the_known_ones():
    assert TARGET.num_weights == pytest.approx(8.03e9, rel=0.001)
    assert TARGET.weight_bytes(2) == pytest.approx(1.1 * 16.06e9, rel=0.001)
    assert TargetSizes(layer=LLAMA3_8B, num_layers=32, vocab=128256, parameters=5e9).num_weights == 5e9
    small = features_bytes(TARGET, batch_tokens=512, shard_tokens=32768, width=2)
    assert 0 < features_bytes(TARGET, batch_tokens=16384, shard_tokens=32768, width=2) - small < 8e9
