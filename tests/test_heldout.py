"""Held-out prompts are the openings of validation rows, never of training rows."""

import numpy as np
import pytest

from taps import heldout
from taps.plumbing.artefacts import read_jsonl, write_jsonl, write_tensors
from taps.plumbing.errors import TapsError

TURNS = [{"role": "user", "text": "first"}, {"role": "assistant", "text": "a"}, {"role": "user", "text": "second"}]


@pytest.fixture
def arguments(tmp_path):
    ids = [f"row{i}" for i in range(45)]
    turns = {id_: [{**TURNS[0], "text": f"question {id_}"}, *TURNS[1:]] for id_ in ids}
    turns["row39"].insert(0, {"role": "system", "text": "be brief"})
    corpus = [{"id": id_, "turns": turns[id_]} for id_ in reversed(ids)]  # the order is the token file's
    write_jsonl(tmp_path / "c.jsonl", corpus, kind="corpus", provenance={})
    tensors = {"offsets": np.arange(46)}
    write_tensors(tmp_path / "c.safetensors", tensors, kind="tokens", provenance={}, meta={"ids": ids})
    return ["--corpus", str(tmp_path / "c.jsonl"), "--tokens", str(tmp_path / "c.safetensors")]


def test_prompts(arguments, tmp_path):
    output = tmp_path / "heldout.jsonl"
    heldout.main([*arguments, "--num-prompts", "2", "--output", str(output)])
    assert read_jsonl(output, kind="prompts") == [
        {"id": "row19", "category": None, "turns": ["question row19"], "reference": None},
        {"id": "row39", "category": None, "turns": ["question row39"], "reference": None, "system": "be brief"},
    ]


def test_too_few_validation_rows(arguments, tmp_path):
    with pytest.raises(TapsError, match=r"too few validation rows.*expected 3, found 2"):
        heldout.main([*arguments, "--num-prompts", "3", "--output", str(tmp_path / "h.jsonl")])


def test_another_corpus_is_refused(arguments, tmp_path):
    write_jsonl(tmp_path / "c.jsonl", [{"id": "x", "turns": TURNS}], kind="corpus", provenance={})
    with pytest.raises(TapsError, match="lacks the conversation 'row19'"):
        heldout.main([*arguments, "--num-prompts", "1", "--output", str(tmp_path / "h.jsonl")])
