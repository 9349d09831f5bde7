"""TensorBoard's event files of a training, beside `metrics.jsonl`: to look at it while it runs.

tensorboard --logdir logs/laptop/tensorboard
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from taps.plumbing.errors import TapsError


class TrainingLog:
    """Scalars over optimizer steps: `step/*` as training goes on, `epoch/*` with the validation of each epoch.

    Args:
        folder: Of the event files.
        first_step: That this process will do; what a killed one wrote from there on is not shown.

    Raises:
        TapsError: the package tensorboard is not there.
    """

    def __init__(self, folder: Path, first_step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            remedy = "install it with: pip install tensorboard; or train without"
            raise TapsError("--tensorboard", "the package tensorboard is not installed", remedy=remedy) from None
        self._writer = SummaryWriter(str(folder), purge_step=first_step + 1)

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Writes scalars `<kind>/<name>` at an optimizer step, counted from 1."""
        for name, value in values.items():
            self._writer.add_scalar(f"{kind}/{name}", value, step)
        if kind == "epoch":
            self._writer.flush()

    def close(self) -> None:
        """Writes what is left."""
        self._writer.close()
