"""Tests of the stage taps.decode: what is printed is the target's own text, with the measures behind it."""

from __future__ import annotations

import re

import pytest

from taps.decode import main
from taps.model.sampling import Sampling
from taps.model.target import load_target
from taps.plumbing.artefacts import read_json, write_json, write_jsonl
from taps.plumbing.errors import TapsError
from taps.trace import record
from tests.support.live_fixtures import greedy, save_drafters, save_tiny_target

QUESTION = "How many apples?"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    target = save_tiny_target(folder / "target")
    drafters = save_drafters(folder, target, ("math", "chat"))
    return ["--target", str(target), *drafters, "--depth", "2", "--top-k", "4", "--num-draft-tokens", "12"]


@pytest.fixture(scope="module")
def target(models):
    return load_target(models[1])


@pytest.fixture
def prompts(tmp_path):
    rows = [
        {"id": "a", "category": None, "turns": ["Is it four?", "And now?"], "reference": None},
        {"id": "b", "category": None, "turns": ["Two plus two"], "reference": None},
    ]
    write_jsonl(tmp_path / "prompts.jsonl", rows, kind="prompts", provenance={})
    return tmp_path / "prompts.jsonl", rows


def test_streams_the_greedy_text_and_its_measures(models, target, capsys):
    main([*models, "--prompt", QUESTION, "--max-new-tokens", "20", "--compare"])
    text, _, measures = capsys.readouterr().out.rpartition("\n[tau")
    tokens = greedy(target, target.render([[{"role": "user", "text": QUESTION}]])[0], 20)
    assert text == target.tokenizer.decode(tokens, skip_special_tokens=True)
    tau, num_tokens, num_cycles = map(float, re.findall(r"([\d.]+): (\d+) tokens in (\d+) cycles", measures)[0])
    assert num_tokens == len(tokens) - 1
    assert tau == pytest.approx(num_tokens / num_cycles, abs=0.006)
    assert re.search(r"tokens/s \(target \d+%, drafting \d+%, outside \d+%\)", measures)
    assert re.search(r"plain decoding: [\d.]+ tokens/s, speed-up [\d.]+; same text", measures)


@pytest.mark.parametrize("strategy", ["merged_dedup", "routed_history", "random"])
def test_benchmark_texts_are_those_of_the_trace(models, target, prompts, tmp_path, strategy):
    path, rows = prompts
    flags = ["--temperature", "1", "--top-p", "0.9", "--seed", "3", "--max-new-tokens", "10", "--strategy", strategy]
    main([*models, "--prompts", str(path), *flags, "--output", str(tmp_path / "out.json")])
    decoded = read_json(tmp_path / "out.json", kind="decoded")
    sampling = Sampling(temperature=1.0, top_p=0.9)
    recorded, _ = record(target, rows, sampling=sampling, seed=3, max_new_tokens=10, batch_size=2)
    assert [(row["id"], row["turn"]) for row in decoded["answers"]] == [("a", 0), ("a", 1), ("b", 0)]
    assert [row["tokens"] for row in decoded["answers"]] == [row["answer"].tokens.tolist() for row in recorded]
    assert [row["finish"] for row in decoded["answers"]] == [row["answer"].finish for row in recorded]
    for row in decoded["answers"]:
        assert sum(cycle["emitted"] for cycle in row["cycles"]) == len(row["tokens"]) - 1
        assert row["seconds"]["target"] > 0


def test_turns_of_one_conversation(models, target, capsys):
    main([*models, "--prompt", QUESTION, "--prompt", "And then?", "--max-new-tokens", "8"])
    messages = []
    for question in (QUESTION, "And then?"):
        messages.append({"role": "user", "text": question})
        text = target.tokenizer.decode(greedy(target, target.render([messages])[0], 8), skip_special_tokens=True)
        messages.append({"role": "assistant", "text": text})
    printed = capsys.readouterr().out
    for number, message in enumerate(messages[1::2]):
        assert f"--- prompt, turn {number}\n{message['text']}\n[" in printed


def test_one_drafter_is_single_by_default_and_two_are_merged(models, tmp_path):
    one = [*models[:4], *models[6:]]
    for flags, expected in ((one, "single"), (models, "merged_adaptive")):
        main([*flags, "--prompt", QUESTION, "--max-new-tokens", "4", "--output", str(tmp_path / "out.json")])
        assert read_json(tmp_path / "out.json", kind="decoded")["strategy"] == expected


def test_calibrated_strategies_read_their_factors(models, tmp_path, capsys):
    flags = [*models, "--prompt", QUESTION, "--max-new-tokens", "4", "--strategy", "merged_matched_calibrated"]
    with pytest.raises(TapsError, match="give --calibration"):
        main(flags)
    calibration = tmp_path / "calibration.json"
    factors = {"math": {"inverse_temperature": 0.8}}
    write_json(calibration, {"drafters": factors}, kind="calibration", provenance={})
    with pytest.raises(TapsError, match="no inverse temperature of chat"):
        main([*flags, "--calibration", str(calibration)])
    factors["chat"] = {"inverse_temperature": 1.1}
    write_json(calibration, {"drafters": factors}, kind="calibration", provenance={})
    main([*flags, "--calibration", str(calibration)])
    assert "[tau" in capsys.readouterr().out


def test_stop_tokens(models, target, capsys):
    tokens = greedy(target, target.render([[{"role": "user", "text": QUESTION}]])[0], 12)
    texts = [target.tokenizer.decode([token]) for token in tokens]
    stop = next(n for n, text in enumerate(texts) if text.isascii() and text.isprintable() and n > 0)
    main([*models, "--prompt", QUESTION, "--max-new-tokens", "12", "--stop", texts[stop], "--compare"])
    printed = capsys.readouterr().out
    assert printed.startswith(target.tokenizer.decode(tokens[: texts.index(texts[stop]) + 1]))
    assert "finish: eos" in printed
    assert "same text" in printed
    with pytest.raises(TapsError, match="--stop: 'more than one' is not one token"):
        main([*models, "--prompt", QUESTION, "--stop", "more than one"])


def test_a_prompt_beyond_the_context_is_skipped(models, capsys):
    main([*models, "--prompt", "apples " * 600, "--max-new-tokens", "4"])
    assert "turn 0: skipped" in capsys.readouterr().err


def test_refusals(models):
    with pytest.raises(TapsError, match="replay only"):
        main([*models, "--prompt", QUESTION, "--strategy", "oracle"])
    with pytest.raises(TapsError, match="a name is given twice"):
        main([*models, *models[2:4], "--prompt", QUESTION])


def _tuned(folder, best):
    rows = [{"strategy": "single", "drafters": ["math"], "best": best}]
    write_json(folder / "tuned.json", {"rows": rows}, kind="tuned", provenance={})
    return ["--tree", "tuned", "--tuned", str(folder / "tuned.json")]


def _one_drafter(models):
    return [*models[:4], *models[6:]]


def test_the_tuned_tree_is_drafted(models, tmp_path):
    flags = ["--prompt", QUESTION, "--max-new-tokens", "12", "--output", str(tmp_path / "out.json")]
    main([*_one_drafter(models), *_tuned(tmp_path, {"depth": 0, "num_draft_tokens": 3}), *flags])
    (answer,) = read_json(tmp_path / "out.json", kind="decoded")["answers"]
    assert all(cycle["num_nodes"] <= 3 and cycle["accepted"] <= 1 for cycle in answer["cycles"])


def test_where_plain_decoding_won_it_says_so(models, tmp_path, capsys):
    main([*_one_drafter(models), *_tuned(tmp_path, None), "--prompt", QUESTION, "--max-new-tokens", "4"])
    assert "plain decoding was found faster" in capsys.readouterr().err


def test_a_tree_that_was_not_tuned_is_refused(models, tmp_path):
    flags = ["--prompt", QUESTION, "--strategy", "merged_matched"]
    with pytest.raises(TapsError, match=r"no merged_matched of math\+chat"):
        main([*models, *_tuned(tmp_path, None), *flags])
    with pytest.raises(TapsError, match="--tuned"):
        main([*models, "--tree", "tuned", *flags])


@pytest.mark.parametrize(("strategy", "flag"), [("merged_costed", "--calibration"), ("routed_prompt", "--router")])
def test_what_a_strategy_needs_is_asked_for(models, strategy, flag):
    with pytest.raises(TapsError, match=flag):
        main([*models, "--strategy", strategy, "--prompt", QUESTION])
