"""Files are hashed once: a change is always seen, an unchanged file is not read again, no other user is believed."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from taps.plumbing import hashes
from taps.plumbing.folders import link
from taps.plumbing.hashes import sha256_of, sha256_of_all


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of its own, in which files of 64 bytes are large; returns its folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(hashes, "LARGE", 64)
    forget()
    yield tmp_path / "cache" / "taps" / "hashes"
    forget()


def forget() -> None:
    """Forgets what this process knows, as the next job does."""
    hashes._known.clear()
    hashes._last_cleaned.clear()


def settled(path: Path, content: bytes) -> Path:
    """Returns a file that was last written a minute ago."""
    path.write_bytes(content)
    os.utime(path, (time.time() - 60, time.time() - 60))
    return path


def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list that grows by one for each block that is hashed."""
    blocks: list[int] = []
    real = hashlib.sha256

    class Counted:
        def __init__(self) -> None:
            self.inner = real()

        def update(self, block: bytes) -> None:
            blocks.append(len(block))
            self.inner.update(block)

        def hexdigest(self) -> str:
            return self.inner.hexdigest()

    monkeypatch.setattr(hashes.hashlib, "sha256", Counted)
    return blocks


@pytest.mark.parametrize("size", [0, 1, 63, 64, (1 << 20) + 1])
def test_it_is_the_sha256_of_what_follows_the_first_byte(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    path = settled(tmp_path / "file", content)
    for start in (0, 1, size):
        for _ in range(2):
            assert sha256_of(path, start=start) == hashlib.sha256(content[start:]).hexdigest()


def test_a_job_reads_a_file_once_and_a_later_job_a_small_one_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = settled(tmp_path / "small", b"x" * 63), settled(tmp_path / "large", b"y" * 64)
    blocks = reads(monkeypatch)
    for _ in range(3):
        sha256_of_all([small, large])
    assert sorted(blocks) == [63, 64]
    forget()
    sha256_of_all([small, large])
    assert sorted(blocks) == [63, 63, 64]


def change_in_place(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(b"z")


def change_and_set_the_time_back(path: Path) -> None:
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    change_in_place(path)
    os.utime(path, ns=times)


def replace_by_another_of_the_same_time(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"z" * path.stat().st_size)
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    os.replace(other, path)


CHANGES = (change_in_place, change_and_set_the_time_back, replace_by_another_of_the_same_time)


@pytest.mark.parametrize("another_job", [False, True], ids=["same job", "later job"])
@pytest.mark.parametrize(
    "change",
    [change_in_place, change_and_set_the_time_back, replace_by_another_of_the_same_time],
    ids=lambda f: f.__name__,
)
def test_a_change_is_seen(tmp_path: Path, change, another_job: bool) -> None:
    path = settled(tmp_path / "file", b"y" * 100)
    before = sha256_of(path)
    time.sleep(0.02)  # a tick of the file system's clock
    change(path)
    if another_job:
        forget()
    assert sha256_of(path) == hashlib.sha256(path.read_bytes()).hexdigest() != before


def test_a_change_in_the_same_tick_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for number in range(50):
        path.write_bytes(bytes([number]) * 100)
        assert sha256_of(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_link_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = settled(tmp_path / "file", b"y" * 100)
    sha256_of(path)
    blocks = reads(monkeypatch)
    link(path, tmp_path / "elsewhere" / "link")
    forget()
    assert sha256_of(tmp_path / "elsewhere" / "link") == sha256_of(path)
    assert blocks == []


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"0": "short"}', '{"x": 1}'], ids=repr)
def test_a_broken_entry_is_no_entry(tmp_path: Path, own_cache: Path, content: str) -> None:
    path = settled(tmp_path / "file", b"y" * 100)
    right = sha256_of(path)
    (entry,) = own_cache.iterdir()
    entry.write_text(content)
    forget()
    assert sha256_of(path) == right


@pytest.mark.parametrize("how", ["writable by others", "a file", "read-only"])
def test_a_cache_that_cannot_be_trusted_or_used_is_not(tmp_path: Path, own_cache: Path, how: str) -> None:
    path = settled(tmp_path / "file", b"y" * 100)
    own_cache.parent.mkdir(parents=True)
    if how == "a file":
        own_cache.write_text("")
    else:
        own_cache.mkdir()
        stamp = hashes._stamp_of(path.stat())
        (own_cache / hashes._name(stamp)).write_text(f'{{"0": "{"0" * 64}"}}')
        own_cache.chmod(0o777 if how == "writable by others" else 0o500)
    found = sha256_of(path)
    assert found == hashlib.sha256(b"y" * 100).hexdigest() or how == "read-only"


def test_entries_that_nobody_uses_go(tmp_path: Path, own_cache: Path) -> None:
    own_cache.mkdir(parents=True, mode=0o700)
    old, new = own_cache / "1-2-3-4", own_cache / "5-6-7-8"
    for entry in (old, new):
        entry.write_text("{}")
    os.utime(old, (0, 0))
    sha256_of(settled(tmp_path / "file", b"y" * 100))
    assert not old.exists()
    assert new.exists()
    assert len(list(own_cache.iterdir())) == 2
