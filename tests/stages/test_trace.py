"""Tests of taps.trace: recorded texts are the target's own, whatever the batch; they end where they must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from taps.decoding.verification import TargetText
from taps.model.sampler import continue_batch
from taps.model.sampling import Draws, Sampling
from taps.model.target import load_target
from taps.plumbing.artefacts import read_tensors, write_jsonl
from taps.plumbing.errors import TapsError
from taps.trace import main, record
from tests.support.live_fixtures import FAMILIES, greedy, save_word_target, tiny_target

PROMPTS = [[1, 2, 3], [7], [4, 4, 9, 0, 2, 11, 5, 8], [6, 6]]
SAMPLED = Sampling(temperature=1.0)
ROWS: list[dict[str, Any]] = [
    {"id": "q1", "category": "writing", "turns": ["a b c", "d"], "reference": None},
    {"id": "q2", "category": None, "turns": ["k j h g"], "reference": None},
]


@pytest.fixture(scope="module")
def target():
    return tiny_target()


# --- many prompts at once --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [*FAMILIES, "GPT2Config"])
def test_greedy_texts_are_those_of_generate(family):
    target = tiny_target(family)
    answers = continue_batch(target, PROMPTS, sampling=Sampling(), draws=None, max_new_tokens=16)
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        assert answer.tokens.tolist() == greedy(target, prompt, 16)
        assert answer.finish == "length"


@pytest.mark.parametrize("sampling", [Sampling(), SAMPLED, Sampling(temperature=0.8, top_p=0.9, top_k=6)], ids=str)
def test_the_batch_changes_nothing(target, sampling):
    draws = [Draws(3, str(index), 0) for index in range(len(PROMPTS))]
    together = continue_batch(target, PROMPTS, sampling=sampling, draws=draws, max_new_tokens=20)
    for index, (prompt, answer) in enumerate(zip(PROMPTS, together, strict=True)):
        (alone,) = continue_batch(target, [prompt], sampling=sampling, draws=[draws[index]], max_new_tokens=20)
        assert answer.tokens.tolist() == alone.tokens.tolist()
        torch.testing.assert_close(answer.features, alone.features, atol=1e-5, rtol=1e-5)


def test_features_are_those_of_one_pass_and_the_last_is_zero(target):
    answers = continue_batch(target, PROMPTS, sampling=Sampling(), draws=None, max_new_tokens=12)
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        whole = TargetText(target).read([*prompt, *answer.tokens.tolist()])
        torch.testing.assert_close(answer.features[:-1], whole[:-1], atol=1e-5, rtol=1e-5)
        assert not answer.features[-1].any()
        assert len(answer.features) == len(prompt) + len(answer.tokens)


def test_an_answer_ends_at_its_end_token_and_leaves_the_batch():
    free = tiny_target()
    texts = [greedy(free, prompt, 16) for prompt in PROMPTS]
    end = texts[0][4]
    target = tiny_target(eos_ids=[end])
    counts: list[int] = []
    answers = continue_batch(
        target, PROMPTS, sampling=Sampling(), draws=None, max_new_tokens=16, on_tokens=counts.append
    )
    for text, answer in zip(texts, answers, strict=True):
        expected = text[: text.index(end) + 1] if end in text else text
        assert answer.tokens.tolist() == expected
        assert answer.finish == ("eos" if end in text else "length")
    assert sum(counts) == sum(len(answer.tokens) for answer in answers)
    assert {answer.finish for answer in answers} == {"eos", "length"}  # else one of the two was not tried


@pytest.mark.parametrize("room", [1, 2, 5])
def test_an_answer_ends_with_the_context(room):
    target = tiny_target(positions=24)
    long, short = [(5 * i) % 12 for i in range(24 - room)], [1, 2]
    answers = continue_batch(target, [long, short], sampling=Sampling(), draws=None, max_new_tokens=8)
    assert (len(answers[0].tokens), answers[0].finish) == (room, "context")
    assert (len(answers[1].tokens), answers[1].finish) == (8, "length")
    assert answers[0].tokens.tolist() == greedy(target, long, room)


def test_draws_decide_the_text(target):
    one, other = (Draws(seed, "q", 0) for seed in (0, 1))
    texts = [
        continue_batch(target, PROMPTS[:1], sampling=SAMPLED, draws=[draws], max_new_tokens=16)[0].tokens.tolist()
        for draws in (one, one, other)
    ]
    assert texts[0] == texts[1] != texts[2]


# --- the stage -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    save_word_target(folder / "target", positions=64)
    write_jsonl(folder / "prompts.jsonl", ROWS, kind="prompts", provenance={})
    return folder


def _trace(folder, output, *flags):
    main(
        [
            *("--target", str(folder / "target"), "--prompts", str(folder / "prompts.jsonl")),
            *("--max-new-tokens", "12", *flags, "--output", str(folder / output)),
        ]
    )
    return read_tensors(folder / output, kind="trace")


def test_the_second_turn_follows_the_recorded_first_answer(folder):
    tensors, meta = _trace(folder, "t0.safetensors")
    assert list(zip(meta["ids"], meta["turns"], meta["categories"], strict=True)) == [
        ("q1", 0, "writing"),
        ("q1", 1, "writing"),
        ("q2", 0, None),
    ]
    target = load_target(folder / "target")
    messages: list[dict[str, str]] = []
    starts = tensors["offsets"].tolist()
    for index, question in enumerate(ROWS[0]["turns"]):
        messages.append({"role": "user", "text": question})
        (prompt,) = target.render([messages])
        assert isinstance(prompt, list)
        answer = greedy(target, prompt, 12)
        assert tensors["tokens"][starts[index] : starts[index + 1]].tolist() == [*prompt, *answer]
        assert tensors["prompt_lengths"][index] == len(prompt)
        messages.append({"role": "assistant", "text": str(target.tokenizer.decode(answer, skip_special_tokens=True))})
    assert len(tensors["features"]) == starts[-1] == len(tensors["tokens"])
    assert meta["sampling"] == {"temperature": 0.0, "top_p": 1.0, "top_k": 0}
    assert meta["max_new_tokens"] == 12


def test_sampled_traces_depend_on_the_seed_alone(folder):
    flags = ("--temperature", "1", "--top-p", "0.9")
    first, meta = _trace(folder, "a.safetensors", *flags, "--seed", "1", "--batch-size", "1")
    same, _ = _trace(folder, "b.safetensors", *flags, "--seed", "1", "--batch-size", "8")
    other, _ = _trace(folder, "c.safetensors", *flags, "--seed", "2")
    assert first["tokens"].tolist() == same["tokens"].tolist()
    assert first["tokens"].tolist() != other["tokens"].tolist()
    assert (meta["sampling"]["top_p"], meta["seed"]) == (0.9, 1)


def test_a_turn_without_room_is_skipped_with_the_turns_behind_it(folder):
    target = load_target(folder / "target")
    rows = [
        {"id": "short", "category": None, "turns": ["a"]},
        {"id": "long", "category": None, "turns": ["a " * 64, "b"]},
        {"id": "later", "category": None, "turns": ["a " * 50, "b"]},
    ]
    sequences, skipped = record(target, rows, sampling=Sampling(), seed=0, max_new_tokens=12, batch_size=4)
    assert [(s["id"], s["turn"]) for s in sequences] == [("short", 0), ("later", 0)]
    assert [(s["id"], s["turn"]) for s in skipped] == [("long", 0), ("later", 1)]
    assert sequences[1]["answer"].finish in {"length", "eos"}


def test_recorded_samples_depend_on_neither_batch_nor_threads(folder):
    """Eight conversations of two turns at T = 1, one by one with one thread and five at a time with two."""
    target = load_target(folder / "target")
    rows = [{"id": f"q{n}", "category": None, "turns": ["a b c d e f g h"[: 2 * n + 1], "e f"]} for n in range(8)]
    threads = torch.get_num_threads()
    texts = []
    try:
        for batch_size, num_threads in ((1, 1), (5, 2)):
            torch.set_num_threads(num_threads)
            sequences, _ = record(target, rows, sampling=SAMPLED, seed=4, max_new_tokens=10, batch_size=batch_size)
            texts.append([sequence["answer"].tokens.tolist() for sequence in sequences])
    finally:
        torch.set_num_threads(threads)
    assert texts[0] == texts[1]
    assert len({tuple(text) for text in texts[0]}) > 8  # not the same text over and over


def test_nothing_to_record(folder, tmp_path):
    write_jsonl(tmp_path / "prompts.jsonl", [], kind="prompts", provenance={})
    flags = ["--target", str(folder / "target"), "--max-new-tokens", "4", "--output", str(tmp_path / "t.safetensors")]
    with pytest.raises(TapsError, match="no prompts"):
        main([*flags, "--prompts", str(tmp_path / "prompts.jsonl")])
    long = [{"id": "q", "category": None, "turns": ["a " * 70], "reference": None}]
    write_jsonl(tmp_path / "prompts.jsonl", long, kind="prompts", provenance={})
    with pytest.raises(TapsError, match="no prompt fits the target's context"):
        main([*flags, "--prompts", str(tmp_path / "prompts.jsonl")])
    assert not (tmp_path / "t.safetensors").exists()


def test_sliding_windows_are_refused(tmp_path):
    """Before any weight is read: there are none in this folder."""
    from transformers import MistralConfig

    MistralConfig(sliding_window=32, num_hidden_layers=1).save_pretrained(tmp_path)
    with pytest.raises(TapsError, match="sliding"):
        load_target(tmp_path)


def test_dtype_of_features_is_the_compute_dtype(folder):
    tensors, meta = _trace(folder, "bf16.safetensors", "--dtype", "bfloat16")
    assert tensors["features"].dtype == torch.bfloat16
    assert meta["dtype"] == "bfloat16"
    assert np.isfinite(tensors["features"].float().numpy()).all()
