"""Leases: who may use a device or a study right now, by locks that the kernel drops when their holder dies.

    python -m taps.plumbing.lease --gpus 2 -- torchrun --standalone --nproc-per-node 2 -m taps.train ...

Snakemake's `gpu` resource counts jobs of one run; it neither picks a device nor knows of other runs. A lease does: it
locks one file per device (flock), all wanted devices or none, and names them to the command in CUDA_VISIBLE_DEVICES. So
it does inside an allocation of a scheduler, too: a run within it would start several jobs on its first device. Devices
are known by the UUIDs that `nvidia-smi -L` tells, since numbers mean other devices in other containers and allocations.

Locks lie in a folder that only their owner may enter, and are opened without following links: in a temporary folder
that others share, a name can be guessed and a link laid.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import os
import re
import stat
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
        TapsError: another process holds it, or it is a link.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open_lock(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = file.read().strip() or "unknown"
        file.close()
        raise TapsError(path, f"{what} is in use by process {holder}", remedy="wait for it to end, or end it") from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def open_lock(path: Path) -> IO[str]:
    """Returns a lock file, made if need be and not yet locked; what it holds stays.

    Raises:
        TapsError: it is a link, which may lead to a file that somebody needs.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise TapsError(path, "a link where a lock should be", remedy="remove it and see who made it") from None
    return os.fdopen(handle, "r+", encoding="utf-8")


def lease_folder(environment: Mapping[str, str]) -> Path:
    """Returns the folder of this user's leases on this machine, now there: 0700, and nobody else's.

    It lies in the temporary folder, which outlives a login; where that name is somebody else's, in XDG_RUNTIME_DIR.

    Raises:
        TapsError: neither can be had.
    """
    name = f"taps-leases-{os.getuid()}"
    places = [tempfile.gettempdir(), environment.get("XDG_RUNTIME_DIR")]
    for place in [Path(place) for place in places if place]:
        with contextlib.suppress(OSError):
            (place / name).mkdir(mode=0o700, exist_ok=True)
            status = (place / name).lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                (place / name).chmod(0o700)  # of a version of ours that was less strict
                return place / name
    remedy = "set XDG_RUNTIME_DIR to a folder of your own"
    raise TapsError(Path(tempfile.gettempdir()) / name, "is not yours, so no lease can be kept there", remedy=remedy)


@contextlib.contextmanager
def lease_gpus(
    count: int, *, visible: Sequence[str], folder: Path, allocation: str = "", patience_s: float | None = None
) -> Iterator[list[str]]:
    """Yields the names of `count` devices that no other lease holds.

    Args:
        count: Devices wanted; all or none, so two jobs that want two each cannot hold one each for ever.
        visible: Device names to choose from, as in CUDA_VISIBLE_DEVICES.
        folder: Where the lock files lie; one per machine and user.
        allocation: Within which devices that are mere numbers are told apart.
        patience_s: Longest wait; None waits for ever.

    Raises:
        TapsError: more devices wanted than there are, or the wait was too long.
    """
    if count > len(visible):
        raise TapsError(
            "--gpus", "more devices wanted than this machine shows", expected=f"at most {len(visible)}", found=count
        )
    deadline = None if patience_s is None else time.monotonic() + patience_s
    locks = {name: folder / f"gpu-{_lock_name(name, allocation)}.lock" for name in visible}
    while len(held := _try_lock(count, locks)) < count:
        if deadline is not None and time.monotonic() >= deadline:
            raise TapsError("--gpus", f"no {count} of {', '.join(visible)} became free within {patience_s:g} s")
        time.sleep(_POLL_S)
    try:
        yield list(held)
    finally:
        for file in held.values():
            file.close()


def _lock_name(device: str, allocation: str) -> str:
    name = f"{allocation}-{device}" if device.isdecimal() and allocation else device
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)


def _try_lock(count: int, locks: Mapping[str, Path]) -> dict[str, IO[str]]:
    """Returns `count` locked devices, or none of them."""
    held: dict[str, IO[str]] = {}
    for device, lock in locks.items():
        if len(held) == count:
            break
        with contextlib.suppress(TapsError):
            held[device] = hold_file(lock, what=f"GPU {device}")
    if len(held) < count:
        for file in held.values():
            file.close()
        held.clear()
    return held


def visible_gpus(environment: Mapping[str, str], listed: Sequence[Sequence[str]]) -> list[str]:
    """Returns the devices this process may use: those of CUDA_VISIBLE_DEVICES, else all; by UUID where it is known.

    Args:
        environment: Of this process.
        listed: As `list_gpus` returns them.
    """
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [name for names in listed for name in names]
    found: list[str] = []
    for name in filter(None, map(str.strip, named.split(","))):
        if name.isdecimal():
            found.append(listed[int(name)][0] if int(name) < len(listed) else name)
        elif name.startswith(("GPU-", "MIG-")):  # perhaps only as much of it as is unique
            whole = [other for names in listed for other in names if other.startswith(name)]
            found.append(whole[0] if len(whole) == 1 else name)
        else:  # "-1" and the like: CUDA sees none from there on
            break
    return found


def list_gpus() -> list[list[str]]:
    """Returns the names of each GPU in the driver's order: its UUID, or those of the MIG instances it is cut into.

    Without `nvidia-smi` they are numbers, as CUDA counts them: from 0, whatever the numbers of the device files.
    """
    try:
        told = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return [[str(number)] for number, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]
    return parse_gpus(told)


def parse_gpus(told: str) -> list[list[str]]:
    """Returns what `list_gpus` does, of the output of `nvidia-smi -L`."""
    found: list[list[str]] = []
    for line in told.splitlines():
        match = re.search(r"\(UUID: ((?:GPU|MIG)-[^)\s]+)\)", line)
        if match is None:
            continue
        if line.startswith("GPU "):
            found.append([match[1]])
        elif found and match[1].startswith("MIG-"):
            found[-1] = [*(name for name in found[-1] if name.startswith("MIG-")), match[1]]
    return found


def run_command(command: Sequence[str], *, gpus: int, environment: Mapping[str, str]) -> int:
    """Returns the exit status of `command`, run with `gpus` leased devices (0: none needed).

    Numbers tell devices apart within one allocation only, so locks of such devices carry the allocation's name.
    """
    if gpus == 0:
        return subprocess.run(command, check=False).returncode
    visible = visible_gpus(environment, list_gpus())
    job = environment.get("SLURM_JOB_ID", "")
    with lease_gpus(gpus, visible=visible, folder=lease_folder(environment), allocation=job) as devices:
        leased = {**environment, "CUDA_VISIBLE_DEVICES": ",".join(devices), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
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
