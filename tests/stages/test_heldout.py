"""Held-out prompts open conversations that nothing trains on: validation rows, then those beyond the size."""

from contextlib import nullcontext

import numpy as np
import pytest

from taps import heldout
from taps.data.mixtures import seeded_order
from taps.plumbing.artefacts import read_envelope, read_jsonl, write_jsonl, write_tensors
from taps.plumbing.errors import TapsError
from taps.plumbing.provenance import digest_of

TURNS = [{"role": "user", "text": "first"}, {"role": "assistant", "text": "a"}, {"role": "user", "text": "second"}]


IDS = [f"row{i}" for i in range(60)]


@pytest.fixture
def arguments(tmp_path):
    """A corpus of 60 conversations, the first 45 of the seeded order tokenised."""
    order = [IDS[i] for i in seeded_order(IDS, 7)]
    turns = {id_: [{**TURNS[0], "text": f"question {id_}"}, *TURNS[1:]] for id_ in IDS}
    turns[order[39]].insert(0, {"role": "system", "text": "be brief"})
    turns[order[46]][0]["text"] = "too long" * 100
    write_jsonl(tmp_path / "c.jsonl", [{"id": id_, "turns": turns[id_]} for id_ in IDS], kind="corpus", provenance={})
    meta = {"ids": order[:45], "seed": 7, "max_length": 64}
    write_tensors(tmp_path / "c.safetensors", {"offsets": np.arange(46)}, kind="tokens", provenance={}, meta=meta)
    return order, ["--corpus", str(tmp_path / "c.jsonl"), "--tokens", str(tmp_path / "c.safetensors")]


def test_validation_rows_come_first(arguments, tmp_path):
    order, flags = arguments
    output = tmp_path / "heldout.jsonl"
    heldout.main([*flags, "--num-prompts", "2", "--output", str(output)])
    first, second = order[19], order[39]
    assert read_jsonl(output, kind="prompts") == [
        {"id": first, "category": None, "turns": [f"question {first}"], "reference": None},
        {"id": second, "category": None, "turns": [f"question {second}"], "reference": None, "system": "be brief"},
    ]


def test_then_conversations_beyond_the_size_that_fit(arguments, tmp_path, capsys):
    order, flags = arguments
    output = tmp_path / "heldout.jsonl"
    heldout.main([*flags, "--num-prompts", "5", "--output", str(output)])
    chosen = [row["id"] for row in read_jsonl(output, kind="prompts")]
    assert chosen == [order[i] for i in (19, 39, 45, 47, 48)]
    assert "2 validation rows, 3 conversations beyond" in capsys.readouterr().out


def test_too_few_conversations(arguments, tmp_path):
    with pytest.raises(TapsError, match=r"nothing trains on, expected 17, found 16"):
        heldout.main([*arguments[1], "--num-prompts", "17", "--output", str(tmp_path / "h.jsonl")])


def test_tokens_of_rewritten_conversations_belong_to_what_was_collected(arguments, tmp_path):
    tokens, corpus = tmp_path / "c.safetensors", tmp_path / "c.jsonl"
    flags = [*arguments[1], "--num-prompts", "2", "--output", str(tmp_path / "heldout.jsonl")]
    meta = read_envelope(tokens, kind="tokens")["meta"]
    for inputs, is_refused in [
        ({"corpus": "of the rewritten ones", "collected": digest_of(corpus)}, False),
        ({"corpus": "of the rewritten ones", "collected": "of another corpus"}, True),
        ({"corpus": digest_of(corpus)}, False),
        ({"corpus": "of another corpus"}, True),
    ]:
        write_tensors(tokens, {"offsets": np.arange(46)}, kind="tokens", provenance={"inputs": inputs}, meta=meta)
        with pytest.raises(TapsError, match="made from another") if is_refused else nullcontext():
            heldout.main(flags)


def test_another_corpus_is_refused(arguments, tmp_path):
    write_jsonl(tmp_path / "c.jsonl", [{"id": "x", "turns": TURNS}], kind="corpus", provenance={})
    with pytest.raises(TapsError, match="lacks the conversation"):
        heldout.main([*arguments[1], "--num-prompts", "1", "--output", str(tmp_path / "h.jsonl")])
