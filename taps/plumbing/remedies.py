"""How a user makes an artefact again: the words that errors end with."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from taps.plumbing.kinds import KINDS

RECORDS = (*sorted({kind.record for kind in KINDS.values()} - {""}), "config.json")
"""Files of folders that are made as a whole; a folder that holds one stands and falls with it."""

_OPTIONS = "TAPS_SNAKEMAKE_OPTIONS"  # set by the workflow: by which options it was told its study, quoted for a shell
_WORKFLOW_FOLDERS = ("results", "reports", "resources")


def rebuild_command(path: Path, kind: str | None = None) -> str:
    """Returns the remedy for a broken or missing artefact; a file of a folder means the folder.

    Inside the workflow, and for paths below the folders that it writes, a Snakemake command that makes just this file.
    Elsewhere Snakemake knows no such file, and the stages that write its kind are named.

    Args:
        path: Where the artefact should lie.
        kind: What it should be, of `taps.plumbing.kinds`.
    """
    path = whole(path)
    if _OPTIONS in os.environ or _below_workflow(path):
        options = shlex.split(os.environ.get(_OPTIONS, ""))
        return f"rebuild it with: {shlex.join(['snakemake', '--cores', '1', *options, '--force', str(path)])}"
    stages = KINDS[kind].stages if kind in KINDS else ()
    return f"make it again with: {' or '.join(f'python -m {stage}' for stage in stages)}" if stages else "make it again"


def whole(path: Path) -> Path:
    """Returns what is made at once: the path, or the folder that it is a file of."""
    path = Path(path)
    is_part = any((path.parent / name).exists() for name in RECORDS) or path.name in RECORDS
    return path.parent if is_part else path


def _below_workflow(path: Path) -> bool:
    try:
        parts = path.absolute().relative_to(Path.cwd()).parts
    except (ValueError, OSError):
        return False
    return len(parts) > 1 and parts[0] in _WORKFLOW_FOLDERS
