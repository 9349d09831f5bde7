"""Folders that appear whole or not at all, and weights that are linked rather than copied."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from taps.plumbing.writers import remove, remove_leftovers, unfinished, writer


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yields an empty temporary folder beside `path`; it takes `path`'s place when the block ends without an error.

    Two writers of one path do not meet: the temporary name holds host and pid. Leftovers of dead writers are removed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent, f".{path.name}.", suffix=".tmp")
    remove_leftovers(path.parent, f".{path.name}.old.", suffix=".tmp")
    temporary = unfinished(path)
    replaced = path.parent / f".{path.name}.old.{writer()}.tmp"
    remove(temporary)
    temporary.mkdir()
    try:
        yield temporary
        _sync(temporary)
        if path.exists():
            os.replace(path, replaced)
        os.replace(temporary, path)
    finally:
        remove(temporary)
        remove(replaced)


def link(source: Path, destination: Path) -> None:
    """Makes `destination` the same file as `source`: a hard link, across file systems a symbolic link.

    Meant for files of gigabytes that nobody edits; a copy would double the disk a study needs.
    """
    source = Path(source).resolve()
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, destination)
    except OSError:
        destination.symlink_to(source)


def visible_files(folder: Path) -> Iterator[Path]:
    """Yields the files of a folder, subfolders included, leaving out hidden files and folders."""
    for file in folder.rglob("*"):
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts):
            yield file


def _sync(folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            with open(file, "rb") as handle:
                os.fsync(handle.fileno())
