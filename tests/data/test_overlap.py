"""Training text that repeats a benchmark is found, by whole turns, by runs of thirteen words, and in other numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps import overlap as stage
from taps.data import overlap
from taps.data.overlap import Twin, find_twins
from taps.plumbing.artefacts import read_json, write_jsonl

COUNT = " ".join(str(number) for number in range(1, 21))  # twenty words: eight grams


def prompts(*turns: list[str]) -> overlap.PromptIndex:
    return overlap.index_prompts({"id": str(i), "turns": each} for i, each in enumerate(turns))


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


# --- twins -----------------------------------------------------------------------------------------------------------

PENS = "Then Ann buys 3 pens and 2 books for her class. How much does she pay for all of them?"


def conversation(name: str, *texts: str) -> dict:
    return {"id": name, "turns": [{"role": ("user", "assistant")[i % 2], "text": text} for i, text in enumerate(texts)]}


def twins(prompt: str, *conversations: dict, least: float = overlap.TWIN_SHARE) -> list[Twin]:
    return find_twins([[{"id": "p", "turns": [prompt]}]], conversations, least=least)[0]


@pytest.mark.parametrize(
    "text",
    [
        PENS,
        PENS.replace("Ann", "Maria").replace("3", "seventeen").replace("2", "1,000"),
        f"Solve this. {PENS.replace('Ann', 'Bo')} Give the result as your final answer.",
        f"Hm. {PENS[: len(PENS) // 2]}",
    ],
    ids=["itself", "other numbers and names", "within a longer text", "its first half"],
)
def test_twins_are_found(text):
    (twin,) = twins(PENS, conversation("c", "Hello.", text))
    assert (twin.prompt, twin.conversation) == ("p", "c")
    assert 0.25 <= twin.share <= 1


@pytest.mark.parametrize(
    "texts",
    [
        ["Then Ann buys 3 pens", "and 2 books for her class"],  # two turns do not join
        ["How much does she pay for them, and why should she?"],
        ["Then Ann sells 3 pens or 2 books to her class. How much will she get for each of them?"],
    ],
)
def test_texts_that_share_a_phrase_are_no_twins(texts):
    assert twins(PENS, conversation("c", *texts)) == []


def test_pieces_of_several_conversations_do_not_add_up():
    pieces = PENS.split()
    rows = [conversation(f"c{i}", " ".join(pieces[i : i + 5])) for i in range(len(pieces) - 4)]
    assert twins(PENS, *rows) == []


def test_the_most_similar_conversation_is_named_and_a_whole_turn_counts_however_short():
    half = conversation("half", PENS[: len(PENS) * 2 // 3])
    (twin,) = twins(PENS, half, conversation("whole", PENS), half)
    assert (twin.conversation, twin.share) == ("whole", 1.0)
    (twin,) = twins("Why not?", conversation("c", "why not"))
    assert twin.share == 1.0
    assert twins("Why not?", conversation("c", "why not now")) == []


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=20), st.lists(st.sampled_from("abcd"), max_size=30))
def test_shares_are_those_of_the_naive_count(prompt, text):
    own = {tuple(prompt[i : i + 5]) for i in range(len(prompt) - 4)}
    there = {gram for gram in own if any(tuple(text[i : i + 5]) == gram for i in range(len(text)))}
    others = {tuple(text[i : i + 5]) for i in range(len(text) - 4)}
    share = 1.0 if prompt == text else len(there) / max(min(len(own), len(others)), 16)
    found = twins(" ".join(prompt), conversation("c", " ".join(text)), least=0.0)
    assert (found[0].share if found else 0.0) == pytest.approx(share, abs=1e-6)


def test_stage_writes_every_pair(tmp_path):
    def conversation(text: str) -> dict:
        return {"id": "c", "turns": [{"role": "user", "text": text}, {"role": "assistant", "text": "Yes."}]}

    for name, text in (("a", COUNT), ("b", "nothing")):
        write_jsonl(tmp_path / f"{name}.jsonl", [conversation(text)], kind="corpus", provenance={})
        row = {"id": "p", "category": None, "turns": [text], "reference": None}
        write_jsonl(tmp_path / f"p_{name}.jsonl", [row], kind="prompts", provenance={})
    flags = [f"--corpus={name}={tmp_path / name}.jsonl" for name in "ab"]
    flags += [f"--prompts={name}={tmp_path}/p_{name}.jsonl" for name in "ab"]
    stage.main([*flags, "--output", str(tmp_path / "o.json")])
    entries = read_json(tmp_path / "o.json", kind="overlap")
    assert [(entry["corpus"], entry["benchmark"], entry["num_exact"]) for entry in entries] == [
        ("a", "a", 1),
        ("a", "b", 0),
        ("b", "a", 0),
        ("b", "b", 1),
    ]
    assert [entry["num_twins"] for entry in entries] == [1, 0, 0, 1]
    assert entries[0]["twins"] == [{"prompt": "p", "conversation": "c", "share": 1.0}]
