"""Where the time of live decoding goes."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Wall time of an answer by phase, in seconds; seconds of several answers add up.

    Attributes:
        prefill: The target reading the prompt.
        drafting: The draft models drafting trees.
        target: The target verifying trees.
        outside: All else: strategy, masks, following the tree, the caches' upkeep.
    """

    prefill: float = 0.0
    drafting: float = 0.0
    target: float = 0.0
    outside: float = 0.0

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(**{name: value + getattr(other, name) for name, value in asdict(self).items()})

    @property
    def decoding(self) -> float:
        """Everything after prefill."""
        return self.drafting + self.target + self.outside

    @property
    def outside_share(self) -> float:
        """Share of `decoding` that is spent outside the two models; 0 if there was none."""
        return self.outside / self.decoding if self.decoding else 0.0


def now(device: torch.device) -> float:
    """Returns the time in seconds at which all work given to the device is done; only differences mean anything."""
    if device.type == "cuda":  # kernels run on after their launch
        torch.cuda.synchronize(device)
    return time.perf_counter()


class Clock:
    """Measures phases of one answer; what lies in none of them is `outside`, a phase `callback` is left out."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._phases: defaultdict[str, float] = defaultdict(float)
        self._start = now(self._device)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time of the block to a phase."""
        start = now(self._device)
        yield
        self._phases[name] += now(self._device) - start

    def stop(self) -> Seconds:
        """Returns the time since the clock was made, by phase."""
        outside = now(self._device) - self._start - sum(self._phases.values())
        phases = {name: seconds for name, seconds in self._phases.items() if name != "callback"}
        return Seconds(outside=outside, **phases)
