"""Which library multiplies fp32 matrices on a CPU."""

from __future__ import annotations

import torch


def use_widest_float32() -> None:
    """Lets fp32 matrix products run on AVX-512 on every CPU that has it; they stay fp32.

    By default PyTorch hands them to MKL, which stops at AVX2 on CPUs that are not Intel's: 200 of 475 GFLOP/s on two
    Zen 5 cores. A product that is *allowed* to round its factors to bfloat16 goes to oneDNN instead, which makes use of
    that only on CPUs with AMX and computes in fp32 with AVX-512 elsewhere. So: allowed, except where there is AMX.
    """
    features = torch.cpu.get_capabilities()
    if features.get("avx512_f") and not features.get("amx_tile"):
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]  # made on import
