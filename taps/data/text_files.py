"""Text out of files as people have them: compressed or not, in any Unicode encoding; what holds no text says so.

How a file is wrapped follows from its first bytes, not from its name.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from taps.plumbing.errors import TapsError
from taps.plumbing.strangers import HEAD, encoding_of, stranger

_BLOCK = 1 << 16


class CutOffError(Exception):
    """A file ends, or stops making sense, before its text does."""


def open_bytes(path: Path) -> Any:
    """Returns a binary reader of a file's content, decompressed if it is gzip, zstd, bzip2 or xz."""
    return _OPENERS[compression_of(path)](path)


def compression_of(path: Path) -> str:
    """Returns `.gz`, `.bz2`, `.xz`, `.zst`, or nothing for a file that is not compressed; its name does not matter."""
    with open(path, "rb") as file:
        return _compression(file.read(8))


def first_bytes(path: Path) -> bytes:
    """Returns how a file's content begins, decompressed; nothing if it breaks off there."""
    try:
        with open_bytes(path) as file:
            return _piece(path, file)[:HEAD]
    except CutOffError:
        return b""


def read_text(path: Path) -> Iterator[str]:
    """Yields a file's text piece by piece, line ends as they are, without a byte-order mark.

    Bytes that are not UTF-8 become lone surrogates, as do those of UTF-16 and UTF-32.

    Raises:
        TapsError: no text but an archive, a web page, a Git-LFS pointer and the like; or a compressed file of which
            bytes have changed, so that some of the text before may be another one.
        CutOffError: a compressed or UTF-16 stream that breaks off; all text before was yielded.
    """
    with open_bytes(path) as file:
        head = _piece(path, file)
        refuse_strangers(path, head)
        encoding = encoding_of(head)
        errors = "surrogateescape" if encoding.startswith("utf-8") else "surrogatepass"
        decoder = codecs.getincrementaldecoder("utf-8-sig" if encoding == "utf-8" else encoding)(errors)
        block = head
        while block:
            yield _decoded(decoder, block, final=False)
            block = _piece(path, file)
        yield _decoded(decoder, b"", final=True)


def refuse_strangers(path: Path, head: bytes) -> None:
    """Checks the first (decompressed) bytes of what should be text.

    Raises:
        TapsError: they are not those of text records.
    """
    if found := stranger(head):
        raise TapsError(path, found[0], expected="JSON, JSON lines, CSV, parquet or arrow", remedy=found[1])
    if _compression(head):
        raise TapsError(path, "compressed twice", remedy="decompress it once")


def _piece(path: Path, file: Any) -> bytes:
    """Returns the next bytes, none at the end; one read of the stream below, so that nothing read is lost."""
    try:
        return file.read1(_BLOCK) if hasattr(file, "read1") else file.read(_BLOCK)
    except EOFError as error:
        raise CutOffError(str(error)) from None
    except (zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's fault; decompressors give no number
            raise
        if "Truncated" in str(error):  # Arrow's word for zstd that ends early
            raise CutOffError(str(error)) from None
        raise TapsError(path, "damaged since it was compressed", found=error, remedy="fetch it again") from None


def _decoded(decoder: Any, block: bytes, *, final: bool) -> str:
    try:
        return decoder.decode(block, final)
    except UnicodeDecodeError as error:
        raise CutOffError(str(error)) from None


# --- compression -----------------------------------------------------------------------------------------------------


def _zstd(path: Path) -> Any:
    import pyarrow

    return pyarrow.CompressedInputStream(pyarrow.OSFile(str(path)), "zstd")


def _compression(head: bytes) -> str:
    return next((suffix for magic, suffix in _COMPRESSED.items() if re.match(magic, head)), "")


def _plain(path: Path) -> Any:
    return open(path, "rb")


_COMPRESSED = {  # a zstd file may begin with a frame to be skipped, as those of several threads do
    rb"\x1f\x8b": ".gz",
    rb"BZh[1-9]": ".bz2",
    rb"\xfd7zXZ\x00": ".xz",
    rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18": ".zst",
}
_OPENERS: dict[str, Callable[[Path], Any]] = {
    "": _plain,
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _zstd,
}
