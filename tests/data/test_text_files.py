"""What a file is follows from its bytes: text is read however it is wrapped, anything else says what it is."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest

from taps.data.json_stream import stream_json
from taps.data.text_files import compression_of, read_text
from taps.plumbing.errors import TapsError

TEXT = '{"id": 1, "text": "né 😀"}\n' * 3


def zstd(content: bytes) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
    "": bytes,
}


@pytest.mark.parametrize("suffix", COMPRESSIONS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_any_wrapping_gives_the_same_text(suffix, encoding, tmp_path):
    path = tmp_path / "named.json"  # the name does not tell
    path.write_bytes(COMPRESSIONS[suffix](TEXT.encode(encoding)))
    assert compression_of(path) == suffix
    assert "".join(read_text(path)) == TEXT


def test_parts_behind_each_other_are_one_text(tmp_path):
    for suffix in (".gz", ".bz2", ".xz", ".zst"):
        path = tmp_path / f"in.json{suffix}"
        path.write_bytes(COMPRESSIONS[suffix](TEXT.encode()) * 2)
        assert "".join(read_text(path)) == TEXT * 2, suffix


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_stream_gives_what_it_holds_and_says_that_it_breaks_off(suffix, damage, tmp_path):
    lines = "".join(json.dumps({"id": i, "noise": os.urandom(500).hex()}) + "\n" for i in range(2500))
    content = bytearray(COMPRESSIONS[suffix](lines.encode()))
    if damage == "cut":
        content = content[: len(content) * 9 // 10]
    else:
        middle = len(content) // 2
        content[middle : middle + 4000] = bytes(4000)
    path = tmp_path / "in.jsonl"
    path.write_bytes(content)
    records = list(stream_json(path))
    assert records[-1].problem == "cut_off"
    if damage == "cut":
        good = [record.value["id"] for record in records if not record.problem]
        assert len(good) > 1000
        assert good == list(range(len(good)))


def test_utf_16_that_breaks_off_within_a_character(tmp_path):
    path = tmp_path / "in.json"
    path.write_bytes(TEXT.encode("utf-16")[:-7])
    records = list(stream_json(path))
    assert [record.problem for record in records] == [None, None, "cut_off"]


STRANGERS = {
    "git lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n", "a Git-LFS pointer"),
    "page": (b"<!DOCTYPE html>\n<html><body>Access denied</body></html>", "an HTML page"),
    "page with a mark": (b"\xef\xbb\xbf  <HTML><head>", "an HTML page"),
    "XML": (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "markup"),
    "zip": (b"PK\x03\x04\x14\0", "a zip archive"),
    "tar": (b"a.json".ljust(257, b"\0") + b"ustar\x0000", "a tar archive"),
    "PDF": (b"%PDF-1.7\n", "a PDF"),
    "pickle": (b"\x80\x04\x95\x10\0", "a Python pickle"),
    "SQLite": (b"SQLite format 3\0", "an SQLite database"),
}


@pytest.mark.parametrize("kind", STRANGERS)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_what_is_no_text_says_what_it_is(kind, suffix, tmp_path):
    content, message = STRANGERS[kind]
    path = tmp_path / "data.jsonl"
    path.write_bytes(COMPRESSIONS[suffix](content))
    with pytest.raises(TapsError, match=message):
        list(stream_json(path))


def test_faults_of_the_disk_stay_what_they_are(tmp_path):
    with pytest.raises(IsADirectoryError):
        list(read_text(Path(tmp_path)))
