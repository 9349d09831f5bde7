"""Leases: who may use a device or a study right now, by locks that the kernel drops when their holder dies.

    python -m taps.plumbing.lease --gpus 2 -- torchrun --standalone --nproc-per-node 2 -m taps.train ...

Snakemake's `gpu` resource counts jobs of one run; it neither picks a device nor knows of other runs. A lease does: it
locks one file per device (flock), all wanted devices or none, and names them to the command in CUDA_VISIBLE_DEVICES.
Under SLURM the scheduler has done this already and the command runs as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError

_POLL_S = 1.0


def hold_file(path: Path, *, what: str) -> IO[str]:
    """Returns the open, locked file; it stays locked until it is closed or this process ends, by kill -9 too.

    Args:
        path: Lock file, created if absent, never removed (removing it would let two holders in).
        what: What the lock stands for, for the message.

    Raises:
        TapsError: another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 (stays open: closing it would drop the lock)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise TapsError(path, f"{what} is in use by process {holder}", remedy="wait for it to end, or end it") from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


@contextlib.contextmanager
def lease_gpus(
    count: int, *, visible: Sequence[str], folder: Path, patience_s: float | None = None
) -> Iterator[list[str]]:
    """Yields the names of `count` devices that no other lease holds.

    Args:
        count: Devices wanted; all or none, so two jobs that want two each cannot hold one each for ever.
        visible: Device names to choose from, as in CUDA_VISIBLE_DEVICES.
        folder: Where the lock files lie; one per machine and user.
        patience_s: Longest wait; None waits for ever.

    Raises:
        TapsError: more devices wanted than there are, or the wait was too long.
    """
    if count > len(visible):
        raise TapsError(
            "--gpus", "more devices wanted than this machine shows", expected=f"at most {len(visible)}", found=count
        )
    deadline = None if patience_s is None else time.monotonic() + patience_s
    while len(held := _try_lock(count, visible, folder)) < count:
        if deadline is not None and time.monotonic() >= deadline:
            raise TapsError("--gpus", f"no {count} of {', '.join(visible)} became free within {patience_s:g} s")
        time.sleep(_POLL_S)
    try:
        yield list(held)
    finally:
        for file in held.values():
            file.close()


def _try_lock(count: int, visible: Sequence[str], folder: Path) -> dict[str, IO[str]]:
    """Returns `count` locked devices, or none of them."""
    held: dict[str, IO[str]] = {}
    for device in visible:
        if len(held) == count:
            break
        with contextlib.suppress(TapsError):
            held[device] = hold_file(folder / f"gpu-{device.replace('/', '_')}.lock", what=f"GPU {device}")
    if len(held) < count:
        for file in held.values():
            file.close()
        held.clear()
    return held


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
    """Returns the devices this process may use: those of CUDA_VISIBLE_DEVICES, else all that the driver lists."""
    if (named := environment.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in named.split(",") if name]
    return [str(int(path.name.removeprefix("nvidia"))) for path in sorted(Path("/dev").glob("nvidia[0-9]*"))]


def run_command(command: Sequence[str], *, gpus: int, environment: Mapping[str, str]) -> int:
    """Returns the exit status of `command`, run with `gpus` leased devices (0: none needed)."""
    if gpus == 0 or "SLURM_JOB_ID" in environment:
        return subprocess.run(command, check=False).returncode
    folder = Path(tempfile.gettempdir()) / f"taps-leases-{os.getuid()}"
    with lease_gpus(gpus, visible=visible_gpus(environment), folder=folder) as devices:
        leased = {**environment, "CUDA_VISIBLE_DEVICES": ",".join(devices)}
        return subprocess.run(command, check=False, env=leased).returncode


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.plumbing.lease", __doc__)
    parser.add_argument("--gpus", type="count", required=True, help="devices to lease; 0 runs the command as it is")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="what to run, after --")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    sys.exit(run_command(arguments.command, gpus=arguments.gpus, environment=os.environ))


if __name__ == "__main__":
    run(main)
