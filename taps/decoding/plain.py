"""Plain decoding of one prompt, timed: what speculative decoding is measured against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from taps.decoding.timing import now
from taps.decoding.verification import Chooser, TargetText
from taps.model.sampling import Draws, Sampling
from taps.model.target import Target


@dataclass(frozen=True, kw_only=True)
class Plain:
    """An answer decoded token by token.

    Attributes:
        tokens: int32 [n] generated tokens, the end token included.
        decoding_s: Wall time behind the first token, seconds.
    """

    tokens: np.ndarray
    decoding_s: float


@torch.inference_mode()
def decode_plainly(
    target: Target,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    draws: Draws | None = None,
) -> Plain:
    """Returns the target's answer at batch size 1, by the engine's own forwards; arguments as in `engine.decode`."""
    text, choose = TargetText(target), Chooser(sampling or Sampling(), draws)
    limit = min(max_new_tokens, target.max_length - len(prompt))
    tokens: list[int] = []
    start = end = 0.0
    while len(tokens) < limit and (not tokens or tokens[-1] not in target.eos_ids):
        features = text.read([tokens[-1]] if tokens else prompt)
        tokens.append(choose(target.logits(features[-1]), len(tokens)))
        end = now(target.device)
        start = start or end
    return Plain(tokens=np.array(tokens, dtype=np.int32), decoding_s=end - start)
