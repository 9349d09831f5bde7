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
    """Measures one answer: phases inside the blocks of `running`; what lies in none of the phases is `outside`.

    Between those blocks it stands still, so that several answers may take turns.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._phases: defaultdict[str, float] = defaultdict(float)
        self._total = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Counts the time of the block."""
        start = now(self._device)
        yield
        self._total += now(self._device) - start

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time of the block, which lies within one of `running`, to a phase of `Seconds`."""
        start = now(self._device)
        yield
        self._phases[name] += now(self._device) - start

    def seconds(self) -> Seconds:
        """Returns the time counted so far, by phase."""
        return Seconds(outside=self._total - sum(self._phases.values()), **self._phases)
