"""States of a training run on disk: complete or not there, checked when read, the last two kept.

A state is a folder `step-00000120` that holds whatever the optimizer engine writes, plus `state.json` with the digest
of each file. It is made under another name and renamed when complete, so a kill at any moment leaves the previous one.
These files hold pickles of our own making; they are never read from anywhere but the run's own folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from taps.plumbing.atomic import write_text
from taps.plumbing.disk import naming
from taps.plumbing.folder_records import hashes_of
from taps.plumbing.writers import remove_leftovers, settle_mode

_MANIFEST, _PENDING = "state.json", ".pending."


def save_state(
    folder: Path, step: int, facts: dict[str, Any], write: Callable[[Path], None], *, writer: str, is_main: bool
) -> None:
    """Writes the state after `step` steps and removes all but it and the one before it.

    States of later steps go too: had they been whole and of this run, it would have gone on from them.

    Args:
        folder: The run's state folder.
        step: Optimizer steps done so far.
        facts: JSON facts to get back from `load_state` (metrics so far, fingerprint of the run).
        write: Writes the engine's files into the folder it is given; called by every process.
        writer: `<host>.<pid>` of the first process, so that two runs of one job (a cluster may start a second while the
            first lives on) do not write into each other's folder. Leftovers of dead writers are removed.
        is_main: Whether this process finishes the state; the others only call `write`.

    Raises:
        OSError: it cannot be written; names the state, whatever `write` reports.
    """
    pending, final = folder / f"{_PENDING}{writer}", folder / f"step-{step:08d}"
    with naming(final, temporary=pending):
        if is_main:
            remove_leftovers(folder, _PENDING, own=True)
            pending.mkdir(parents=True)
        write(pending)
        if not is_main:
            return
        for path in pending.rglob("*"):
            settle_mode(path)
        names = sorted(str(path.relative_to(pending)) for path in pending.rglob("*") if path.is_file())
        manifest = {"step": step, "files": hashes_of(pending, names), "facts": facts}
        write_text(pending / _MANIFEST, json.dumps(manifest))
    shutil.rmtree(final, ignore_errors=True)
    try:
        os.replace(pending, final)
    except OSError:
        if not final.exists():
            raise
        shutil.rmtree(pending)  # a second run of this job made the same state meanwhile
    states = list(folder.glob("step-*"))
    before = max((state for state in states if state.name < final.name), default=final)
    for state in states:
        if state not in (before, final):
            shutil.rmtree(state, ignore_errors=True)


def load_state(folder: Path, fingerprint: str) -> tuple[Path, int, dict[str, Any]] | None:
    """Returns (state folder, step, facts) of the newest complete state of this very run; None if there is none.

    A truncated or edited state, or one of a run with other settings, is passed over with a message on stderr.

    Args:
        folder: The run's state folder.
        fingerprint: What identifies the run; states carry it in `facts["fingerprint"]`.
    """
    for state in sorted(folder.glob("step-*"), reverse=True):
        problem = None
        try:
            manifest = json.loads((state / _MANIFEST).read_text())
            found = hashes_of(state, manifest["files"])
            broken = [name for name, digest in manifest["files"].items() if found[name] != digest]
            if broken:
                problem = f"{broken[0]} is truncated or edited"
            elif manifest["facts"]["fingerprint"] != fingerprint:
                problem = "it belongs to a run with other settings, inputs or number of processes"
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            problem = f"it is incomplete ({error})"
        if problem is None:
            return state, manifest["step"], manifest["facts"]
        print(f"{state}: not resumed from, {problem}; trying the state before it", file=sys.stderr)
    return None


def remove_states(folder: Path) -> None:
    """Removes the states of a run that is over, and the folder if nothing else is in it."""
    for state in folder.glob("step-*"):
        shutil.rmtree(state, ignore_errors=True)
    remove_leftovers(folder, _PENDING, own=True)
    with contextlib.suppress(OSError):  # not there, or not empty: something else is in it
        folder.rmdir()
