"""What the operating system refused, whichever library reports it, in words: place, problem, remedy."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from taps.plumbing.errors import TapsError

_WORDS = {
    errno.ENOSPC: ("disk full", "free some space and rerun, nothing half-written was kept"),
    errno.EDQUOT: ("disk full (your quota is used up)", "free some space and rerun, nothing half-written was kept"),
    errno.EFBIG: ("too big a file for this file system", "write to another one"),
    errno.EROFS: ("on a read-only file system", "write to another place"),
    errno.EACCES: ("permission denied", "see who may read and write it with: ls -ld"),
    errno.EPERM: ("not permitted", "see who owns it with: ls -ld"),
    errno.ENOENT: ("no such file or folder", "check the path"),
    errno.EISDIR: ("a folder where a file is needed", "name a file in it, or another path"),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "check the path"),
    errno.EEXIST: ("there already, as something else", "remove it, or name another path"),
    errno.ENAMETOOLONG: ("name too long for this file system", "shorten it"),
    errno.ELOOP: ("symbolic links that lead in a circle", "remove them"),
    errno.EMFILE: ("too many open files", "raise the limit with: ulimit -n 4096"),
    errno.ENFILE: ("too many open files on this machine", "rerun later"),
    errno.EIO: ("the disk failed to read or write it", "check the disk, then rerun"),
    errno.ESTALE: ("gone on the file server since it was opened", "rerun"),
    errno.EBUSY: ("in use", "rerun when it is free"),
    errno.ENODEV: ("no such device", "check the path"),
    errno.ENXIO: ("no such device", "check the path"),
}
_OUR_MISTAKES = (errno.EBADF, errno.EFAULT, errno.ENOTSOCK, errno.ECHILD)
_OF_WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)

_NUMBERS = re.compile(r"\b(?:os error|errno) (\d+)\b", re.IGNORECASE)  # of libraries in Rust; of Arrow
_PHRASES = {os.strerror(number): number for number in (*_OF_WRITING, errno.EACCES, errno.EISDIR, errno.ENAMETOOLONG)}
_TORCH_WRITES = (
    "PytorchStreamWriter failed writing",
    "unexpected pos ",
    "iostream error",
)  # torch.save, which keeps the cause to itself
_LITTLE = 16 << 20  # bytes left on a disk that torch.save could not write to


def in_words(error: OSError) -> str | None:
    """Returns place, problem and remedy of a refusal in one line; None if only a mistake of ours can have caused it."""
    place = error.filename if error.filename is not None else None
    if error.errno in _OUR_MISTAKES or (error.errno == errno.EINVAL and place is None):
        return None
    if isinstance(place, bytes):
        place = os.fsdecode(place)
    if error.errno in _WORDS:
        problem, remedy = _WORDS[error.errno]
        return str(TapsError(place if place is not None else "output", problem, remedy=remedy))
    text = next((line for line in str(error.strerror or error).splitlines() if line.strip()), type(error).__name__)
    return str(TapsError(place, text[:1].lower() + text[1:])) if place is not None else text


def number_of(error: BaseException | None) -> int | None:
    """Returns the number of the system's refusal behind an error, None if there is none to be seen.

    Libraries wrap it (safetensors), print it (Arrow) or swallow it (torch.save: 0 stands for that).
    """
    seen: set[int] = set()
    swallowed = None
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno:
            return error.errno
        text = str(error)
        if found := _NUMBERS.search(text):
            return int(found[1])
        for phrase, number in _PHRASES.items():
            if phrase in text:
                return number
        if any(words in text for words in _TORCH_WRITES):
            swallowed = 0
        error = error.__cause__ or error.__context__
    return swallowed


@contextlib.contextmanager
def naming(path: Path, *, temporary: Path) -> Iterator[None]:
    """Turns a failed write to `temporary` into an OSError that names `path`, which the user knows.

    Refusals that name another file, and errors that are none, pass as they are.
    """
    try:
        yield
    except TapsError:
        raise
    except Exception as error:
        number = number_of(error)
        if number is None:
            raise
        named = getattr(error, "filename", None) if isinstance(error, OSError) else None
        if named is not None and temporary not in (Path(os.fsdecode(named)), *Path(os.fsdecode(named)).parents):
            raise
        if named is None and isinstance(error, OSError) and number not in _OF_WRITING:
            raise
        if number == 0:
            number = errno.ENOSPC if shutil.disk_usage(path.parent).free < _LITTLE else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error
