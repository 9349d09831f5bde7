"""Tests of traces and draft banks that several jobs share: together they are what one job writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from taps import bank, join_texts, trace
from taps.plumbing.artefacts import read_tensors, write_jsonl
from taps.plumbing.errors import TapsError
from tests.support.live_fixtures import save_drafters, save_word_target

ROWS = [
    {"id": "q1", "category": "writing", "turns": ["a b c", "d"], "reference": None},
    {"id": "q2", "category": None, "turns": ["k j h g"], "reference": None},
    {"id": "q3", "category": None, "turns": ["c b a " * 50], "reference": None},  # no room for an answer
    {"id": "q4", "category": None, "turns": ["d f"], "reference": None},
]
Stage = Callable[..., Path]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_word_target(tmp_path_factory.mktemp("target"))


@pytest.fixture
def record(target: Path, tmp_path: Path) -> Stage:
    write_jsonl(tmp_path / "prompts.jsonl", ROWS, kind="prompts", provenance={})

    def run(name: str, *flags: object) -> Path:
        path = tmp_path / f"{name}.safetensors"
        words = ["--target", target, "--prompts", tmp_path / "prompts.jsonl", "--max-new-tokens", 9, *flags]
        trace.main([str(word) for word in (*words, "--output", path)])
        return path

    return run


@pytest.fixture
def draft(target: Path, tmp_path: Path) -> Stage:
    _, drafter = save_drafters(tmp_path, target, ["only"])

    def run(name: str, recorded: Path, *flags: object) -> Path:
        path = tmp_path / f"{name}.safetensors"
        words = ["--target", target, "--drafter", drafter.split("=", 1)[1], "--trace", recorded]
        words += ["--depth", 2, "--top-k", 3, "--num-nodes", 8, *flags]
        bank.main([str(word) for word in (*words, "--output", path)])
        return path

    return run


def joined(kind: str, parts: list[Path]) -> Path:
    output = parts[0].with_name(f"joined-{kind}.safetensors")
    join_texts.main(["--kind", kind, *(f"--shard={part}" for part in parts), "--output", str(output)])
    return output


@pytest.mark.parametrize("num_shards", [2, 4, 7])  # 4: one job's only prompt does not fit; 7: some have none
@pytest.mark.parametrize("temperature", [0, 1])
def test_traces_of_several_jobs_are_that_of_one(record: Stage, num_shards: int, temperature: int) -> None:
    sampling = ("--temperature", temperature)
    one, facts = read_tensors(record("one", *sampling), kind="trace")
    parts = [record(f"part{i}", *sampling, "--shard", i, "--num-shards", num_shards) for i in range(num_shards)]
    several, same_facts = read_tensors(joined("trace", parts), kind="trace")
    assert same_facts == facts
    assert facts["skipped"][0]["id"] == "q3"
    assert several.keys() == one.keys()
    for name in ("tokens", "offsets", "prompt_lengths"):
        assert torch.equal(several[name], one[name])
    torch.testing.assert_close(several["features"], one["features"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("num_shards", [2, 4, 7])
def test_banks_of_several_jobs_are_that_of_one(record: Stage, draft: Stage, num_shards: int) -> None:
    recorded = record("trace")
    one, facts = read_tensors(draft("one", recorded), kind="bank")
    parts = [draft(f"bank{i}", recorded, "--shard", i, "--num-shards", num_shards) for i in range(num_shards)]
    several, same_facts = read_tensors(joined("bank", parts), kind="bank")
    assert same_facts == facts
    assert several.keys() == one.keys()
    assert all(torch.equal(several[name], one[name]) for name in one)


def test_parts_of_other_recordings_are_refused(record: Stage) -> None:
    first, other = record("a", "--num-shards", 2), record("b", "--num-shards", 2, "--shard", 1, "--temperature", 1)
    with pytest.raises(TapsError, match=r"a part of another trace, expected that of .*a\.safetensors"):
        joined("trace", [first, other])
    with pytest.raises(TapsError, match=r"not the parts of one run, in order, .*, found \[\[0, 2\], \[0, 2\]\]"):
        joined("trace", [first, first])
    with pytest.raises(TapsError, match="a text comes twice"):
        joined("trace", [record("whole"), record("whole")])
    with pytest.raises(TapsError, match=r"--shard: no such part, expected 0 to --num-shards - 1 = 1, found 2"):
        record("c", "--num-shards", 2, "--shard", 2)
