"""The tiny target is a real target: it loads, learns, ends its answers, and is the same every time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from taps import tiny_target
from taps.plumbing.artefacts import read_json, write_jsonl
from taps.plumbing.errors import TapsError
from taps.plumbing.provenance import sha256_of

CHATS = [
    {
        "id": str(i),
        "turns": [{"role": "user", "text": f"Name {word}."}, {"role": "assistant", "text": f"It is {word}!"}],
    }
    for i, word in enumerate(["red", "blue", "green", "amber"])
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "chat.jsonl"
    write_jsonl(path, CHATS * 4, kind="corpus", provenance={})
    return path


def build(corpus: Path, output: Path, *, steps: int, seed: int = 0, window: int = 48) -> Path:
    flags = ["--corpus", str(corpus), "--seed", str(seed), "--steps", str(steps), "--window", str(window)]
    tiny_target.main([*flags, "--output", str(output)])
    return output


@pytest.fixture(scope="module")
def target(corpus, tmp_path_factory) -> Path:
    return build(corpus, tmp_path_factory.mktemp("target") / "t", steps=60)


def test_it_answers_and_stops(target):
    tokenizer: Any = AutoTokenizer.from_pretrained(target)
    model = AutoModelForCausalLM.from_pretrained(target).eval()
    messages = [{"role": "user", "content": "Name blue."}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = model.generate(**prompt, max_new_tokens=40, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    text = tokenizer.decode(output)
    assert text.startswith("It is ")
    assert text.endswith("<|im_end|>")


def test_shape_and_record(target):
    config = json.loads((target / "config.json").read_text())
    assert (config["hidden_size"], config["num_hidden_layers"]) == (64, 2)
    assert config["num_key_value_heads"] < config["num_attention_heads"]
    record = read_json(target / "provenance.json", kind="target")
    assert record["eos_ids"] == [config["eos_token_id"]]
    assert record["loss"] < 2.5  # a uniform guess costs more than 5 nats


@pytest.mark.parametrize("text", ["plain", "  12 €  éß\n\tתודה\u200b", "<|im_end|>", "🦙"])
def test_every_text_survives_the_tokenizer(target, text):
    tokenizer = AutoTokenizer.from_pretrained(target)
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_equal_seeds_give_equal_weights(corpus, tmp_path):
    threads = torch.get_num_threads()
    outputs = [build(corpus, tmp_path / name, steps=3, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    torch.set_num_threads(threads)
    digests = [sha256_of(output / "model.safetensors") for output in outputs]
    assert digests[0] == digests[1] != digests[2]
    tokenizers = {(output / "tokenizer.json").read_bytes() for output in outputs}
    assert len(tokenizers) == 1


def test_too_little_text_is_an_error(corpus, tmp_path):
    with pytest.raises(TapsError, match="too little text, expected more than 5000 tokens"):
        build(corpus, tmp_path / "t", steps=1, window=5000)
