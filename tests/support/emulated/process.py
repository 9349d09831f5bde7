"""A process that has the emulated device: modules move to it, `torch.cuda` answers, threads see it.

What a process has entered once it keeps in part: use one of its own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from tests.support.emulated.device import (
    CUDA,
    NAME,
    PINNED,
    RECORD,
    Dispatch,
    Functions,
    OnDevice,
    Record,
    host_of,
    is_ours,
    translated,
)


def _moved(module: torch.nn.Module, dtype: torch.dtype | None) -> torch.nn.Module:
    """Returns the module with all parameters and buffers on the device, shared ones still shared."""
    made: dict[int, Any] = {}

    def moved(tensor: Any) -> Any:
        casts = dtype is not None and tensor.is_floating_point() and tensor.dtype != dtype
        if isinstance(tensor.data, OnDevice) and not casts:
            return tensor
        if id(tensor) not in made:
            own = OnDevice((host_of(tensor.data).to(dtype) if casts else host_of(tensor.data)).detach().clone())
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            kept = torch.nn.Parameter(own, requires_grad=tensor.requires_grad) if is_parameter else own
            made[id(tensor)] = (kept, tensor)  # the old one is kept, so that its id stays taken
        return made[id(tensor)][0]

    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = moved(tensor)
    return module


_module_to = torch.nn.Module.to


def _to(self: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
    names = [translated(value) for value in args], {key: translated(value) for key, value in kwargs.items()}
    device, dtype, *_ = torch._C._nn._parse_to(*names[0], **names[1])
    if device is not None and is_ours(device):
        return _moved(self, dtype)
    return _module_to(self, *args, **kwargs)


_torch_empty, _thread_run = torch.empty, threading.Thread.run


def _empty(*args: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
    """Returns `torch.empty`, also where pinned memory cannot be had, and remembers that it is pinned."""
    made = _torch_empty(*args, **kwargs)
    if pin_memory:
        PINNED.add(made.untyped_storage().data_ptr())
    return made


def _run_thread(self: threading.Thread) -> None:
    """Runs a thread that sees the device, too: modes belong to one thread."""
    with Functions(), Dispatch():
        _thread_run(self)


class _Stream:
    """The one stream of the device: nothing on it is ever late."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = CUDA

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: Any) -> None: ...
    def record(self, *_: Any) -> None: ...
    def record_event(self, event: Any = None) -> Any:
        return event or self

    def wait_stream(self, _: Any) -> None: ...
    def wait_event(self, _: Any) -> None: ...
    def wait(self, _: Any = None) -> None: ...
    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        return 0.0

    def synchronize(self) -> None:
        RECORD.note("sync", "stream.synchronize")


_STREAM = _Stream()
_PROPERTIES = SimpleNamespace(name="Emulated H200", major=9, minor=0, total_memory=int(80e9), multi_processor_count=132)
_CUDA_FUNCTIONS: dict[str, Any] = {
    "init": lambda: None,
    "_lazy_init": lambda: None,
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": lambda *_: None,
    "mem_get_info": lambda *_: (int(80e9), int(80e9)),
    "get_device_properties": lambda *_: _PROPERTIES,
    "get_device_capability": lambda *_: (9, 0),
    "get_device_name": lambda *_: _PROPERTIES.name,
    "is_bf16_supported": lambda *_: True,
    "Stream": _Stream,
    "Event": _Stream,
    "stream": lambda _: _STREAM,
    "current_stream": lambda *_: _STREAM,
    "default_stream": lambda *_: _STREAM,
    "synchronize": lambda *_: RECORD.note("sync", "synchronize"),
    "empty_cache": lambda: None,
    "memory_allocated": lambda *_: 0,
    "max_memory_allocated": lambda *_: 0,
    "reset_peak_memory_stats": lambda *_: None,
}


def why_not() -> str | None:
    """Returns why this PyTorch cannot emulate a device, None if it can."""
    from torch.utils import backend_registration

    if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        return "this PyTorch has no back ends in Python"
    return None


@contextlib.contextmanager
def emulated() -> Iterator[Record]:
    """Yields the record of a device `cuda:0` that exists within the block."""
    from torch.utils import backend_registration

    if not getattr(emulated, "is_set_up", False):
        backend_registration._setup_privateuseone_for_python_backend(NAME)
        emulated.is_set_up = True  # type: ignore[attr-defined]
    torch.version.cuda = "emulated"
    for name, function in _CUDA_FUNCTIONS.items():
        setattr(torch.cuda, name, function)
    for name in ("range_push", "range_pop"):
        setattr(torch.cuda.nvtx, name, lambda *_: 0)
    OnDevice.record_stream = lambda *_: None  # type: ignore[method-assign]
    torch.nn.Module.to = _to  # type: ignore[method-assign,assignment]
    torch.empty = _empty  # type: ignore[assignment]
    threading.Thread.run = _run_thread  # type: ignore[method-assign]
    RECORD.clear()
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(...) copies from the host
    try:
        with Functions(), Dispatch():
            yield RECORD
    finally:
        torch._C._set_only_lift_cpu_tensors(False)
