"""Whatever the operating system refuses ends in one line with place and remedy, however a library reports it."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taps.plumbing.artefacts import read_json, read_jsonl, read_tensors, write_json, write_tensors
from taps.plumbing.atomic import atomic_path
from taps.plumbing.cli import run
from taps.plumbing.disk import number_of
from taps.plumbing.folders import atomic_folder
from taps.plumbing.parquet import read_parquet_envelope
from tests.support.artefact_shapes import MADE


def last_line(action: Callable[[], object], capsys: pytest.CaptureFixture) -> str:
    """Returns the one line that a stage ends with which does this."""

    def main() -> None:
        action()

    with pytest.raises(SystemExit) as ended:
        run(main)
    printed = capsys.readouterr().err
    assert (ended.value.code, printed.count("\n")) == (1, 1), printed
    return printed


# --- what libraries say of a full disk -------------------------------------------------------------------------------


def safetensors_full() -> Exception:
    from safetensors import SafetensorError

    return SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


FULL: dict[str, Callable[[], Exception]] = {
    "python": lambda: OSError(errno.ENOSPC, "No space left on device"),
    "safetensors": safetensors_full,
    "arrow": lambda: OSError("Error writing bytes to file. Detail: [errno 28] No space left on device"),
    "torch, old format": lambda: RuntimeError("write(): fd 3 failed with No space left on device"),
    "quota": lambda: RuntimeError("close(): Disk quota exceeded"),
}


@pytest.mark.parametrize("library", FULL)
def test_a_full_disk_is_known_and_the_file_named(tmp_path: Path, library: str, capsys: pytest.CaptureFixture) -> None:
    def write_file() -> None:
        with atomic_path(tmp_path / "out.bin"):
            raise FULL[library]()

    def write_folder() -> None:
        with atomic_folder(tmp_path / "folder") as folder:
            (folder / "part").write_text("x")
            raise FULL[library]()

    for write, name in ((write_file, "out.bin"), (write_folder, "folder")):
        line = last_line(write, capsys)
        assert line.startswith(f"error: {tmp_path / name}: disk full")
        assert "free some space and rerun" in line
    assert list(tmp_path.iterdir()) == []


def test_a_wrapped_refusal_is_found_in_the_chain() -> None:
    wrapped = RuntimeError("could not save")
    wrapped.__cause__ = ValueError("of this")
    wrapped.__cause__.__context__ = OSError(errno.EROFS, "Read-only file system", "/mnt/x")
    assert number_of(wrapped) == errno.EROFS
    assert number_of(ValueError("28 samples")) is None
    assert number_of(RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")) == 0


def test_an_error_that_is_no_refusal_passes_unchanged(tmp_path: Path) -> None:
    for error in (KeyError("x"), RuntimeError("shapes differ"), ZeroDivisionError()):
        with pytest.raises(type(error)) as caught, atomic_path(tmp_path / "out"):
            raise error
        assert caught.value is error


def test_a_refusal_to_read_another_file_names_that_file(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    def write() -> None:
        with atomic_path(tmp_path / "out") as temporary:
            temporary.write_text(Path("/nowhere/input.json").read_text())

    assert last_line(write, capsys) == "error: /nowhere/input.json: no such file or folder; check the path\n"


WRITES = """
import sys, numpy, torch
from pathlib import Path
from taps.plumbing.cli import run
out = Path(sys.argv[2])
big = torch.rand(200_000)
def state():
    from taps.model.training_state import save_state
    save_state(out, 1, {}, lambda folder: torch.save({"a": big}, folder / "model.pt"), writer="host.1", is_main=True)
def weights():
    from safetensors.torch import save_file
    from taps.plumbing.folders import atomic_folder
    with atomic_folder(out) as folder:
        save_file({"a": big}, folder / "model.safetensors")
def picture():
    from matplotlib.figure import Figure
    from taps.analysis.figures.style import Picture, save
    figure = Figure(figsize=(9, 9))
    figure.figimage(numpy.random.default_rng(0).random((900, 900, 3)))
    save(Picture(name="p", title="", caption="", alt="", figure=figure), out)
def table():
    from taps.plumbing.parquet import write_parquet
    write_parquet(out, {"x": big.numpy()}, kind="replay", provenance={}, meta={})
run({"state": state, "weights": weights, "picture": picture, "table": table}[sys.argv[1]])
"""


@pytest.mark.parametrize("what", ["state", "weights", "picture", "table"])
def test_each_library_on_a_disk_that_really_is_full(tmp_path: Path, what: str) -> None:
    """In a process of its own with a mount of its own, which ends with it."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f'mount -t tmpfs -o size=64k tmpfs {disk} || exit 77; exec {sys.executable} -c "$1" {what} {disk}/out'
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", WRITES], capture_output=True, text=True)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("this machine allows no mounts of a process's own")
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 1, done.stderr
    assert len(errors) == 1
    assert re.match(rf"error: {disk}/out\S*: disk full; free some space and rerun", errors[0]), errors
    assert "Traceback" not in done.stderr


# --- places that cannot be read or written ---------------------------------------------------------------------------


def a_folder(path: Path) -> Path:
    path.mkdir()
    return path


def a_circle(path: Path) -> Path:
    path.symlink_to(path)
    return path


def below_a_file(path: Path) -> Path:
    path.write_text("")
    return path / "x"


PLACES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a folder": (lambda tmp: a_folder(tmp / "x.json"), "a folder where a file is needed"),
    "too long a name": (lambda tmp: tmp / ("x" * 300), "name too long for this file system; shorten it"),
    "below a file": (lambda tmp: below_a_file(tmp / "file"), "there already, as something else"),
    "a circle of links": (lambda tmp: a_circle(tmp / "x"), "lead in a circle"),
}
READERS: dict[str, Callable[[Path], object]] = {
    "json": lambda path: read_json(path, kind="cost"),
    "rows": lambda path: read_jsonl(path, kind="corpus"),
    "tensors": lambda path: read_tensors(path, kind="trace"),
    "table": lambda path: read_parquet_envelope(path, kind="replay"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_cannot_be_read(tmp_path: Path, place: str, reader: str, capsys: pytest.CaptureFixture) -> None:
    path = PLACES[place][0](tmp_path)
    line = last_line(lambda: READERS[reader](path), capsys)
    assert line.startswith(f"error: {path}")


@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_cannot_be_written(tmp_path: Path, place: str, capsys: pytest.CaptureFixture) -> None:
    make, words = PLACES[place]
    path = make(tmp_path)
    if place == "a circle of links":
        write_json(path, [], kind="overlap", provenance=MADE)  # a link is replaced like any file
        return
    line = last_line(lambda: write_json(path, [], kind="overlap", provenance=MADE), capsys)
    assert words in line
    assert str(path)[:200] in line or str(path.parent) in line


@pytest.mark.parametrize("mode", [0o500, 0o000], ids=["read-only", "closed"])
def test_without_permission(tmp_path: Path, mode: int) -> None:
    """Root may do anything, so the writer is somebody else."""
    closed = tmp_path / "closed"
    closed.mkdir()
    program = (
        "import os, sys; os.setuid(65534) if os.getuid() == 0 else None\n"
        "from pathlib import Path; from taps.plumbing.cli import run; from taps.plumbing.artefacts import write_json\n"
        "run(lambda: write_json(Path(sys.argv[1]), [], kind='overlap', provenance={}))"
    )
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(parent.stat().st_mode | 0o011)
    closed.chmod(mode)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program, str(closed / "out.json")], capture_output=True, text=True, cwd=root, check=False
    )
    closed.chmod(0o700)
    if "ModuleNotFoundError" in done.stderr or "can't open" in done.stderr:
        pytest.skip("the checkout is not readable by others")
    assert done.returncode == 1
    assert re.fullmatch(
        rf"error: {closed}\S*: permission denied; see who may read and write it with: ls -ld\n", done.stderr
    )


def test_tracebacks_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPS_TRACEBACK", "1")
    with pytest.raises(FileNotFoundError):
        run(lambda: Path("/nowhere/file").stat())  # type: ignore[arg-type]


def test_broken_headers_and_sidecars_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": np.zeros(3)}, kind="trace", provenance=MADE)
    whole = path.read_bytes()
    deep: list[Any] = [b"[" * 100_000, b'{"__metadata__": [1]}', b'{"__metadata__": {"taps": 5}}', b"\xff" * 40]
    for header in deep:
        path.write_bytes(len(header).to_bytes(8, "little") + header + whole[-24:])
        assert f"error: {path}: " in last_line(lambda: read_tensors(path, kind="trace"), capsys)
    for content in (b"[" * 100_000, b"9" * 10_000, b'{"kind": ["trace"]}', b'{"kind": "cost", "digest": 5}'):
        (tmp_path / "y.json").write_bytes(content)
        assert f"error: {tmp_path}/y.json: " in last_line(lambda: read_json(tmp_path / "y.json", kind="cost"), capsys)
