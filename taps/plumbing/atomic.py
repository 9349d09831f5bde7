"""Files that exist whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from taps.plumbing.disk import naming
from taps.plumbing.writers import remove_leftovers, settle_mode, unfinished


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; moves it there, synced, when the block ends without an error.

    Two writers of one path do not meet: the temporary name holds host and pid. Leftovers of dead writers are removed.
    Others may read the file as far as the umask lets them, and never write it.

    Raises:
        OSError: it cannot be written; names `path`, also where a library that wrote it reports something else.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent, f".{path.name}.", suffix=".tmp")
    temporary = unfinished(path)
    try:
        with naming(path, temporary=temporary):
            yield temporary
            settle_mode(temporary)
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text atomically; lone surrogates, of names that are not UTF-8, become escapes as JSON has them."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
