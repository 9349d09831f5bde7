"""From the target's logits to the next token: temperature, top-k, top-p, and the draw.

The draw is the largest of logit / temperature + Gumbel noise over the tokens that top-k and top-p keep; its law is the
softmax. The noise is a function of (seed, prompt, turn, position, token) alone, so a text is a function of the seed:
batching cannot change it, and live decoding at T > 0 walks the recorded text.

    key      first 64 bits of SHA-256 of seed, turn and prompt; position j takes output j of SplitMix64 from there as
    bits     its own start, from which token v takes output v: 64 bits
    noise    -log(-log u), u = (the upper 52 bits + 1/2) / 2^52, never 0 or 1

What is the same on every machine, in every batch, on CPU and GPU: the bits, by integer arithmetic; the noise, up to the
last of 53 binary digits of a logarithm. What is not: the target's logits, whose last digits depend on processor, number
of threads, batch size and dtype. They decide where the two largest sums are closer than that: 1 draw in a million from
float32 logits (laptop study's target, batched and cached against plain; an inverse distribution function in the order
of the vocabulary would turn 10 draws in 10,000), and again where top-k or top-p cut between near-equals. From such a
token on, two recordings are different texts of the same law. bfloat16 logits are 2^-8 of themselves apart, and part
sooner.

Source: Gumbel-max, C. Maddison, D. Tarlow, T. Minka, "A* sampling" (2014); SplitMix64, G. Steele, D. Lea, C. Flood,
"Fast splittable pseudorandom number generators" (2014).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
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
        logits: [..., V] of the target.
    """
    return _kept_logits(logits, sampling).softmax(-1)


def _kept_logits(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Returns float64 [..., V]: logits / temperature, -inf for the tokens that top-k and top-p leave out."""
    scaled = logits.double() / sampling.temperature
    if 0 < sampling.top_k < scaled.shape[-1]:
        scaled = scaled.masked_fill(scaled < scaled.topk(sampling.top_k).values[..., -1:], -torch.inf)
    if sampling.top_p < 1.0:
        ordered, order = scaled.softmax(-1).sort(dim=-1, descending=True, stable=True)
        beyond = ordered.cumsum(-1) - ordered >= sampling.top_p  # mass before a token: the first is always kept
        scaled = scaled.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), -torch.inf)
    return scaled


def next_tokens(logits: torch.Tensor, sampling: Sampling, noise: torch.Tensor | None) -> torch.Tensor:
    """Returns int64 [B] next tokens.

    Args:
        logits: [B, V] of the target.
        sampling: Greedy at temperature 0.
        noise: float64 [B, V] of `gumbel_noise`, unused at temperature 0.
    """
    if sampling.temperature == 0.0:
        return logits.argmax(-1)
    assert noise is not None
    return (_kept_logits(logits, sampling) + noise).argmax(-1)


# --- noise -----------------------------------------------------------------------------------------------------------

_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # SplitMix64
_WORD = 1 << 64


@dataclass(frozen=True)
class Draws:
    """The random numbers of one answer.

    Attributes:
        seed: The one of the recording.
        prompt_id: Which prompt is answered.
        turn: Which turn of it, from 0.
    """

    seed: int
    prompt_id: str
    turn: int

    def key(self, position: int) -> int:
        """Returns 64 bits, the start of the noise that decides generated token number `position`."""
        digest = hashlib.sha256(f"{self.seed}:{self.turn}:{self.prompt_id}".encode()).digest()
        return splitmix64(int.from_bytes(digest[:8], "big"), position)

    def keys(self, count: int) -> np.ndarray:
        """Returns uint64 [count]: `key` of each position from 0."""
        digest = hashlib.sha256(f"{self.seed}:{self.turn}:{self.prompt_id}".encode()).digest()
        start = int.from_bytes(digest[:8], "big")
        return np.array([splitmix64(start, position) for position in range(count)], dtype=np.uint64)

    def noise(self, position: int, vocab_size: int, device: torch.device | str = "cpu") -> torch.Tensor:
        """Returns float64 [1, vocab_size], the noise of one position."""
        return gumbel_noise([self.key(position)], vocab_size, device)


def splitmix64(start: int, index: int) -> int:
    """Returns output number `index`, from 0, of the generator SplitMix64 with state `start`; 64 bits."""
    word = (start + (index + 1) * _STEP) % _WORD
    word = (word ^ word >> 30) * _FIRST % _WORD
    word = (word ^ word >> 27) * _SECOND % _WORD
    return word ^ word >> 31


def gumbel_noise(
    keys: Sequence[int] | torch.Tensor, vocab_size: int, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """Returns float64 [B, vocab_size] of standard Gumbel noise, one row per key of 64 bits.

    Args:
        keys: Integers, or the same bits as int64 [B] where the noise is wanted: nothing is copied then.
        vocab_size: How many numbers a row gets.
        device: Where the noise is wanted.
    """
    if torch.device(device).type == "cpu":
        words = [key % _WORD for key in (keys.tolist() if isinstance(keys, torch.Tensor) else keys)]
        shares = _shares_numpy(words, vocab_size)
    else:
        shares = _shares_torch(keys, vocab_size, device)
    return shares.log_().neg_().log_().neg_()


def _shares_numpy(keys: Sequence[int], vocab_size: int) -> torch.Tensor:
    """Returns float64 [B, V] between 0 and 1, from `splitmix64` of each key, row by row in the processor's cache."""
    steps = np.arange(1, vocab_size + 1, dtype=np.uint64) * np.uint64(_STEP)  # wraps around, as it should
    shares, shifted = np.empty((len(keys), vocab_size)), np.empty_like(steps)
    for row, key in zip(shares, keys, strict=True):
        word = row.view(np.uint64)
        np.add(steps, np.uint64(key), out=word)
        for shift, factor in ((30, _FIRST), (27, _SECOND), (31, 1)):
            word ^= np.right_shift(word, np.uint64(shift), out=shifted)
            word *= np.uint64(factor)
        word >>= np.uint64(12)
        word |= np.float64(1).view(np.uint64)  # read as a float: 1 + bits / 2^52
        row -= 1 - 2.0**-53
    return torch.from_numpy(shares)


def _shares_torch(keys: Sequence[int] | torch.Tensor, vocab_size: int, device: torch.device | str) -> torch.Tensor:
    """Returns the same numbers on any device, all rows at once; torch has signed words only."""

    def shifted(word: torch.Tensor, shift: int) -> torch.Tensor:
        return (word >> shift) & ((1 << (64 - shift)) - 1)  # zeros come in, not copies of the sign

    starts = keys if isinstance(keys, torch.Tensor) else torch.tensor([_signed(key) for key in keys], device=device)
    word = starts[:, None] + torch.arange(1, vocab_size + 1, device=device) * _signed(_STEP)
    for shift, factor in ((30, _FIRST), (27, _SECOND), (31, 1)):
        word = (word ^ shifted(word, shift)) * _signed(factor)
    return shifted(word, 12).double().add_(0.5).mul_(2.0**-52)


def _signed(word: int) -> int:
    """Returns the signed integer of the same 64 bits."""
    return word - _WORD if word >= _WORD // 2 else word
