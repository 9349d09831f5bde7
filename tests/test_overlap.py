"""Training text that repeats a benchmark is found, by whole turns and by runs of thirteen words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps import overlap
from taps.plumbing.artefacts import read_json, write_jsonl

COUNT = " ".join(str(number) for number in range(1, 21))  # twenty words: eight grams


def prompts(*turns: list[str]) -> overlap.PromptIndex:
    return overlap.index_prompts({"id": str(i), "turns": each} for i, each in enumerate(turns))


def test_words_ignore_case_and_punctuation():
    assert overlap.words("Don't STOP -- it's 3.5 €!") == ("don", "t", "stop", "it", "s", "3", "5")


@pytest.mark.parametrize(
    ("texts", "exact", "shared", "coverage"),
    [
        ([COUNT], 1, 1, 1.0),
        ([f"Well: {COUNT}, and on."], 0, 1, 1.0),
        ([COUNT.replace("20", "x")], 0, 1, 7 / 8),
        ([COUNT.replace("13", "x")], 0, 0, 0.0),  # only twelve in a row are left
        ([" ".join(COUNT.split()[:12]), " ".join(COUNT.split()[12:])], 0, 0, 0.0),  # grams do not cross turns
        ([], 0, 0, 0.0),
    ],
)
def test_counts_by_hand(texts, exact, shared, coverage):
    (entry,) = overlap.overlaps(texts, [prompts([COUNT])])
    assert (entry["num_exact"], entry["num_shared"]) == (exact, shared)
    assert entry["mean_coverage"] == pytest.approx(coverage, abs=1e-6)
    assert entry["examples"] == (["0"] if exact or shared else [])


def test_short_prompts_are_found_whole_only():
    index = prompts(["Make it shorter!"], ["Why?", COUNT])
    (entry,) = overlap.overlaps(["make it shorter", "why not"], [index])
    assert (entry["num_too_short"], entry["num_exact"], entry["num_shared"]) == (1, 1, 0)
    assert entry["examples"] == ["0"]


def test_benchmarks_do_not_see_each_others_finds():
    first, second = overlap.overlaps([COUNT], [prompts([COUNT]), prompts(["something else"])])
    assert (first["num_exact"], second["num_exact"], second["num_shared"]) == (1, 0, 0)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=30), st.lists(st.sampled_from("abc"), max_size=40))
def test_same_as_the_naive_search(prompt, text):
    (entry,) = overlap.overlaps([" ".join(text)], [prompts([" ".join(prompt)])])
    own = {tuple(prompt[i : i + 13]) for i in range(len(prompt) - 12)}
    there = {gram for gram in own if any(tuple(text[i : i + 13]) == gram for i in range(len(text)))}
    assert entry["num_exact"] == (prompt == text)
    assert entry["mean_coverage"] == pytest.approx(len(there) / len(own) if own else 0.0, abs=1e-6)


def test_stage_writes_every_pair(tmp_path):
    def conversation(text: str) -> dict:
        return {"id": "c", "turns": [{"role": "user", "text": text}, {"role": "assistant", "text": "Yes."}]}

    for name, text in (("a", COUNT), ("b", "nothing")):
        write_jsonl(tmp_path / f"{name}.jsonl", [conversation(text)], kind="corpus", provenance={})
        row = {"id": "p", "category": None, "turns": [text], "reference": None}
        write_jsonl(tmp_path / f"p_{name}.jsonl", [row], kind="prompts", provenance={})
    flags = [f"--corpus={name}={tmp_path / name}.jsonl" for name in "ab"]
    flags += [f"--prompts={name}={tmp_path}/p_{name}.jsonl" for name in "ab"]
    overlap.main([*flags, "--output", str(tmp_path / "o.json")])
    entries = read_json(tmp_path / "o.json", kind="overlap")
    assert [(entry["corpus"], entry["benchmark"], entry["num_exact"]) for entry in entries] == [
        ("a", "a", 1),
        ("a", "b", 0),
        ("b", "a", 0),
        ("b", "b", 1),
    ]
