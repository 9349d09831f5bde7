"""Peak memory of a computation on meta tensors: shapes and lifetimes are real, numbers are not, so that any size fits.

Counted is every storage from its making to its end, as an allocator without gaps would. What the CUDA build's kernels
take for themselves while they run (attention's float32 scratch, the matrix library's workspace) is not seen.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Memory(TorchDispatchMode):
    """Bytes of live storages on the meta device.

    Attributes:
        now: Alive.
        peak: Most alive at a time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._alive: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(found):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == "meta":
                self._add(leaf.untyped_storage())
        return found

    def _add(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._alive:
            return
        self._alive[key] = storage.nbytes()
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._drop, key)

    def _drop(self, key: int) -> None:
        self.now -= self._alive.pop(key, 0)


class _FusedAttention(TorchFunctionMode):
    """Attention as a fused kernel does it: nothing of the size queries x keys is ever stored."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            return _Attention.apply(*args[:3])
        return func(*args, **(kwargs or {}))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        found = torch.empty_like(query)
        statistics = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, found, statistics)
        return found

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> tuple[torch.Tensor, ...]:
        query, key, value, *_ = ctx.saved_tensors
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


@contextlib.contextmanager
def on_meta() -> Iterator[Memory]:
    """Yields the memory of what is computed in the block, whose new tensors are on the meta device."""
    with Memory() as memory, torch.device("meta"), _FusedAttention():
        yield memory
