"""Tests of taps.bank: one tree per position that can be a root, the very tree that live decoding drafts there."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from taps.bank import main
from taps.decoding.banks import bank_of_trace
from taps.decoding.drafting import DraftOptions
from taps.decoding.live_drafter import LiveDrafter
from taps.decoding.trees import Trees
from taps.model.sampler import continue_batch
from taps.model.sampling import Sampling
from taps.plumbing.artefacts import read_tensors, write_jsonl, write_tensors
from taps.plumbing.errors import TapsError
from taps.plumbing.provenance import digest_of
from taps.trace import main as trace_main
from taps.trace import pack
from tests.support.live_fixtures import draft_model, head_of, save_drafters, save_word_target, tiny_target

OPTIONS = DraftOptions(depth=2, top_k=3, num_nodes=10)
PROMPTS = [[1, 2, 3], [7], [4, 4, 9, 0, 2]]
LENGTHS = [9, 1, 2]  # generated tokens: the second answer has no position, the third one


@pytest.fixture(scope="module")
def target():
    return tiny_target()


@pytest.fixture(scope="module")
def trace(target):
    sequences = []
    for index, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True)):
        (answer,) = continue_batch(target, [prompt], sampling=Sampling(), draws=None, max_new_tokens=length)
        sequences.append({"id": str(index), "turn": 0, "category": None, "prompt": prompt, "answer": answer})
    return pack(sequences, no_features=torch.zeros((0, target.config["hidden_size"])))[0]


def test_positions_are_the_roots_of_all_cycles(target, trace):
    trees, offsets = bank_of_trace(draft_model(target, 0), head_of(target), trace, OPTIONS)
    assert offsets.tolist() == [0, 8, 8, 9]
    assert len(trees) == 9
    assert trees.num_nodes == OPTIONS.num_nodes


def test_trees_are_those_of_live_decoding(target, trace):
    """A live drafter is told each answer token by token, as if every cycle emitted one."""
    model, head = draft_model(target, 0), head_of(target)
    trees, offsets = bank_of_trace(model, head, trace, OPTIONS)
    live = LiveDrafter(model, head, depth=OPTIONS.depth, top_k=OPTIONS.top_k)
    starts = trace["offsets"].tolist()
    for sequence, prompt in enumerate(PROMPTS):
        tokens = trace["tokens"][starts[sequence] : starts[sequence + 1]].long()
        features = trace["features"][starts[sequence] : starts[sequence + 1]]
        live.begin()
        live.read(tokens[1 : len(prompt) + 1], features[: len(prompt)])
        for j in range(LENGTHS[sequence] - 1):
            row, tree = offsets[sequence] + j, live.draft(OPTIONS.num_nodes)
            np.testing.assert_array_equal(tree.tokens[0], trees.tokens[row])
            np.testing.assert_array_equal(tree.parents[0], trees.parents[row])
            np.testing.assert_allclose(tree.scores[0], trees.scores[row], atol=1e-5)
            np.testing.assert_allclose(tree.entropies[0], trees.entropies[row], atol=1e-5)
            root = len(prompt) + j
            live.read(tokens[root + 1 : root + 2], features[root : root + 1])


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_chunks_bound_memory_and_change_nothing(target, trace, chunk):
    model, head = draft_model(target, 0), head_of(target)
    whole, _ = bank_of_trace(model, head, trace, OPTIONS, chunk=100)
    parts, _ = bank_of_trace(model, head, trace, OPTIONS, chunk=chunk)
    np.testing.assert_array_equal(parts.tokens, whole.tokens)
    np.testing.assert_array_equal(parts.parents, whole.parents)
    np.testing.assert_allclose(parts.scores, whole.scores, atol=1e-5)


def test_an_answer_does_not_see_its_neighbours(target, trace):
    model, head = draft_model(target, 0), head_of(target)
    trees, offsets = bank_of_trace(model, head, trace, OPTIONS)
    start = trace["offsets"][2]
    last = {
        "tokens": trace["tokens"][start:],
        "offsets": torch.tensor([0, len(trace["tokens"]) - start]),
        "prompt_lengths": trace["prompt_lengths"][2:],
        "features": trace["features"][start:],
    }
    alone, _ = bank_of_trace(model, head, last, OPTIONS)
    np.testing.assert_array_equal(alone.tokens, trees.tokens[offsets[2] :])


def test_the_stage(tmp_path):
    target = save_word_target(tmp_path / "target")
    save_drafters(tmp_path, target, ("math",))
    rows = [{"id": "q", "category": None, "turns": ["a b"], "reference": None}]
    write_jsonl(tmp_path / "prompts.jsonl", rows, kind="prompts", provenance={})
    trace, bank = tmp_path / "trace.safetensors", tmp_path / "bank.safetensors"
    files = ["--target", str(target), "--prompts", str(tmp_path / "prompts.jsonl")]
    trace_main([*files, "--max-new-tokens", "7", "--output", str(trace)])
    write_tensors(tmp_path / "vocab.safetensors", {"token_ids": np.arange(2, 9)}, kind="draft_vocab", provenance={})
    flags = ["--target", str(target), "--drafter", str(tmp_path / "math"), "--trace", str(trace)]
    shape = ["--depth", "2", "--top-k", "3", "--num-nodes", "10"]
    main([*flags, *shape, "--draft-vocab", str(tmp_path / "vocab.safetensors"), "--output", str(bank)])
    tensors, meta = read_tensors(bank, kind="bank", framework="np")
    recorded, _ = read_tensors(trace, kind="trace")
    assert meta["trace"] == digest_of(trace)
    assert (meta["drafter"], meta["depth"], meta["top_k"], meta["num_nodes"]) == ("math", 2, 3, 10)
    assert meta["draft_vocab_size"] == 7
    offsets = tensors.pop("offsets")
    assert offsets.tolist() == [0, len(recorded["tokens"]) - int(recorded["prompt_lengths"][0]) - 1]
    trees = Trees(**tensors)
    assert {array.dtype for array in (trees.tokens, trees.parents, trees.scores)} == {
        np.dtype(np.int32),
        np.dtype(np.int16),
        np.dtype(np.float32),
    }
    drafted = trees.tokens[trees.exists()]
    assert (drafted >= 2).all()
    assert (drafted < 9).all()
    with pytest.raises(TapsError, match="another kind of file"):
        main([*flags[:-1], str(bank), *shape, "--output", str(tmp_path / "other.safetensors")])
