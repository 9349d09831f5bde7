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


def decode_plainly(
    target: Target,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    draws: Draws | None = None,
) -> Plain:
    """Returns the target's answer at batch size 1, by the engine's own forwards; arguments as in `engine.decode`."""
    decoding = PlainDecoding(target, prompt, max_new_tokens=max_new_tokens, sampling=sampling, draws=draws)
    while not decoding.is_complete():
        decoding.step()
    return decoding.result()


class PlainDecoding:
    """One answer in the making, token by token; arguments as in `decode_plainly`."""

    def __init__(
        self,
        target: Target,
        prompt: Sequence[int],
        *,
        max_new_tokens: int,
        sampling: Sampling | None = None,
        draws: Draws | None = None,
    ) -> None:
        self.target, self.prompt = target, prompt
        self.text, self.choose = TargetText(target), Chooser(sampling or Sampling(), draws)
        self.limit = min(max_new_tokens, target.max_length - len(prompt))
        self.tokens: list[int] = []
        self.seconds = 0.0

    def is_complete(self) -> bool:
        """Returns whether the answer has all its tokens."""
        return len(self.tokens) >= self.limit or bool(self.tokens and self.tokens[-1] in self.target.eos_ids)

    @torch.inference_mode()
    def step(self) -> list[int]:
        """Returns one more token; the time of all but the first counts."""
        start = now(self.target.device)
        features = self.text.read(self.tokens[-1:] or self.prompt)
        emitted = [self.choose(self.target.logits(features[-1]), len(self.tokens))]
        self.seconds += now(self.target.device) - start if self.tokens else 0.0
        self.tokens += emitted
        return emitted

    def result(self) -> Plain:
        """Returns the answer and its time."""
        return Plain(tokens=np.array(self.tokens, dtype=np.int32), decoding_s=self.seconds)
