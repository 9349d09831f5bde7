"""Folders appear whole and lose nothing to a kill at any moment; files are for others to read and not to write."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taps.plumbing import folders
from taps.plumbing.artefacts import write_json, write_jsonl, write_tensors
from taps.plumbing.folders import atomic_folder, link, take_place
from taps.plumbing.journal import Journal
from taps.plumbing.writers import unfinished
from tests.support.artefact_shapes import ARRAYS, MADE, ROWS

NAMES = ("out", "out[1]", "*", "out.old", "a b", "-x", "ümlaut", "{x}", "out\nput")


@pytest.fixture(params=[True, False], ids=["exchange", "two renames"])
def exchange(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the file system can exchange two names."""
    if not request.param:
        monkeypatch.setattr(folders, "_exchange", lambda one, other: False)
    return request.param


def write(path: Path, content: str) -> None:
    with atomic_folder(path) as folder:
        (folder / "file").write_text(content)


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_replaces_one_of_any_name(tmp_path: Path, name: str, exchange: bool) -> None:
    for content in ("first", "second", "third"):
        write(tmp_path / name, content)
        assert (tmp_path / name / "file").read_text() == content
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_this_file_system_can_exchange_names(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if not folders._exchange(tmp_path / "a", tmp_path / "b"):
        pytest.skip("this file system cannot exchange two names in one step")
    assert (tmp_path / "a" / "b").exists()
    assert (tmp_path / "b" / "a").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from taps.plumbing import folders
moment, can_exchange = int(sys.argv[2]), sys.argv[3] == "1"
calls = 0
def counted(real):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    return call
if not can_exchange:
    folders._exchange = lambda one, other: False
for name in ("replace", "fsync", "unlink", "rmdir", "mkdir", "chmod"):
    setattr(os, name, counted(getattr(os, name)))
folders._exchange = counted(folders._exchange)
folders.remove = counted(folders.remove)
with folders.atomic_folder(Path(sys.argv[1])) as folder:
    (folder / "file").write_text("new")
"""


def fail(path: Path) -> None:
    """Is a writer that comes to grief half way."""
    with contextlib.suppress(ZeroDivisionError), atomic_folder(path) as folder:
        (folder / "file").write_text("half")
        raise ZeroDivisionError


@pytest.mark.parametrize("can_exchange", [True, False], ids=["exchange", "two renames"])
def test_a_kill_at_any_moment_leaves_one_whole_folder(tmp_path: Path, can_exchange: bool) -> None:
    """A rerun that fails after a kill leaves the old output, one that succeeds the new, and nothing else."""
    path = tmp_path / "out"
    for moment in range(1, 100):
        write(path, "old")
        command = [sys.executable, "-c", KILLED, str(path), str(moment), str(int(can_exchange))]
        root = Path(__file__).parents[2]
        killed = subprocess.run(command, cwd=root, check=False).returncode == -signal.SIGKILL
        fail(path)
        assert (path / "file").read_text() in ("old", "new")
        assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
        if not killed:
            break
    assert 3 < moment < 60
    assert (path / "file").read_text() == "new"


def test_what_another_writer_has_not_finished_is_not_taken_for_an_old_output(tmp_path: Path) -> None:
    """The unfinished `out.old` of a dead writer is none of `out`'s business."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    half = unfinished(tmp_path / "out.old")
    half = half.with_name(half.name.replace(f".{os.getpid()}.", f".{dead.pid}."))
    half.mkdir()
    folders.restore(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    write(tmp_path / "out", "new")
    assert (tmp_path / "out" / "file").read_text() == "new"


def test_a_failed_second_rename_brings_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_exchange", lambda one, other: False)
    write(tmp_path / "out", "old")
    with pytest.raises(OSError, match="No such file"):
        take_place(tmp_path / "nowhere", tmp_path / "out")
    assert (tmp_path / "out" / "file").read_text() == "old"


# --- modes -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[0o022, 0o000, 0o027, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """The umask of this test."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_for_others_to_read_and_never_to_write(tmp_path: Path, umask: int) -> None:
    write_json(tmp_path / "a.json", {}, kind="cost", provenance=MADE)
    write_jsonl(tmp_path / "b.jsonl", ROWS, kind="corpus", provenance=MADE)
    write_tensors(tmp_path / "c.safetensors", ARRAYS, kind="trace", provenance=MADE)
    Journal(tmp_path / "d.journal", {}).write(0, "a user's words")
    for path in tmp_path.iterdir():
        assert mode_of(path) == 0o644 & ~umask, path.name


def test_folders_are_too_whatever_a_library_chose(tmp_path: Path, umask: int) -> None:
    from safetensors.numpy import save_file

    with atomic_folder(tmp_path / "out") as folder:
        save_file(ARRAYS, folder / "model.safetensors")  # the library: 0600
        (folder / "inner").mkdir(mode=0o700)
        (folder / "inner" / "run.sh").write_text("x")
        (folder / "inner" / "run.sh").chmod(0o777)
    assert mode_of(tmp_path / "out") == 0o755 & ~umask
    assert mode_of(tmp_path / "out" / "inner") == 0o755 & ~umask
    for name in ("model.safetensors", "inner/run.sh"):
        assert mode_of(tmp_path / "out" / name) == 0o644 & ~umask


def test_an_exported_drafter_and_an_imported_one_can_be_read_by_a_server(tmp_path: Path) -> None:
    from taps import export_draft, import_draft
    from taps.model.drafter import DraftModel
    from tests.support.draft_models import CONFIG
    from tests.support.target_fixtures import write_target

    target = write_target(tmp_path / "target")
    from taps.model.checkpoint import save_drafter

    save_drafter(tmp_path / "ours", DraftModel(CONFIG).state_dict(), CONFIG, provenance=MADE)
    common = ["--target", str(target)]
    exported, imported = tmp_path / "eagle", tmp_path / "imported"
    export_draft.main(["--drafter", str(tmp_path / "ours"), *common, "--flavour", "eagle", "--output", str(exported)])
    import_draft.main(["--source", str(tmp_path / "ours"), *common, "--output", str(imported)])
    for folder in (exported, imported, tmp_path / "ours"):
        assert {mode_of(file) & 0o444 for file in folder.iterdir()} == {0o444}


def test_the_files_of_others_keep_their_modes(tmp_path: Path) -> None:
    own = tmp_path / "weights"
    own.write_bytes(b"x")
    own.chmod(0o640)
    with atomic_folder(tmp_path / "out") as folder:
        link(own, folder / "hard")
        (folder / "soft").symlink_to(own)
    assert mode_of(own) == 0o640
