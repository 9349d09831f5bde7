"""From the target's logits to the next token: temperature, top-k, top-p, and the draw.

The draw is by inverse distribution function from a uniform number that belongs to (seed, prompt, turn, position), so a
text is a function of the seed alone: batching cannot change it, and live decoding at T > 0 walks the recorded text.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the target picks a token.

    Attributes:
        temperature: 0 takes the most likely token.
        top_p: Keeps the smallest set of tokens whose probability reaches top_p; 1 keeps all.
        top_k: Keeps the k most likely tokens; 0 keeps all.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns the settings as plain numbers; equal dicts mean equal laws."""
        return asdict(self)


def target_probs(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Returns float64 [..., V], the law of the next token for `temperature` > 0.

    Order as in the library's generate: temperature, then top-k, then top-p on what is left.

    Args:
        logits: [..., V].
    """
    scaled = logits.double() / sampling.temperature
    if 0 < sampling.top_k < scaled.shape[-1]:
        scaled = scaled.masked_fill(scaled < scaled.topk(sampling.top_k).values[..., -1:], -torch.inf)
    probs = scaled.softmax(-1)
    if sampling.top_p < 1.0:
        ordered, order = probs.sort(dim=-1, descending=True, stable=True)
        beyond = ordered.cumsum(-1) - ordered >= sampling.top_p  # mass before a token: the first is always kept
        probs = torch.zeros_like(probs).scatter(-1, order, ordered.masked_fill(beyond, 0.0))
        probs = probs / probs.sum(-1, keepdim=True)
    return probs


def next_tokens(logits: torch.Tensor, sampling: Sampling, uniforms: torch.Tensor | None) -> torch.Tensor:
    """Returns int64 [B] next tokens.

    Args:
        logits: [B, V].
        sampling: Greedy at temperature 0.
        uniforms: float64 [B] in [0, 1), unused at temperature 0.
    """
    if sampling.temperature == 0.0:
        return logits.argmax(-1)
    assert uniforms is not None
    cumulative = target_probs(logits, sampling).cumsum(-1)
    # scaled by the sum as summed, so that rounding cannot push a draw behind the last token
    targets = uniforms.to(cumulative)[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, targets, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)


def uniforms(seed: int, prompt_id: str, turn: int, count: int) -> np.ndarray:
    """Returns float64 [count]: the number at index j decides generated token j of this prompt's turn."""
    digest = hashlib.sha256(f"{seed}:{turn}:{prompt_id}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big"))).random(count)
