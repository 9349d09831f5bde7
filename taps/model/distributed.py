"""Processes and the DeepSpeed engine: one process without ports, several by torchrun."""

from __future__ import annotations

import atexit
import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from taps.model.device import check_device
from taps.plumbing.errors import TapsError

_TIMEOUT = timedelta(hours=2)  # the others wait while the first process validates


def start_processes(device: str) -> tuple[int, int, torch.device]:
    """Returns (rank, world size, this process's device) after joining the process group, if that is still to do.

    torchrun sets RANK, WORLD_SIZE and LOCAL_RANK; without it there is one process, which opens no port. The *local*
    rank picks the device, so several machines work.

    Raises:
        TapsError: as `check_device`; more processes than devices, for one.
    """
    if device == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    local_rank = int(os.environ.setdefault("LOCAL_RANK", "0"))
    place = torch.device("cpu" if device == "cpu" else f"cuda:{local_rank}")
    check_device(place)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if not dist.is_initialized():
        backend = "nccl" if place.type == "cuda" else "gloo"
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            dist.init_process_group(backend, timeout=_TIMEOUT)
        else:
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
        atexit.register(_leave)
    return dist.get_rank(), dist.get_world_size(), place


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def make_engine(
    module: nn.Module,
    *,
    betas: tuple[float, float],
    weight_decay: float,
    clip_norm: float,
    zero_stage: int,
    dtype: torch.dtype,
    micro_batch_size: int,
    accumulation: int,
) -> Any:
    """Returns the DeepSpeed engine around `module`, with PyTorch's own AdamW (no compilation on first use).

    Its learning rate is 0 until the caller sets one, as it must before each step.

    Args:
        module: Computes the loss; only its trainable parameters are known to the engine.
        betas: Decay of AdamW's two moments.
        weight_decay: AdamW's decay, on all parameters.
        clip_norm: Largest gradient norm; 0 for none.
        zero_stage: ZeRO 0, 1 or 2.
        dtype: float32, or bfloat16 with float32 master weights.
        micro_batch_size: Rows per process and backward pass.
        accumulation: Backward passes per step.

    Raises:
        TapsError: ZeRO stage other than 0, 1, 2.
    """
    if zero_stage not in (0, 1, 2):
        raise TapsError("--zero-stage", "not supported", expected="0, 1 or 2", found=zero_stage)
    import deepspeed

    # else a start probes compilers for operators that we do not use, and the first compiles one of them for a minute
    deepspeed.ops.__compatible_ops__ = {}
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=0.0, betas=betas, weight_decay=weight_decay, fused=True)
    settings = {
        "train_micro_batch_size_per_gpu": micro_batch_size,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": clip_norm,
        "zero_optimization": {"stage": zero_stage},
        "zero_allow_untested_optimizer": True,
        # whoever trains looks at the losses: to look for bad gradients in each step is to wait for the device twice
        "bf16": {"enabled": dtype == torch.bfloat16, "check_grad_overflow": False},
        "timers": {"throughput": {"enabled": False}},  # which wait for it twice more
        "steps_per_print": 1 << 60,
    }
    engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=settings, dist_init_required=False)
    optimizer.state.clear()  # bfloat16 without ZeRO takes a trial step on zero gradients, which must not count
    return engine
