"""Folders that appear whole or not at all, and weights that are linked rather than copied."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from taps.plumbing.disk import naming
from taps.plumbing.hashes import same_content
from taps.plumbing.writers import leftovers, remove, remove_leftovers, settle_mode, unfinished

_ASIDE = ".aside"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of linux/fcntl.h and linux/fs.h


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yields an empty temporary folder beside `path`; it takes `path`'s place when the block ends without an error.

    Two writers of one path do not meet: the temporary name holds host and pid. Leftovers of dead writers are removed,
    and a folder that one of them had moved aside and not replaced comes back first.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    restore(path)
    for suffix in (".tmp", _ASIDE):
        remove_leftovers(path.parent, f".{path.name}.", suffix=suffix)
    temporary = unfinished(path)
    remove(temporary)
    try:
        with naming(path, temporary=temporary):
            temporary.mkdir()
            yield temporary
            _settle(temporary)
            take_place(temporary, path)
    finally:
        remove(temporary)


def take_place(folder: Path, path: Path) -> None:
    """Moves `folder` to `path`; what was there before is gone then, and is there until then."""
    if not os.path.lexists(path):
        os.replace(folder, path)
    elif _exchange(folder, path):
        remove(folder)
    else:  # a file system that cannot exchange two names: the old folder has another one for a moment
        aside = unfinished(path, suffix=_ASIDE)
        os.replace(path, aside)
        try:
            os.replace(folder, path)
        except BaseException:
            os.replace(aside, path)
            raise
        remove(aside)


def restore(path: Path) -> None:
    """Moves back what a writer on this machine, now dead, had moved aside to replace it."""
    if not os.path.lexists(path):
        for aside in leftovers(path.parent, f".{path.name}.", suffix=_ASIDE):
            os.replace(aside, path)
            return


def link(source: Path, destination: Path) -> None:
    """Makes `destination` the same file as `source`: a hard link, across file systems a symbolic link.

    Meant for files of gigabytes that nobody edits; a copy would double the disk a study needs.
    """
    source = Path(source).resolve()
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        with same_content(source):
            os.link(source, destination)
    except OSError:
        destination.symlink_to(source)


def visible_files(folder: Path) -> Iterator[Path]:
    """Yields the files of a folder, subfolders included, leaving out hidden files and folders."""
    for file in folder.rglob("*"):
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts):
            yield file


def _exchange(one: Path, other: Path) -> bool:
    """Returns whether the two names now stand for each other's folders, in one step (Linux's renameat2)."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    return rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0


def _settle(folder: Path) -> None:
    """Gives what is in a folder its modes and brings it to the disk; links lead to files of others."""
    for path in [folder, *folder.rglob("*")]:
        settle_mode(path)
        if path.is_file() and not path.is_symlink():
            with open(path, "rb") as handle:
                os.fsync(handle.fileno())
