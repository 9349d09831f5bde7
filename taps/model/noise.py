"""Uniform noise on input features: one law on the host, one on a device, each a function of (seed, place) alone.

On a CPU a row's noise comes from PyTorch's generator, seeded for the row. On a device that would be serial work of the
host, 150 ms for eight rows of 900 tokens at hidden size 4096, or numbers that depend on the device's size. There each
number is a hash of (seed, place of the row, position, channel) instead: the same on every device and in every batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

_MASK = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9  # spreads consecutive channels over 32 bits
_CHUNK = 2048  # tokens whose 64-bit integers are alive at a time


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Uniform noise on input features.

    Attributes:
        amplitude: Width of the interval around 0; 0 switches it off.
        published: Whether to scale by 512 / length, as the original does, so that short rows get more.
        seed: Decides the noise together with the row's place in the run.
    """

    amplitude: float = 0.0
    published: bool = False
    seed: int = 0

    def scale(self, length: int) -> float:
        """Returns the width of the interval for a row of `length` inputs."""
        return self.amplitude * (512 / length if self.published else 1.0)

    def draw(self, shape: Sequence[int], place: int) -> torch.Tensor:
        """Returns fp32 noise [n, h] of the row at `place` in the run's stream of rows: the law on the host."""
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + place) % (1 << 62))
        return (torch.rand(tuple(shape), generator=generator) - 0.5) * self.scale(shape[0])

    def keys(self, lengths: Sequence[int], places: Sequence[int]) -> np.ndarray:
        """Returns int64 [T], below 2^32: what decides the noise of each input of rows at these places."""
        rows = []
        for length, place in zip(lengths, places, strict=True):
            words = (self.seed & _MASK, self.seed >> 32 & _MASK, place & _MASK, place >> 32 & _MASK)
            row: np.ndarray = np.zeros((), dtype=np.uint64)
            for word in words:
                row = _mixed(row ^ np.uint64(word)) + np.uint64(_GOLDEN)
            rows.append(_mixed((row + np.arange(length, dtype=np.uint64)) & np.uint64(_MASK)))
        return np.concatenate(rows).astype(np.int64)

    def add_to(self, inputs: torch.Tensor, keys: torch.Tensor, lengths: Sequence[int]) -> None:
        """Adds the noise to `inputs` [T, h] in place, in fp32 before rounding: the law on a device.

        Args:
            inputs: Of any float dtype.
            keys: int64 [T] of `keys`, on the same device.
            lengths: Inputs of each row.
        """
        channels = torch.arange(inputs.shape[1], device=inputs.device) * _GOLDEN
        start = 0
        for length in lengths:
            for first in range(start, start + length, _CHUNK):
                part = slice(first, min(first + _CHUNK, start + length))
                noise = hashed_uniform(keys[part, None] + channels).sub_(0.5).mul_(self.scale(length))
                inputs[part] = noise.add_(inputs[part])
            start += length


def hashed_uniform(words: torch.Tensor) -> torch.Tensor:
    """Returns fp32 in [0, 1), 24 random bits each, from the low 32 bits of int64 `words`, which are overwritten.

    Source: the 32-bit mixing function with the least known bias of two multiplications (`lowbias32` of C. Wellons'
    search for integer hash functions).
    """
    words.bitwise_and_(_MASK)
    words.bitwise_xor_(words >> 16).mul_(0x7FEB352D).bitwise_and_(_MASK)
    words.bitwise_xor_(words >> 15).mul_(0x846CA68B).bitwise_and_(_MASK)
    words.bitwise_xor_(words >> 16)
    return (words >> 8).to(torch.float32).mul_(2.0**-24)


def _mixed(word: np.ndarray) -> np.ndarray:
    """Returns the 32-bit mix of `hashed_uniform` on uint64 arrays."""
    mask = np.uint64(_MASK)
    word = word & mask
    word = (word ^ word >> np.uint64(16)) * np.uint64(0x7FEB352D) & mask
    word = (word ^ word >> np.uint64(15)) * np.uint64(0x846CA68B) & mask
    return word ^ word >> np.uint64(16)
