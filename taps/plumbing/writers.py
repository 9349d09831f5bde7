"""Names of unfinished files and folders: each holds its writer, so two writers never meet, dead ones are cleaned up.

And their modes: what is written is for others to read, as far as the umask lets them, and for its owner to write.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Iterator
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
    for leftover in leftovers(folder, prefix, suffix=suffix, own=own):
        remove(leftover)


def leftovers(folder: Path, prefix: str, *, suffix: str = "", own: bool = False) -> Iterator[Path]:
    """Yields the files and folders that `remove_leftovers` would remove."""
    start = f"{prefix}{socket.gethostname()}."
    for entry in list(folder.iterdir()) if folder.is_dir() else ():
        name = entry.name
        pid = name[len(start) : len(name) - len(suffix)]
        if not (name.startswith(start) and name.endswith(suffix) and pid.isdigit()):
            continue
        if not Path(f"/proc/{pid}").exists() or (own and pid == str(os.getpid())):
            yield entry


def remove(path: Path) -> None:
    """Removes a file, a link or a whole folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def settle_mode(path: Path) -> None:
    """Gives a file or folder of ours the mode 0644 or 0755 less the umask, whatever its writer chose.

    Links are left alone, and files that have other names too: they are somebody else's.
    """
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink > 1):
        return
    mode = (0o755 if stat.S_ISDIR(status.st_mode) else 0o644) & ~_umask()
    if stat.S_IMODE(status.st_mode) != mode:
        path.chmod(mode)


def _umask() -> int:
    """Returns this process's umask without changing it, where the system tells it."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.partition("\nUmask:")[2].split(maxsplit=1)[0], 8)
    except (OSError, IndexError, ValueError):
        mask = os.umask(0o077)
        os.umask(mask)
        return mask
