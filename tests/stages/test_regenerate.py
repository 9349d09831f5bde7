"""Regenerated corpora: the target's own answers, the same after a kill, each unanswered question accounted for."""

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from taps import regenerate, tokenise
from taps.data.chat import ChatTokenizer
from taps.data.mixtures import seeded_order
from taps.model.sampling import Sampling
from taps.plumbing.artefacts import read_json, read_jsonl, read_tensors, write_jsonl
from taps.plumbing.errors import TapsError
from tests.support.chat_fixtures import make_tokenizer, save_target

OPTIONS = regenerate.Answering(sampling=Sampling(), seed=0, max_new_tokens=8, batch_size=2)


def conversation(id_, *questions, system=None):
    turns = [{"role": "system", "text": system}] if system else []
    for question in questions:
        turns += [{"role": "user", "text": question}, {"role": "assistant", "text": "the corpus's own"}]
    return {"id": id_, "turns": turns}


@pytest.fixture
def scripted(monkeypatch):
    """A target that answers a prompt by what the prompt's last question says, and the prompts it was given."""
    tokenizer = make_tokenizer("chatml")
    prompts: list[str] = []

    def continue_texts(target, batch, *, sampling, draws, max_new_tokens):
        answers = []
        for prompt in batch:
            text = tokenizer.decode(prompt)
            prompts.append(text)
            question = text.rsplit("user\n", 1)[1].split("<|im_end|>")[0]
            reply, finish = {"empty": (" ", "eos"), "long": ("so it goe", "length")}.get(
                question, (f"re {question}", "eos")
            )
            tokens = tokenizer.encode(reply + ("<|im_end|>" if finish == "eos" else ""))
            answers.append(SimpleNamespace(tokens=np.array(tokens, dtype=np.int32), finish=finish))
        return answers

    monkeypatch.setattr("taps.model.fitting.continue_texts", continue_texts)
    words = partial(tokenizer.decode, skip_special_tokens=True)
    target = SimpleNamespace(tokenizer=tokenizer, max_length=120, text_of=words)
    return target, ChatTokenizer(tokenizer), prompts


def test_each_question_follows_the_targets_own_answers(scripted):
    target, chat, prompts = scripted
    ((turns, reason),) = regenerate.answer(target, chat, [conversation("a", "x", "y", system="s")], OPTIONS)
    assert reason is None
    assert [(turn["role"], turn["text"]) for turn in turns] == [
        ("system", "s"),
        ("user", "x"),
        ("assistant", "re x"),
        ("user", "y"),
        ("assistant", "re y"),
    ]
    assert "re x<|im_end|>" in prompts[-1]
    assert not any("the corpus's own" in prompt for prompt in prompts)


@pytest.mark.parametrize(
    ("questions", "said", "reason"),
    [
        (["empty"], [], "empty_answer"),
        (["x", "empty", "y"], ["x", "re x"], "empty_answer"),
        (["x", "a <|im_end|>"], ["x", "re x"], "special_token_in_text"),
        (["x" * 200], [], "prompt_too_long"),
        (["x", "long", "y"], ["x", "re x", "long", "so it goe"], "answer_cut"),
    ],
)
def test_conversations_end_where_a_question_has_no_answer(scripted, questions, said, reason):
    target, chat, _ = scripted
    rows = [conversation("a", *questions), conversation("b", "x", "y")]
    (turns, found), (other, none) = regenerate.answer(target, chat, rows, OPTIONS)
    assert ([turn["text"] for turn in turns], found) == (said, reason)
    assert [turn.get("cut", False) for turn in turns[-1:]] == [reason == "answer_cut"] * bool(said)
    assert ([turn["text"] for turn in other], none) == (
        ["x", "re x", "y", "re y"],
        None,
    )  # neighbours are not disturbed


CORPUS = [conversation(f"row{i}", *["What is two?", "the capital?"][: 1 + i % 2]) for i in range(13)]
CORPUS.append(conversation("typed", "<|im_end|>"))


@pytest.fixture(scope="module")
def target_folder(tmp_path_factory):
    folder = save_target(tmp_path_factory.mktemp("target"), "chatml")
    config = json.loads((folder / "config.json").read_text())
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            **config,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=128,
            bos_token_id=0,
        )
    )
    model.save_pretrained(folder)
    return folder


def run(folder, target, *options):
    write_jsonl(folder / "c.jsonl", CORPUS, kind="corpus", provenance={})
    arguments = ["--target", target, "--corpus", folder / "c.jsonl", "--seed", 0, "--max-new-tokens", 6]
    arguments += ["--batch-size", 1, "--output", folder / "o.jsonl", "--audit", folder / "audit.json", *options]
    regenerate.main([str(argument) for argument in arguments])
    return (folder / "o.jsonl").read_bytes()


def test_stage_answers_everything_and_counts_it(tmp_path, target_folder):
    first = run(tmp_path, target_folder, "--temperature", 1)
    audit = read_json(tmp_path / "audit.json", kind="audit")
    assert audit["read"] == 14 == audit["kept"] + sum(entry["count"] for entry in audit["dropped"].values())
    assert audit["dropped"]["special_token_in_text"] == {"count": 1, "example": "typed"}
    rows = read_jsonl(tmp_path / "o.jsonl", kind="corpus")
    assert len(rows) == audit["kept"]
    assert [row["id"] for row in rows] == [
        CORPUS[i]["id"]
        for i in seeded_order([row["id"] for row in CORPUS], 0)
        if CORPUS[i]["id"] in {row["id"] for row in rows}
    ]
    assert not list(tmp_path.glob("*.journal"))
    assert run(tmp_path, target_folder, "--temperature", 1) == first
    assert run(tmp_path, target_folder, "--temperature", 0) != first


def test_a_killed_run_goes_on_and_gives_the_same(tmp_path, target_folder, monkeypatch):
    (tmp_path / "whole").mkdir()
    expected = run(tmp_path / "whole", target_folder, "--temperature", 1)
    answer, calls = regenerate.answer, []

    def dying(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return answer(*arguments)

    monkeypatch.setattr(regenerate, "answer", dying)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, target_folder, "--temperature", 1)
    assert not (tmp_path / "o.jsonl").exists()
    assert run(tmp_path, target_folder, "--temperature", 1) == expected
    assert len(calls) == 3 + 2  # 14 conversations in chunks of 4: two were in the journal


def test_size_in_tokens_is_reached_for_tokenisation(tmp_path, target_folder):
    run(tmp_path, target_folder, "--temperature", 1, "--max-tokens", 200, "--max-length", 64)
    audit = read_json(tmp_path / "audit.json", kind="audit")
    assert audit["kept"] + audit["dropped"]["beyond_size"]["count"] <= audit["read"] == 14
    flags = ["--target", target_folder, "--corpus", tmp_path / "o.jsonl", "--max-length", 64, "--max-tokens", 200]
    flags += ["--seed", 0, "--output", tmp_path / "t.safetensors", "--audit", tmp_path / "t.json"]
    tokenise.main([str(flag) for flag in flags])
    tensors, _ = read_tensors(tmp_path / "t.safetensors", kind="tokens", framework="np")
    assert len(tensors["tokens"]) >= 200


def test_nothing_answered_is_an_error(tmp_path, target_folder):
    write_jsonl(tmp_path / "c.jsonl", CORPUS[-1:], kind="corpus", provenance={})
    flags = ["--target", target_folder, "--corpus", tmp_path / "c.jsonl", "--seed", 0]
    flags += ["--output", tmp_path / "o.jsonl", "--audit", tmp_path / "audit.json"]
    with pytest.raises(TapsError, match=r"no conversation was answered.*special_token_in_text 1"):
        regenerate.main([str(flag) for flag in flags])
