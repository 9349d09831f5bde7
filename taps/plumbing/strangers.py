"""What a file is that was taken for another, by its first bytes: a failed download keeps the name of the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from taps.plumbing.errors import TapsError

HEAD = 512  # bytes that tell

_PICKLE = ("a Python pickle", "export its records as JSON lines; pickles can run code")
_LFS = ("a Git-LFS pointer, not the data it points to", "run `git lfs pull` where it came from, or fetch it again")
_PAGE = ("an HTML page, perhaps one that says why the download failed", "download it again")
_STRANGERS = {  # first bytes -> (what the file is, what to do)
    b"PK\x03\x04": ("a zip archive", "unpack it and name the file inside"),
    b"PK\x05\x06": ("a zip archive with nothing in it", "fetch it again"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "unpack it and name the file inside"),
    b"Rar!": ("a rar archive", "unpack it and name the file inside"),
    b"%PDF": ("a PDF", "name the file that holds the records"),
    b"SQLite format 3": ("an SQLite database", "export its table as JSON lines"),
    b"\x89HDF": ("an HDF5 file", "export its records as JSON lines"),
    **dict.fromkeys((b"\x80\x02", b"\x80\x03", b"\x80\x04\x95", b"\x80\x05\x95"), _PICKLE),
    **dict.fromkeys((b"version https://git-lfs.github.com/spec/", b"version https://hawser.github.com/spec/"), _LFS),
}


def stranger(head: bytes) -> tuple[str, str] | None:
    """Returns (what a file is, what to do about it) of one that begins so; None where that does not tell.

    Args:
        head: Its first `HEAD` bytes, decompressed.
    """
    text = head[:HEAD].decode(encoding_of(head), errors="ignore").lstrip("\ufeff \t\r\n\0").encode()
    for magic, found in _STRANGERS.items():
        if head.startswith(magic) or text.startswith(magic):
            return found
    if head[257:262] == b"ustar":
        return ("a tar archive", "unpack it and name the file inside")
    start = text[:14].lower()
    if start.startswith(b"<"):
        is_page = start.startswith((b"<!doctype html", b"<html", b"<head"))
        return _PAGE if is_page else ("markup (XML or HTML)", "download it again")
    return None


def stranger_at(path: Path) -> tuple[str, str] | None:
    """Returns `stranger` of a file."""
    with open(path, "rb") as file:
        return stranger(file.read(HEAD))


def encoding_of(head: bytes) -> str:
    """Returns the encoding of a text that begins so: its mark tells, or where its first characters have zeros."""
    return json.detect_encoding(head[:4]) if any(head[:4]) else "utf-8"  # four zeros are padding


def read_object(path: Path, *, remedy: str = "fetch it again") -> dict[str, Any]:
    """Returns the JSON object in a file of other people's making.

    Raises:
        TapsError: it holds something else; says what.
        OSError: it cannot be read.
    """
    content = Path(path).read_bytes()
    try:
        value = json.loads(content.decode())
    except (ValueError, RecursionError):
        if found := stranger(content[:HEAD]):
            raise TapsError(path, found[0], expected="a JSON object", remedy=found[1]) from None
        value = None
    if not isinstance(value, dict):
        raise TapsError(path, "not a JSON object", remedy=remedy)
    return value
