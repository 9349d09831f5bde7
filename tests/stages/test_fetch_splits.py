"""One split of a data set, on the Hub or in a folder, arrives as JSON lines, or not at all."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from taps import fetch
from taps.plumbing.errors import TapsError
from taps.plumbing.provenance import digest_of
from tests.stages.test_fetch import hub_flags, run_fetch
from tests.support.fake_hub import REVISION, FakeHub, serving

CARD = b"""---
configs:
- config_name: main
  data_files: [{split: train, path: main/train-*}, {split: test, path: main/test-*}]
- config_name: other
  data_files: [{split: test, path: other/*}]
---
"""


def lines(*names: str) -> bytes:
    return b"".join(json.dumps({"question": name, "answer": None}).encode() + b"\n" for name in names)


@pytest.fixture
def data_set() -> Iterator[FakeHub]:
    files = {"README.md": CARD, "main/train-0.jsonl": lines("a", "b"), "main/train-1.jsonl": lines("c")}
    with serving(FakeHub(files | {"main/test-0.jsonl": lines("d"), "other/e.jsonl": lines("e")})) as hub:
        yield hub


def split_flags(output: Path, *more: str) -> list[str]:
    return [*hub_flags(output, *more), "--repo-type", "dataset"]


def questions(path: Path) -> list[str]:
    return [json.loads(line)["question"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--config", "main", "--split", "train"), ["a", "b", "c"]),
        (("--config", "main", "--split", "train", "--rows", "2"), ["a", "b"]),
        (("--config", "other", "--split", "test"), ["e"]),
    ],
)
def test_one_split_arrives_as_json_lines(data_set, tmp_path, flags, expected):
    output = tmp_path / "out" / "rows.jsonl"
    result = run_fetch(*split_flags(output, *flags), **data_set.environment(tmp_path))
    assert result.returncode == 0, result.stderr
    assert questions(output) == expected
    assert digest_of(output) == hashlib.sha256(output.read_bytes()).hexdigest()
    origin = json.loads((output.parent / "rows.jsonl.provenance.json").read_text())["provenance"]["origin"]
    assert origin["revision"] == REVISION
    assert (origin["config"], origin["split"]) == (flags[1], flags[3])
    assert data_set.tokens == {"Bearer hf_secret"}
    left = sorted(path.name for path in output.parent.iterdir())
    assert left == [".rows.jsonl.lock", "rows.jsonl", "rows.jsonl.provenance.json"]

    data_set.files.clear()
    again = run_fetch(*split_flags(output, *flags), **data_set.environment(tmp_path))
    assert (again.returncode, "already there" in again.stderr) == (0, True)


@pytest.mark.parametrize(
    ("change", "flags", "message"),
    [
        ({}, ("--split", "test"), "Please pick one among the available configs: ['main', 'other']"),
        ({}, ("--config", "main", "--split", "test", "--sha256", "0" * 64), "wrong sha256"),
        ({"main/train-0.jsonl": b"[1]"}, ("--config", "main", "--split", "train"), "JSON"),
        ({"README.md": CARD.replace(b"main/test-*", b"/etc/*.json")}, ("--config", "main", "--split", "test"), "error"),
        (
            {"README.md": CARD.replace(b"main/test-*", b"https://127.0.0.1/x.jsonl")},
            ("--config", "main", "--split", "test"),
            "cannot be read as a data set",
        ),
    ],
    ids=["no config", "hash", "list", "card names /etc", "card names another host"],
)
def test_split_errors_are_one_line_and_leave_nothing(data_set, tmp_path, change, flags, message):
    data_set.files |= change
    output = tmp_path / "out" / "rows.jsonl"
    result = run_fetch(*split_flags(output, *flags, "--attempts", "1"), **data_set.environment(tmp_path))
    assert result.returncode == 1
    assert message in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
    assert [path.name for path in output.parent.iterdir()] == [".rows.jsonl.lock"]


def test_a_local_card_cannot_name_files_outside_either(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "secret.jsonl").write_bytes(lines("secret"))
    card = CARD.replace(b"main/test-*", str(tmp_path / "secret.jsonl").encode()).replace(b"main/train-*", b"a.jsonl")
    (folder / "README.md").write_bytes(card.replace(b"other/*", b"a.jsonl"))
    (folder / "a.jsonl").write_bytes(lines("a"))
    flags = ["--path", str(folder), "--config", "main", "--split", "test", "--output", str(tmp_path / "o.jsonl")]
    with pytest.raises(TapsError, match="names a file outside the data set"):
        fetch.main(flags)
    assert not (tmp_path / "o.jsonl").exists()


@pytest.mark.parametrize("card", ["configs: [", "configs: 7", "configs:\n- {config_name: [1], data_files: 3}", "\0"])
def test_a_broken_card_is_one_line(tmp_path, card):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "test.jsonl").write_text('{"a": 1}\n')
    (folder / "README.md").write_text(f"---\n{card}\n---\n")
    flags = ["--path", str(folder), "--split", "test", "--attempts", "1", "--output", str(tmp_path / "out.jsonl")]
    with pytest.raises(TapsError, match=r"data, split test: ") as caught:
        fetch.main(flags)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out.jsonl").exists()


def test_a_split_of_a_local_folder_whose_name_looks_like_a_pattern(tmp_path):
    folder = tmp_path / "my [set] *"
    folder.mkdir()
    (folder / "train.jsonl.gz").write_bytes(gzip.compress(lines("a", "b")))
    (folder / "test.jsonl").write_bytes(lines("c"))
    for split, expected in (("train", ["a", "b"]), ("test", ["c"])):
        fetch.main(["--path", str(folder), "--split", split, "--output", str(tmp_path / "o.jsonl")])
        assert questions(tmp_path / "o.jsonl") == expected
