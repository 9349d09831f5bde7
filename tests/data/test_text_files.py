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
from taps.data.records import stream_records
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


NOISE = "".join(json.dumps({"id": i, "noise": os.urandom(500).hex()}) + "\n" for i in range(2500))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_stream_that_breaks_off_gives_what_it_holds_and_says_so(suffix, tmp_path):
    content = COMPRESSIONS[suffix](NOISE.encode())
    path = tmp_path / "in.jsonl"
    path.write_bytes(content[: len(content) * 9 // 10])
    records = list(stream_json(path))
    assert records[-1].problem == "cut_off"
    good = [record.value["id"] for record in records if not record.problem]
    assert len(good) > 1000
    assert good == list(range(len(good)))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("place", ["middle", "end"])
def test_changed_bytes_in_a_stream_are_refused(suffix, place, tmp_path):
    """What was read before might be another text already: a checksum comes behind what it is of."""
    content = bytearray(COMPRESSIONS[suffix](NOISE.encode()))
    if place == "middle":
        middle = len(content) // 2
        content[middle : middle + 4000] = bytes(4000)
    elif suffix == ".zst":
        content += b"more"  # Arrow writes no checksum
    else:
        content[-6] ^= 1
    path = tmp_path / "in.jsonl"
    path.write_bytes(content)
    with pytest.raises(TapsError, match=r"in\.jsonl: damaged since it was compressed, found .*; fetch it again"):
        list(stream_json(path))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_stream_without_a_whole_head_holds_nothing(suffix, tmp_path):
    for name in ("in.jsonl", "in.csv"):
        (tmp_path / name).write_bytes(COMPRESSIONS[suffix](TEXT.encode())[:9])
    assert [record.problem for record in stream_records(tmp_path / "in.jsonl")] == ["cut_off"]
    with pytest.raises(TapsError, match=r"in\.csv: no table, .* found nothing"):
        list(stream_records(tmp_path / "in.csv"))


@pytest.mark.parametrize(
    "content",
    [
        b"\x5e\x2a\x4d\x18\x02\0\0\0ab" + zstd(TEXT.encode()),
        b"\0" * 9 + TEXT.encode(),
        "".join(f"\ufeff{line}\n" for line in TEXT.splitlines()).encode(),
        TEXT.replace("\n", "\0\0\n").encode(),
    ],
    ids=["a zstd frame to be skipped", "padding in front", "files with marks, joined", "padding between"],
)
def test_what_stands_around_records_costs_none(content, tmp_path):
    (tmp_path / "in.jsonl").write_bytes(content)
    assert [record.value for record in stream_json(tmp_path / "in.jsonl")] == [{"id": 1, "text": "né 😀"}] * 3


def test_utf_16_that_breaks_off_within_a_character(tmp_path):
    path = tmp_path / "in.json"
    path.write_bytes(TEXT.encode("utf-16")[:-7])
    records = list(stream_json(path))
    assert [record.problem for record in records] == [None, None, "cut_off"]


STRANGERS = {
    "git lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n", "a Git-LFS pointer"),
    "git lfs with a mark": (b"\xef\xbb\xbfversion https://git-lfs.github.com/spec/v1\r\n", "a Git-LFS pointer"),
    "git lfs of old": (b"version https://hawser.github.com/spec/v1\noid sha256:ab\n", "a Git-LFS pointer"),
    "page in UTF-16": ("\n<!DOCTYPE html><html>".encode("utf-16"), "an HTML page"),
    "page": (b"<!DOCTYPE html>\n<html><body>Access denied</body></html>", "an HTML page"),
    "page with a mark": (b"\xef\xbb\xbf  <HTML><head>", "an HTML page"),
    "XML": (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "markup"),
    "zip": (b"PK\x03\x04\x14\0", "a zip archive"),
    "tar": (b"a.json".ljust(257, b"\0") + b"ustar\x0000", "a tar archive"),
    "PDF": (b"%PDF-1.7\n", "a PDF"),
    "empty zip": (b"PK\x05\x06" + bytes(18), "a zip archive with nothing in it"),
    "gzip": (gzip.compress(b"{}"), "compressed twice"),
    "zstd": (zstd(b"{}"), "compressed twice"),
    "old pickle": (b"\x80\x02}q\0.", "a Python pickle"),
    "pickle": (b"\x80\x04\x95\x10\0", "a Python pickle"),
    "SQLite": (b"SQLite format 3\0", "an SQLite database"),
}


@pytest.mark.parametrize("kind", STRANGERS)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_what_is_no_text_says_what_it_is(kind, suffix, tmp_path):
    content, message = STRANGERS[kind]
    if message == "compressed twice" and not suffix:
        pytest.skip("compressed once it is text")
    path = tmp_path / "data.jsonl"
    path.write_bytes(COMPRESSIONS[suffix](content))
    with pytest.raises(TapsError, match=message):
        list(stream_json(path))


def test_faults_of_the_disk_stay_what_they_are(tmp_path):
    with pytest.raises(IsADirectoryError):
        list(read_text(Path(tmp_path)))
