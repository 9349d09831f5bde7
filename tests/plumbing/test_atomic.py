"""Files and folders are whole or not there, whoever else writes, whatever fails, and on a full disk."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from taps.plumbing.artefacts import (
    read_json,
    write_json,
    write_jsonl,
    write_tensors,
)
from taps.plumbing.atomic import atomic_path, write_text
from taps.plumbing.cli import run
from taps.plumbing.folders import atomic_folder
from taps.plumbing.parquet import write_parquet
from tests.support.artefact_shapes import CONTENT, MADE, Shape, each_shape

WRITER = """
import sys
from pathlib import Path
from taps.plumbing.atomic import atomic_path
for _ in range(200):
    with atomic_path(Path(sys.argv[1])) as temporary, open(temporary, "w") as file:
        for _ in range(50):
            file.write(sys.argv[2] * 100)
            file.flush()
"""


def test_two_writers_of_one_path_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, path, letter]) for letter in "ab"]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            seen.add(path.read_text())
    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen <= {"a" * 5000, "b" * 5000}
    assert seen
    assert list(tmp_path.iterdir()) == [path]


def leftover_name(name: str, pid: int, host: str = "") -> str:
    return f".{name}.{host or socket.gethostname()}.{pid}.tmp"


def test_leftovers_of_dead_writers_are_removed_and_only_those(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    kept = [leftover_name("out", os.getppid()), leftover_name("out", dead.pid, "elsewhere"), leftover_name("no", 1)]
    for name in [*kept, leftover_name("out", dead.pid)]:
        (tmp_path / name).write_text("half")
    write_text(tmp_path / "out", "whole")
    assert {file.name for file in tmp_path.iterdir()} == {"out", *kept}


def test_leftover_folders_of_dead_writers_are_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    (tmp_path / leftover_name("out", dead.pid) / "inner").mkdir(parents=True)
    for content in ("first", "second"):
        with atomic_folder(tmp_path / "out") as folder:
            (folder / "file").write_text(content)
    assert (tmp_path / "out" / "file").read_text() == "second"
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_an_error_while_writing_leaves_what_was_there(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "old")
    with atomic_folder(tmp_path / "folder") as folder:
        (folder / "file").write_text("old")

    def fail_after(half_written: Path) -> None:
        half_written.write_text("new")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), atomic_path(tmp_path / "file") as temporary:
        fail_after(temporary)
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "folder") as folder:
        fail_after(folder / "file")
    assert (tmp_path / "file").read_text() == (tmp_path / "folder" / "file").read_text() == "old"
    assert {file.name for file in tmp_path.iterdir()} == {"file", "folder"}


def exit_message(write: Callable[[], object], capsys: pytest.CaptureFixture) -> str:
    """Returns what a stage prints whose writing ends in an error that a user can mend."""

    def main() -> None:
        write()

    with pytest.raises(SystemExit) as ended:
        run(main)
    assert ended.value.code == 1
    return capsys.readouterr().err


@each_shape
def test_disk_full_is_one_line_and_leaves_nothing(
    tmp_path: Path, shape: Shape, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    shape.write(tmp_path / shape.name, "example")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    message = exit_message(lambda: shape.write(tmp_path / shape.name, "other"), capsys)
    assert re.fullmatch(r"error: .*disk full; free some space and rerun, nothing half-written was kept\n", message)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_disk_that_really_is_full(small_disk: Path, capsys: pytest.CaptureFixture) -> None:
    big = {"features": np.zeros(100_000, dtype=np.float32)}
    many = [{"text": "x" * 1000}] * 1000
    writes: list[Callable[[], object]] = [
        lambda: write_tensors(small_disk / "a.safetensors", big, kind="trace", provenance=MADE),
        lambda: write_jsonl(small_disk / "b.jsonl", many, kind="corpus", provenance=MADE),
        lambda: write_json(small_disk / "c.json", many, kind="cost", provenance=MADE),
        lambda: write_parquet(
            small_disk / "d.parquet",
            {"x": np.random.default_rng(0).random(100_000)},
            kind="replay",
            provenance=MADE,
            meta={},
        ),
    ]
    for write in writes:
        message = exit_message(write, capsys)
        assert message.count("\n") == 1
        assert "disk full; free some space and rerun" in message
        assert list(small_disk.iterdir()) == []
    write_json(small_disk / "c.json", CONTENT, kind="cost", provenance=MADE)  # the space is free again
    assert read_json(small_disk / "c.json", kind="cost") == CONTENT
