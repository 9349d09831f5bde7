"""Names of unfinished files and folders: each holds its writer, so two writers never meet, dead ones are cleaned up."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path


def writer() -> str:
    """Returns what this process signs its unfinished files with: `<host>.<pid>`."""
    return f"{socket.gethostname()}.{os.getpid()}"


def unfinished(path: Path, *, suffix: str = ".tmp") -> Path:
    """Returns the name beside `path` under which this process may write what will be `path`."""
    return path.parent / f".{path.name}.{writer()}{suffix}"


def remove_leftovers(folder: Path, prefix: str, *, suffix: str = "", own: bool = False) -> None:
    """Removes files and folders `<prefix><host>.<pid><suffix>` whose writer on this machine is no more.

    Args:
        folder: Where they lie.
        prefix: Taken literally, as is `suffix`.
        own: Whether to remove this process's, too.
    """
    start = f"{prefix}{socket.gethostname()}."
    for leftover in folder.iterdir() if folder.is_dir() else ():
        name = leftover.name
        pid = name[len(start) : len(name) - len(suffix)]
        if not (name.startswith(start) and name.endswith(suffix) and pid.isdigit()):
            continue
        if not Path(f"/proc/{pid}").exists() or (own and pid == str(os.getpid())):
            remove(leftover)


def remove(path: Path) -> None:
    """Removes a file, a link or a whole folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
