"""The keys and values of one growing text, with room for what comes: nothing is copied when a tree is read or dropped.

Shape letters: L layers, G key-value heads, C capacity in tokens, d head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

_FIRST_ROOM = 256  # tokens; doubled when full


class TextCache(Cache):
    """A cache of the library's kind for one text; all layers share one buffer [L, 1, G, C, d] each for keys and values.

    Args:
        num_layers: L, layers that keep keys and values.
        room: Tokens to make room for at first.
    """

    def __init__(self, num_layers: int, *, room: int = _FIRST_ROOM) -> None:
        self._room = room
        self._buffers: list[torch.Tensor] = []  # keys, values
        self._layers = [_Layer(self, index) for index in range(num_layers)]
        super().__init__(layers=list(self._layers))

    def keep(self, length: int, path: Sequence[int]) -> None:
        """Leaves the first `length` tokens and those at `path`, moved up behind them in this order."""
        end = length + len(path)
        if list(path) != list(range(length, end)):
            places = torch.tensor(path, dtype=torch.int64, device=self._buffers[0].device)
            for buffer in self._buffers:
                buffer[:, :, :, length:end] = buffer[:, :, :, places]
        for layer in self._layers:
            layer.shorten(end)

    def space(self, which: int, like: torch.Tensor, end: int, length: int) -> torch.Tensor:
        """Returns the buffer of keys (0) or values (1) with room for `end` tokens, of which `length` are written.

        Args:
            like: [1, G, T, d] states to come.
        """
        if len(self._buffers) == which:
            shape = (len(self.layers), *like.shape[:2], max(self._room, end), like.shape[-1])
            self._buffers.append(like.new_empty(shape))
        buffer = self._buffers[which]
        if end > buffer.shape[3]:
            larger = buffer.new_empty((*buffer.shape[:3], max(2 * buffer.shape[3], end), buffer.shape[4]))
            larger[:, :, :, :length] = buffer[:, :, :, :length]
            self._buffers[which] = buffer = larger
        return buffer


class _Layer(DynamicLayer):
    """One layer's view of the shared buffers: `keys` and `values` are what has been written."""

    def __init__(self, cache: TextCache, index: int) -> None:
        super().__init__()
        self._cache, self._index = cache, index

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the keys and values [1, G, T, d] of everything read, the new ones included."""
        length = self.get_seq_length()
        end = length + key_states.shape[2]
        keys, values = (
            self._cache.space(which, states, end, length)[self._index]
            for which, states in enumerate((key_states, value_states))
        )
        keys[:, :, length:end] = key_states
        values[:, :, length:end] = value_states
        self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]
        return self.keys, self.values

    def shorten(self, end: int) -> None:
        """Forgets all but the first `end` tokens."""
        assert self.keys is not None
        assert self.values is not None
        self.keys, self.values = self.keys[:, :, :end], self.values[:, :, :end]
