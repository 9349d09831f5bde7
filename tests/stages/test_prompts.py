"""The stage `prompts`: subsets grow by extension, twins of training texts are left out and listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps import prompts
from taps.data.mixtures import seeded_order
from taps.plumbing.artefacts import write_jsonl
from taps.plumbing.errors import TapsError
from tests.support.data_fixtures import dropped, run_corpus, run_prompts, write_jsonl_file

DATA = Path(__file__).parents[1] / "inputs"


def test_missing_marks_and_repeats_are_noted(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(json.dumps({"question": "1 + 1?", "answer": answer}) for answer in ("#### 2", "2")))
    rows, audit = run_prompts("gsm8k", path, output=tmp_path / "out.jsonl")
    assert len(rows) == 2
    assert "1 of the kept: without #### before the result" in audit["notes"]
    assert "1 of the chosen repeat an earlier one word for word" in audit["notes"]


def test_cut_file_keeps_what_is_complete(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"question": "1 + 1?", "answer": "#### 2"}\n{"question": "2 +')
    _, audit = run_prompts("gsm8k", path, output=tmp_path / "out.jsonl")
    assert audit["dropped"] == {"cut_off": {"count": 1, "example": "1"}}


def test_files_of_one_name_stay_apart(tmp_path):
    paths = [tmp_path / name / "test.jsonl" for name in "ab"]
    for path in paths:
        path.parent.mkdir()
        path.write_text(json.dumps({"question": f"In {path.parent.name}?", "answer": "1"}))
    rows, _ = run_prompts("aime", *paths, output=tmp_path / "out.jsonl")
    assert [row["id"] for row in rows] == ["test-0", "test-0#2"]


def test_subset_is_seeded_and_a_larger_one_extends_it(tmp_path):
    def take(num_prompts: int, seed: int) -> list[str]:
        flags = ("--num-prompts", str(num_prompts), "--seed", str(seed))
        rows, _ = run_prompts("gsm8k", DATA / "gsm8k_small.jsonl", output=tmp_path / "out.jsonl", flags=flags)
        return [row["id"] for row in rows]

    assert take(5, 0)[:3] == take(3, 0)
    assert take(5, 0) != take(5, 1)
    assert sorted(take(8, 0)) == take(0, 0) == [str(i) for i in range(8)]
    with pytest.raises(TapsError, match=r"--num-prompts 9: more than there are, found 8 in gsm8k_small\.jsonl"):
        take(9, 0)
    with pytest.raises(SystemExit):
        take(-1, 0)


@given(st.sets(st.text(max_size=4), max_size=8), st.text(max_size=4), st.integers(0, 9))
def test_order_of_some_does_not_depend_on_others(ids, newcomer, seed):
    names = sorted(ids - {newcomer})
    order = [names[i] for i in seeded_order(names, seed)]
    longer = [newcomer, *names]
    assert [longer[i] for i in seeded_order(longer, seed) if longer[i] != newcomer] == order
    assert sorted(order) == names


def test_generated_prompts_extend_and_have_references(tmp_path):
    def take(num_prompts: int) -> list[dict]:
        flags = ("--task", "gsm_symbolic", "--num-prompts", str(num_prompts), "--seed", "1")
        return run_prompts("reasoning_gym", output=tmp_path / "out.jsonl", flags=flags)[0]

    assert take(9)[:4] == take(4)
    assert all("####" in row["reference"][0] for row in take(9))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--reader", "gsm8k"], "needs --input"),
        (["--reader", "reasoning_gym", "--task", "gsm_symbolic"], "needs --task and --num-prompts"),
        (["--reader", "gsm8k", "--input", "/nowhere.jsonl"], "no such file or folder"),
        (["--reader", "math_500", "--input", str(DATA / "gsm8k_small.jsonl")], "no usable prompt.*missing_question 8"),
    ],
)
def test_bad_flags(flags, message, tmp_path):
    with pytest.raises(TapsError, match=message):
        prompts.main([*flags, "--output", str(tmp_path / "o.jsonl"), "--audit", str(tmp_path / "a.json")])
    assert not list(tmp_path.iterdir())


# --- parts and twins -------------------------------------------------------------------------------------------------

QUESTION = "Emily can peel 6 shrimp a minute and saute 30 of them in 10 minutes. How long will she cook 90 of them?"
TWIN = "Ava can peel 10 shrimp a minute and saute twenty of them in 13 minutes. How long will she cook 40 of them?"
OTHERS = ["A robe takes 2 bolts of blue fiber and half that much white fiber. How many bolts does it take?", "Why?"]


def write_corpus(path: Path, *texts: str) -> Path:
    rows = [
        {"id": f"c{i}", "turns": [{"role": "user", "text": text}, {"role": "assistant", "text": "So."}]}
        for i, text in enumerate(texts)
    ]
    write_jsonl(path, rows, kind="corpus", provenance={})
    return path


def questions(path: Path) -> Path:
    return write_jsonl_file(path, [{"id": i, "turns": [text]} for i, text in enumerate([QUESTION, *OTHERS])])


def test_twins_of_training_texts_are_counted_listed_and_left_out(tmp_path):
    corpora = [write_corpus(tmp_path / "a.jsonl", "Hello.", TWIN), write_corpus(tmp_path / "b.jsonl", "why")]
    flags = tuple(part for corpus in corpora for part in ("--exclude-overlap", str(corpus)))
    rows, audit = run_prompts(
        "question_jsonl", questions(tmp_path / "q.jsonl"), output=tmp_path / "out.jsonl", flags=flags
    )
    assert [row["id"] for row in rows] == ["1"]
    assert dropped(audit) == {"twin_in_training": 2}
    listed = audit["dropped"]["twin_in_training"]["listed"]
    assert [entry.split(":")[0] for entry in listed] == ["0", "2"]
    assert listed[1] == "2: 100% of it in training conversation c0"


def test_nothing_is_left_out_unasked(tmp_path):
    rows, audit = run_prompts("question_jsonl", questions(tmp_path / "q.jsonl"), output=tmp_path / "out.jsonl")
    assert len(rows) == 3
    assert (audit["dropped"], audit["notes"]) == ({}, [])


def test_generated_prompts_leave_out_what_training_knows_and_are_still_as_many(tmp_path):
    def take(*flags: str) -> tuple[list[dict], dict]:
        source = ("--task", "gsm_symbolic", "--num-prompts", "6", "--seed", "1", *flags)
        return run_prompts("reasoning_gym", output=tmp_path / "out.jsonl", flags=source)

    plain, _ = take("--templates", "0-3")
    corpus = write_corpus(tmp_path / "c.jsonl", *(row["turns"][0] for row in plain if "peel" in row["turns"][0]))
    rows, audit = take("--templates", "0-3", "--exclude-overlap", str(corpus))
    assert len(rows) == 6
    assert not any("peel" in row["turns"][0] for row in rows)
    assert any("peel" in row["turns"][0] for row in plain)
    assert audit["notes"] == ["templates left out, as training has problems like theirs: 0"]
    with pytest.raises(TapsError, match=r"training knows every template, found .*theirs: 0; choose other --templates"):
        take("--templates", "0", "--exclude-overlap", str(corpus))


def test_generated_prompts_of_other_tasks_are_replaced_one_by_one(tmp_path):
    def take(num_prompts: int, *flags: str) -> tuple[list[dict], dict]:
        source = ("--task", "basic_arithmetic", "--num-prompts", str(num_prompts), "--seed", "1", *flags)
        return run_prompts("reasoning_gym", output=tmp_path / "out.jsonl", flags=source)

    plain, _ = take(12)
    corpus = write_corpus(tmp_path / "c.jsonl", *(row["turns"][0] for row in plain[:3]))
    rows, audit = take(6, "--exclude-overlap", str(corpus))
    assert rows == plain[3:9]
    assert dropped(audit) == {"twin_in_training": 3}


def test_parts_of_a_benchmark_and_of_its_training_corpus_are_apart(tmp_path):
    animals = ["cats", "dogs", "ducks", "cows", "hens", "pigs", "rats", "bees"]
    texts = [f"{name} has {n} {animal} and one more. How many?" for n, animal in enumerate(animals) for name in "XY"]
    source = write_jsonl_file(
        tmp_path / "q.jsonl", [{"question": text, "answer": "It is 2.\n#### 2"} for text in texts]
    )
    rows, audit = run_prompts("gsm8k", source, output=tmp_path / "out.jsonl", flags=("--part", "0.5:1"))
    corpus, _ = run_corpus(source, "--part", "0:0.5", reader="gsm8k_solutions")
    asked = [{row["turns"][0] for row in rows}, {row["turns"][0]["text"] for row in corpus}]
    assert not asked[0] & asked[1]
    assert asked[0] | asked[1] == set(texts)
    assert dropped(audit)["other_part"] == len(corpus) > 0
