"""What files hold, as sha256, each read once: within a job always, by later jobs only if it is small or has changed.

A file that was hashed is known again by its stamp: inode, size, and the nanoseconds at which its content and its entry
last changed; the last of these cannot be set back, so an edit that restores the time is seen too. Hashes of files of at
least `LARGE` bytes are kept from job to job in `~/.cache/taps/hashes` (XDG_CACHE_HOME), one small file each: weights
and feature shards are read once per change and not by every job that uses them. Smaller files are read by every job.

A file that has changed within the last two seconds is not remembered: another change in the same tick of the clock
would leave its stamp as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

LARGE = 64 << 20  # bytes; less takes a fraction of a second
_SETTLED_NS = 2_000_000_000
_KEPT_DAYS = 90
_THREADS = min(8, os.cpu_count() or 1)


class _Stamp(NamedTuple):
    inode: int
    size: int
    content_ns: int
    entry_ns: int


_known: dict[_Stamp, dict[int, str]] = {}  # of this process: stamp -> first byte -> hash


def sha256_of(path: Path, *, start: int = 0) -> str:
    """Returns the hex sha256 of a file from byte `start` on.

    Raises:
        OSError: it cannot be read.
    """
    began_ns = time.time_ns()
    with open(path, "rb") as file:
        stamp = _stamp_of(os.fstat(file.fileno()))
        if (known := _recall(stamp).get(start)) is not None:
            return known
        file.seek(start)
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
        unchanged = _stamp_of(os.fstat(file.fileno())) == stamp
    found = digest.hexdigest()
    if unchanged and began_ns - stamp.content_ns > _SETTLED_NS:
        _remember(stamp, {start: found})
    return found


def sha256_of_all(paths: Sequence[Path]) -> list[str]:
    """Returns the hashes of several files, read side by side."""
    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(sha256_of, paths))


@contextlib.contextmanager
def same_content(path: Path) -> Iterator[None]:
    """Keeps what is known of a file while the block changes its entry only, as making a link to it does."""
    known = _recall(_stamp_of(Path(path).stat()))
    yield
    if known:
        _remember(_stamp_of(Path(path).stat()), known)


def _stamp_of(status: os.stat_result) -> _Stamp:
    return _Stamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _recall(stamp: _Stamp) -> dict[int, str]:
    if stamp not in _known and stamp.size >= LARGE and (folder := _folder()):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            entry = folder / _name(stamp)
            found = {int(start): str(digest) for start, digest in json.loads(entry.read_text()).items()}
            if all(len(digest) == 64 for digest in found.values()):
                _known[stamp] = found
                os.utime(entry)
    return _known.get(stamp, {})


def _remember(stamp: _Stamp, hashes: Mapping[int, str]) -> None:
    _known[stamp] = {**_recall(stamp), **hashes}
    if stamp.size >= LARGE and (folder := _folder()):
        entry = folder / _name(stamp)
        with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
            temporary = entry.with_name(f".{entry.name}.{os.getpid()}")
            temporary.write_text(json.dumps(_known[stamp]))
            os.replace(temporary, entry)
            _forget_old(folder)


def _name(stamp: _Stamp) -> str:
    return "-".join(map(str, stamp))


def _folder() -> Path | None:
    """Returns this user's own folder of hashes, made if need be; None if there can be none that others cannot write."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "taps" / "hashes"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.lstat()
    except (OSError, RuntimeError):  # RuntimeError: no home
        return None
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022
    return folder if is_own else None


_last_cleaned: list[Path] = []


def _forget_old(folder: Path) -> None:
    """Removes, once per process, the entries that no job has used for `_KEPT_DAYS`."""
    if folder in _last_cleaned:
        return
    _last_cleaned.append(folder)
    oldest = time.time() - 86400 * _KEPT_DAYS
    for entry in folder.iterdir():
        with contextlib.suppress(OSError):
            if entry.lstat().st_mtime < oldest:
                entry.unlink()
