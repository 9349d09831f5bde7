"""Runs of `taps.train` in processes of their own that die at a chosen moment, forked from one that has all imported."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["torch._dynamo", "deepspeed", "taps.train", "taps.model.training", "taps.decoding.validation", __name__]
)


def start(argv: Sequence[str], log: Path, moment: str | None = None, count: int = 1) -> Any:
    """Returns the process of a run that kills itself the `count`-th time a moment of `MOMENTS` comes; stderr -> `log`.

    Args:
        argv: Of `taps.train`.
        log: Appended to.
        moment: None for a run that is left alone.
        count: From 1.
    """
    os.environ["DS_ACCELERATOR"] = "cpu"
    process = _FORKS.Process(target=_run, args=(list(argv), log, moment, count))
    process.start()
    return process


def finish(process: Any) -> int:
    """Returns the exit code of a run, -9 if it was killed."""
    process.join(timeout=120)
    assert process.exitcode is not None, "the run hangs"
    return process.exitcode


def _run(argv: list[str], log: Path, moment: str | None, count: int) -> None:
    from taps import train

    with open(log, "a") as file:
        os.dup2(file.fileno(), 2)
        sys.stderr = file
        if moment is not None:
            MOMENTS[moment](_bomb(count))
        train.main(argv)


def _bomb(count: int) -> Callable[[], None]:
    calls = itertools.count(1)

    def bomb() -> None:
        if next(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)

    return bomb


def _in_a_step(bomb: Callable[[], None]) -> None:
    from taps.model import losses

    draft_losses = losses.draft_losses

    def and_die(*args: Any) -> Any:
        bomb()
        return draft_losses(*args)

    losses.draft_losses = and_die  # type: ignore[assignment]


def _in_the_middle_of_a_file(bomb: Callable[[], None]) -> None:
    import torch

    save = torch.save

    def half(content: Any, path: Any, *args: Any, **kwargs: Any) -> None:
        save(content, path, *args, **kwargs)
        os.truncate(path, Path(path).stat().st_size // 2)
        bomb()
        save(content, path, *args, **kwargs)

    torch.save = half  # type: ignore[assignment]


def _before_the_manifest(bomb: Callable[[], None]) -> None:
    from taps.model import training_state

    write_text = training_state.write_text

    def die_first(path: Path, text: str) -> None:
        bomb()
        write_text(path, text)

    training_state.write_text = die_first


def _before_the_rename(bomb: Callable[[], None]) -> None:
    replace = os.replace

    def die_first(source: Any, destination: Any) -> None:
        if Path(destination).name.startswith("step-"):
            bomb()
        replace(source, destination)

    os.replace = die_first  # type: ignore[assignment]


def _before_the_draft_model_is_written(bomb: Callable[[], None]) -> None:
    from taps.model import checkpoint

    checkpoint.save_drafter = lambda *args, **kwargs: bomb()


MOMENTS: dict[str, Callable[[Callable[[], None]], None]] = {
    "in a step": _in_a_step,
    "in the middle of a file": _in_the_middle_of_a_file,
    "before the manifest": _before_the_manifest,
    "before the rename": _before_the_rename,
    "before the draft model is written": _before_the_draft_model_is_written,
}
