"""Plain decoding of one prompt, timed: what speculative decoding is measured against."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taps.model.sampler import continue_batch
from taps.model.sampling import Draws, Sampling
from taps.model.target import Target


@dataclass(frozen=True, kw_only=True)
class Plain:
    """An answer decoded token by token.

    Attributes:
        tokens: int32 [n].
        decoding_s: Wall time behind the first token, seconds.
    """

    tokens: np.ndarray
    decoding_s: float


def decode_plainly(
    target: Target,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    draws: Draws | None = None,
) -> Plain:
    """Returns the target's answer at batch size 1; arguments as in `taps.decoding.engine.decode`."""
    stamps: list[float] = []
    sampling = sampling or Sampling()
    (answer,) = continue_batch(
        target,
        [prompt],
        sampling=sampling,
        draws=None if draws is None or sampling.temperature == 0.0 else [draws],
        max_new_tokens=max_new_tokens,
        on_tokens=lambda _: stamps.append(time.perf_counter()),
    )
    return Plain(tokens=answer.tokens, decoding_s=stamps[-1] - stamps[0])
