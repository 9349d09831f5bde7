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
        drafting: The draft models.
        target: The target's verification.
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


class Clock:
    """Measures phases of one answer; what lies in none of them is `outside`, a phase `callback` is left out."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._phases: defaultdict[str, float] = defaultdict(float)
        self._start = self._now()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time of the block to a phase."""
        start = self._now()
        yield
        self._phases[name] += self._now() - start

    def stop(self) -> Seconds:
        """Returns the time since the clock was made, by phase."""
        outside = self._now() - self._start - sum(self._phases.values())
        phases = {name: seconds for name, seconds in self._phases.items() if name != "callback"}
        return Seconds(outside=outside, **phases)

    def _now(self) -> float:
        if self._device.type == "cuda":  # kernels run on after their launch: a phase ends when its work does
            torch.cuda.synchronize(self._device)
        return time.perf_counter()
