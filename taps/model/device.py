"""Whether a device can do what a stage wants of it, asked before anything is loaded."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import torch

from taps.model.weight_files import find_weights, num_parameters
from taps.plumbing.errors import TapsError

_MARGIN = 1.1  # the library's buffers, fragments of the allocator, the kernels themselves


def check_device(device: str | torch.device, *, need_bytes: float = 0, what: str = "this job") -> None:
    """Checks that a device is there and has room; a CPU always passes.

    Args:
        device: As given to a stage: `cpu`, `cuda`, `cuda:1`.
        need_bytes: Device memory that will be wanted.
        what: Wants it, in messages.

    Raises:
        TapsError: this PyTorch has no CUDA, the driver or the device is missing, or the memory is too small or taken.
    """
    device = torch.device(device)
    if device.type != "cuda":
        return
    if torch.version.cuda is None and torch.version.hip is None:
        remedy = "install a build with CUDA from pytorch.org, or set device: cpu in the study"
        raise TapsError(f"--device {device}", "this PyTorch knows no GPU", found=torch.__version__, remedy=remedy)
    index, count = device.index or 0, _num_devices(device)
    if index >= count:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
        found = f"{count} (CUDA_VISIBLE_DEVICES {visible})"
        raise TapsError(f"--device {device}", "no such device", expected=f"{index + 1} devices", found=found)
    free, total = torch.cuda.mem_get_info(index)
    if need_bytes > total:
        remedy = "choose a smaller target, or a larger device; one target is never spread over several"
        raise TapsError(
            f"--device {device}", f"{what} is larger than the device", expected=_gb(need_bytes), found=_gb(total),
            remedy=remedy,
        )  # fmt: skip
    if need_bytes > free:
        remedy = "see nvidia-smi for who uses it, and wait for them"
        raise TapsError(
            f"--device {device}", f"too little free memory for {what}", expected=_gb(need_bytes),
            found=f"{_gb(free)} of {_gb(total)}", remedy=remedy,
        )  # fmt: skip


def weight_bytes(target: Path, dtype: torch.dtype) -> float:
    """Returns the device memory that a target's weights take in `dtype`, with what the library needs around them.

    Raises:
        TapsError: as `find_weights`.
    """
    return num_parameters(find_weights(target).files) * dtype.itemsize * _MARGIN


def _num_devices(device: torch.device) -> int:
    """Returns how many devices the driver shows.

    Raises:
        TapsError: the driver does not answer; says what it says instead.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same words as in the error
        try:
            torch.cuda.init()
        except (RuntimeError, AssertionError) as error:
            line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            remedy = "see nvidia-smi on this machine; under SLURM ask for a GPU"
            raise TapsError(f"--device {device}", "no GPU can be used here", found=line, remedy=remedy) from error
        return torch.cuda.device_count()


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
