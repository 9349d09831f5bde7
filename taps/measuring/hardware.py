"""What the machine under a measurement is: its name, its matrix product rate, its peak, and memory used on it."""

from __future__ import annotations

import gc
import re
import time
from pathlib import Path
from typing import Any

import torch

# Source: NVIDIA's data sheets, dense bfloat16 (the headline numbers count sparsity); the first name that fits counts
_BF16_PEAK_TFLOPS = {"H100 PCIe": 756.0, "H200": 989.0, "H100": 989.0, "A100": 312.0, "L40S": 362.0}


def describe(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Returns name, threads, torch version and rates (TFLOP/s) of a device; the peak is None if it is not known."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name()
    peak = next((rate for part, rate in _BF16_PEAK_TFLOPS.items() if part in name), None)
    return {
        "device": name,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "dtype": str(dtype).removeprefix("torch."),
        "matmul_tflops": round(matmul_rate(device, dtype) / 1e12, 4),
        "bf16_peak_tflops": peak,
    }


def _cpu_name() -> str:
    found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return found.group(1) if found else "CPU"


def matmul_rate(device: torch.device, dtype: torch.dtype, *, seconds: float = 0.5) -> float:
    """Returns the operations per second of square matrix products: what the machine gives right now, others included.

    Args:
        device: Where to multiply.
        dtype: That of the factors.
        seconds: Shortest time to measure for.
    """
    size = 8192 if device.type == "cuda" else 1024
    factor = torch.ones((size, size), device=device, dtype=dtype)
    _ = factor @ factor
    synchronise(device)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        _ = factor @ factor
        synchronise(device)
        count += 1
    return count * 2 * size**3 / (time.perf_counter() - start)


def synchronise(device: torch.device) -> None:
    """Waits until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class PeakMemory:
    """The most memory used since it was made: of the device, or of this process where the device is the CPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        gc.collect()  # what ran before must not count
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            Path("/proc/self/clear_refs").write_text("5")  # Linux: forget the highest resident size so far

    def megabytes(self) -> float:
        """Returns MB (10^6 bytes)."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 1e6
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        found = re.search(r"VmHWM:\s*(\d+) kB", status)
        assert found, "Linux reports the highest resident size of a process"
        return int(found.group(1)) * 1024 / 1e6
