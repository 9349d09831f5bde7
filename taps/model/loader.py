"""Batches of a training run, read while the steps before them are computed.

On a CPU one thread makes the next step's batch whole, with the host's law of noise. For a device several threads read
the rows of the next steps into pinned memory, as they lie on disk; conversion and noise are the device's work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

from taps.model.batches import Batch, Conversations, HostRows, Plan
from taps.model.noise import Noise

_T = TypeVar("_T")
_STEPS_AHEAD = 4  # read at once for a device: hides a shared file system's latency, takes 4 x 60 MB at h = 4096


def batches_of(
    conversations: Conversations,
    plan: Plan,
    *,
    steps: range,
    noise: Noise,
    accumulation: int,
    rank: int,
    world: int,
    like: torch.Tensor,
) -> Iterator[tuple[int, list[Batch]]]:
    """Yields (step, this process's micro-batches) on the device and in the dtype of `like`.

    Args:
        conversations: Tokens and features of the rows.
        plan: Which rows each step sees.
        steps: Optimizer steps to load.
        noise: What is added to the input features.
        accumulation: Micro-batches per step and process.
        rank: Which process this is, from 0.
        world: How many processes train together.
        like: A tensor with the device and dtype that batches get.
    """
    on_device = like.device.type != "cpu"

    def places_of(step: int) -> list[range]:
        places = plan.places(step)
        return [places[rank * accumulation + part :: world * accumulation] for part in range(accumulation)]

    def load(step: int) -> list[HostRows | Batch]:
        rows = [(places, [plan.row_at(place) for place in places]) for places in places_of(step)]
        if on_device:
            return [conversations.read(own, noise=noise, places=places, pinned=True) for places, own in rows]
        return [conversations.batch(own, noise=noise, places=places) for places, own in rows]

    ahead = _STEPS_AHEAD if on_device and conversations.is_stored else 1
    for step, made in zip(steps, in_flight(load, steps, ahead=ahead), strict=True):
        yield step, [part if isinstance(part, Batch) else part.on(like) for part in made]


def in_flight(load: Callable[[int], _T], steps: Sequence[int], *, ahead: int) -> Iterator[_T]:
    """Yields `load(step)` for each step, in order; while one is used, the next `ahead` are loaded, each by a thread."""
    with ThreadPoolExecutor(max_workers=ahead) as threads:
        waiting: deque[Future[_T]] = deque()
        for step in steps:
            waiting.append(threads.submit(load, step))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
