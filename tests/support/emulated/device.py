"""The emulated device: a tensor subclass that claims `cuda:0`, and modes that compute its operations on the CPU.

Kept as CUDA keeps them: no operation takes tensors of both devices (0-dim CPU tensors and CPU indices excepted), and
nothing becomes a NumPy array without a copy. Counted, each with the line of ours that caused it:

    launch          an operation that would be a kernel
    sync            the host waits: a value or a tensor comes back, or a result's size depends on values
    copy            host -> device from pinned memory, behind what the device is told next
    pageable        host -> device from other memory: staged by the host first
    attention       calls of scaled_dot_product_attention, by shapes

The tensors lie on PyTorch's private device of Python back ends, with autograd and all; Python only ever sees `cuda:0`.
A process that has entered `emulated` once keeps parts of it: use it in a process of its own.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

CUDA = torch.device("cuda", 0)
NAME = "emulated"  # of the private device, which only C++ sees
aten: Any = torch.ops.aten

_CPU_INDEX = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
_VIEWS = {
    *("view", "_unsafe_view", "expand", "slice", "select", "transpose", "t", "permute", "unsqueeze", "squeeze"),
    *("detach", "alias", "as_strided", "split", "unbind", "split_with_sizes", "_reshape_alias", "diagonal", "unfold"),
    "lift_fresh",
}
_WAITS = {"_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "unique_consecutive", "_unique2"}


@dataclass
class Record:
    """What the device saw since it was last cleared.

    Attributes:
        counts: Of the kinds above.
        sites: (kind, operation, our line) -> how often, for kinds that a budget limits.
        attention: Shapes of queries, keys and mask of each attention, and whether it was causal -> how often.
        dim_rows: Attention calls with query rows that may attend to nothing.
    """

    counts: Counter[str] = field(default_factory=Counter)
    sites: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    attention: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    empty_rows: int = 0

    def clear(self) -> None:
        """Forgets all."""
        self.counts.clear()
        self.sites.clear()
        self.attention.clear()
        self.empty_rows = 0

    def note(self, kind: str, what: str = "") -> None:
        """Counts one of a kind; with `what`, also where it came from."""
        self.counts[kind] += 1
        if what:
            self.sites[kind, what, _our_line()] += 1


RECORD = Record()
PINNED: set[int] = set()  # addresses of storages
_hostile = False


def _our_line() -> str:
    """Returns `module.py:line` of the innermost frame within the package."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if "/taps/" in name and "/tests/" not in name:
            return f"{name.split('/taps/', 1)[1]}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "elsewhere"


class OnDevice(torch.Tensor):
    """A tensor of the device; its values are in `host`."""

    host: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, host: torch.Tensor) -> OnDevice:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            host.size(),
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            layout=host.layout,
            device=_private(),
            requires_grad=False,
        )

    def __init__(self, host: torch.Tensor) -> None:
        self.host = host

    def __repr__(self) -> str:  # type: ignore[override]
        return f"OnDevice({self.host!r})"

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    @property
    def data(self) -> torch.Tensor:
        return torch.Tensor.data.__get__(self)  # type: ignore[attr-defined]

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self.host = host_of(value)  # which C++ does not know of

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy it to the host first."
        )

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def tolist(self) -> Any:
        RECORD.note("sync", "tolist")
        return self.host.tolist()

    def data_ptr(self) -> int:
        return self.host.data_ptr()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _run(func, args, kwargs or {})


def _private() -> torch.device:
    return torch.device("privateuseone", 0)


def host_of(value: Any) -> Any:
    return value.host if isinstance(value, OnDevice) else value


def _wrapped(value: Any) -> Any:
    return OnDevice(value) if isinstance(value, torch.Tensor) and not isinstance(value, OnDevice) else value


def is_ours(device: Any) -> bool:
    return device is not None and torch.device(device).type in ("cuda", "privateuseone", NAME)


def _is_pinned(tensor: torch.Tensor) -> bool:
    return tensor.untyped_storage().data_ptr() in PINNED


# --- operations ------------------------------------------------------------------------------------------------------


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Computes one operation on the CPU and counts it as the device would have."""
    name = func.overloadpacket.__name__
    if func._can_decompose() and torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    ):
        with Dispatch():
            parts = func.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
    if func is aten._to_copy.default:
        return _copied(func, args[0], kwargs)
    if func is aten.copy_.default:
        return _copied_into(args[0], args[1], kwargs)
    tensors = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
    if not any(isinstance(tensor, OnDevice) for tensor in tensors):
        return _made(func, args, kwargs)
    _check_devices(func, args, tensors)
    if name in _WAITS or (func in _CPU_INDEX and _has_flags(args[1])):
        RECORD.note("sync", name)
    if name not in _VIEWS:
        RECORD.note("launch")
    kwargs = {
        key: torch.device("cpu") if key == "device" and value is not None else value for key, value in kwargs.items()
    }
    found = func(*tree_map(host_of, args), **tree_map(host_of, kwargs))
    if func is aten._local_scalar_dense.default:
        return found
    if (written := _written(func, args)) is not None:
        return written
    found = tree_map(_wrapped, found)
    if name in _VIEWS:
        with contextlib.suppress(Exception):
            return return_and_correct_aliasing(func, args, kwargs, found)
    return found


def _copied(func: Any, source: torch.Tensor, kwargs: dict[str, Any]) -> Any:
    """Returns what `to` makes: a copy between devices, or a cast on one."""
    device = kwargs.get("device")
    to_device = isinstance(source, OnDevice) if device is None else is_ours(device)
    plain = {key: value for key, value in kwargs.items() if key not in ("device", "pin_memory", "non_blocking")}
    found = func(host_of(source), **plain)
    if isinstance(source, OnDevice) and not to_device:
        RECORD.note("sync", "to the host")
    elif to_device and not isinstance(source, OnDevice):
        _note_to_device(source, bool(kwargs.get("non_blocking")))
    else:
        RECORD.note("launch")
    return OnDevice(found) if to_device else found


def _copied_into(target: torch.Tensor, source: torch.Tensor, kwargs: dict[str, Any]) -> torch.Tensor:
    host_of(target).copy_(host_of(source))
    if isinstance(target, OnDevice) and not isinstance(source, OnDevice):
        _note_to_device(source, bool(kwargs.get("non_blocking")))
    elif isinstance(source, OnDevice) and not isinstance(target, OnDevice):
        RECORD.note("sync", "copy_ to the host")
    else:
        RECORD.note("launch")
    return target


def _note_to_device(source: torch.Tensor, non_blocking: bool) -> None:
    RECORD.note("copy" if non_blocking and _is_pinned(source) else "pageable", "to the device")


def _made(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Returns what an operation makes out of nothing on a device, or computes on the host."""
    if is_ours(kwargs.get("device")):
        RECORD.note("launch")
        return tree_map(_wrapped, func(*args, **{**kwargs, "device": torch.device("cpu")}))
    return func(*args, **kwargs)


def _check_devices(func: Any, args: Any, tensors: list[torch.Tensor]) -> None:
    on_host = [tensor for tensor in tensors if not isinstance(tensor, OnDevice)]
    if func in _CPU_INDEX and on_host:
        if not isinstance(args[0], OnDevice):
            raise RuntimeError(f"indices should be on the same device as the indexed tensor (cpu) at {_our_line()}")
        RECORD.note("pageable", "an index of the host")
    elif any(tensor.dim() for tensor in on_host):
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
            f"({func} at {_our_line()})"
        )


def _has_flags(indices: Any) -> bool:
    """Returns whether an index is by flags: their places must be known before the result's size is."""
    return any(isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8) for index in indices or ())


def _written(func: Any, args: Any) -> Any:
    """Returns the argument that an in-place operation gives back, None for others."""
    schema = func._schema
    if not schema.is_mutable or not schema.returns or schema.returns[0].alias_info is None:
        return None
    if not schema.returns[0].alias_info.is_write:
        return None
    given = [
        value
        for value, argument in zip(args, schema.arguments, strict=False)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return given[0] if len(schema.returns) == 1 else tuple(given)


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class Functions(TorchFunctionMode):
    """Names of the device become the private one; attention, whose kernel C++ would choose, is written out."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            return attention(*args, **kwargs)
        if func is torch.Tensor.to:
            args = tuple(map(translated, args))
        if "device" in kwargs:
            kwargs["device"] = translated(kwargs["device"])
        return func(*args, **kwargs)


def translated(value: Any) -> Any:
    is_name = isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cuda"))
    return _private() if is_name and torch.device(value).type == "cuda" else value


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Returns what scaled_dot_product_attention does; rows that see nothing are zeros, or NaN where hostile."""
    if not isinstance(query, OnDevice):
        with torch._C.DisableTorchFunction():
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
            )
    RECORD.note("attention")
    shape = None if attn_mask is None else tuple(attn_mask.shape)
    RECORD.attention[tuple(query.shape), tuple(key.shape), shape, is_causal] += 1
    if attn_mask is not None and attn_mask.dtype == torch.bool and not bool(host_of(attn_mask).any(-1).all()):
        RECORD.empty_rows += 1
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = (states.repeat_interleave(repeats, -3) for states in (key, value))
    scores = (query @ key.transpose(-1, -2)) * (scale or 1 / math.sqrt(query.shape[-1]))
    if is_causal:
        seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=CUDA).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    if attn_mask is not None:
        is_flags = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -torch.inf) if is_flags else scores + attn_mask
    weights = scores.float().softmax(-1)
    return (weights if _hostile else weights.nan_to_num()).to(value.dtype) @ value


@contextlib.contextmanager
def hostile_kernels() -> Iterator[None]:
    """Lets attention answer NaN for query rows that may attend to nothing, as some kernels do."""
    global _hostile
    _hostile = True
    try:
        yield
    finally:
        _hostile = False
