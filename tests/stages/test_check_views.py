"""taps.check_views: banks of a tiny study pass, banks of other trees are noticed, kinds are told apart."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from taps import bank, check_views, trace
from taps.plumbing.artefacts import read_json, read_tensors, write_jsonl, write_tensors
from taps.plumbing.errors import TapsError
from tests.support.live_fixtures import save_drafters, save_word_target, tree_of_paths

NAMES = ("math", "chat")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    target = save_word_target(folder / "target")
    save_drafters(folder, target, NAMES)
    prompts = [{"id": f"q{n}", "category": None, "turns": [words], "reference": None} for n, words in enumerate("abc")]
    write_jsonl(folder / "prompts.jsonl", prompts, kind="prompts", provenance={})
    recorded = ["--prompts", str(folder / "prompts.jsonl"), "--max-new-tokens", "20"]
    trace.main(["--target", str(target), *recorded, "--output", str(folder / "trace.safetensors")])
    for name in NAMES:
        flags = ["--drafter", str(folder / name), "--depth", "2", "--top-k", "3", "--num-nodes", "12"]
        output = ["--trace", str(folder / "trace.safetensors"), "--output", str(folder / f"{name}.safetensors")]
        bank.main(["--target", str(target), *flags, *output])
    return folder


def _check(study: Path) -> list[dict[str, int]]:
    check_views.main(
        [
            *("--target", str(study / "target"), "--trace", str(study / "trace.safetensors")),
            *(word for name in NAMES for word in ("--drafter", f"{name}={study / name}")),
            *(word for name in NAMES for word in ("--bank", f"{name}={study / f'{name}.safetensors'}")),
            *("--shapes", "0,2", "1,4", "2,12", "--num-positions", "30", "--output", str(study / "view_check.json")),
        ]
    )
    return read_json(study / "view_check.json", kind="view_check")["shapes"]


def test_banks_pass(study: Path) -> None:
    rows = _check(study)
    assert len(rows) == 9  # two drafters and their merged tree
    for row in rows:
        assert row["different"] == 0
        assert row["identical"] + row["near_tie"] == row["exact"] <= row["positions"]
        assert row["positions"] >= 30
    assert sum(row["exact"] for row in rows) > 100


def test_other_trees_are_noticed(study: Path) -> None:
    tensors, meta = read_tensors(study / "math.safetensors", kind="bank", framework="np")
    other = {**tensors, "tokens": np.where(tensors["tokens"] == 3, 4, tensors["tokens"])}
    write_tensors(study / "math.safetensors", other, kind="bank", provenance={}, meta=meta)
    try:
        with pytest.raises(TapsError, match="differ from fresh drafting"):
            _check(study)
    finally:
        write_tensors(study / "math.safetensors", tensors, kind="bank", provenance={}, meta=meta)


def test_kinds() -> None:
    one, other = tree_of_paths([(1,), (2,), (1, 3)]), tree_of_paths([(1,), (2,), (2, 4)])
    assert check_views.kind_of(one, one, 0) == "identical"
    assert check_views.kind_of(one, other, 0) == "near_tie"  # the last node of each, at one score
    other.scores[0, 2] += 0.1
    assert check_views.kind_of(one, other, 0) == "different"
    moved = tree_of_paths([(1,), (2,), (1, 3)])
    moved.scores[0, 1] -= 0.1
    assert check_views.kind_of(one, moved, 0) == "different"


@pytest.mark.skipif("TAPS_STUDY" not in os.environ, reason="set TAPS_STUDY to the results folder of a finished study")
def test_views_of_a_finished_study(tmp_path: Path) -> None:
    study = Path(os.environ["TAPS_STUDY"])
    banks = {name: study / "banks" / "eagle2" / name / "gsm8k" / "t0_s0.safetensors" for name in NAMES}
    check_views.main(
        [
            *("--target", str(study / "target"), "--trace", str(study / "traces" / "gsm8k" / "t0_s0.safetensors")),
            *(word for name in NAMES for word in ("--drafter", f"{name}={study / 'drafters' / 'eagle2' / name}")),
            *(word for name, path in banks.items() for word in ("--bank", f"{name}={path}")),
            *("--draft-vocab", str(study / "draft_vocab.safetensors"), "--output", str(tmp_path / "check.json")),
        ]
    )
    rows = json.loads((tmp_path / "check.json").read_text())["content"]["shapes"]
    assert all(row["positions"] >= 500 for row in rows)
