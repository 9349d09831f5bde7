"""Each benchmark's own format becomes prompts; subsets grow by extension; bad records are counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps import prompts
from taps.data.benchmarks import READERS, references
from taps.data.mixtures import seeded_order
from taps.plumbing.artefacts import read_json, read_jsonl
from taps.plumbing.errors import TapsError

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[1].parent / "shared" / "data" / "benchmarks"


def run_prompts(reader: str, *inputs: Path, output: Path, flags: tuple[str, ...] = ()) -> tuple[list[dict], dict]:
    """Returns (rows, audit content) of the stage run on files."""
    audit = output.with_suffix(".audit.json")
    sources = [part for path in inputs for part in ("--input", str(path))]
    prompts.main(["--reader", reader, *sources, *flags, "--output", str(output), "--audit", str(audit)])
    content = read_json(audit, kind="audit")
    assert content["read"] == content["kept"] + sum(entry["count"] for entry in content["dropped"].values())
    return read_jsonl(output, kind="prompts"), content


RECORDS: list[tuple[str, str, Any, str | dict[str, Any]]] = [  # reader, kind, record, reason or prompt
    ("gsm8k", "fine", {"question": "1 + 1?", "answer": "It is 2.\n#### 2"}, {"reference": ["It is 2.\n#### 2"]}),
    ("gsm8k", "without ####", {"question": "1 + 1?", "answer": "two"}, {"turns": ["1 + 1?"], "reference": ["two"]}),
    ("gsm8k", "without answer", {"question": "1 + 1?"}, {"reference": None}),
    ("gsm8k", "without question", {"answer": "#### 2"}, "missing_question"),
    ("gsm8k", "null question", {"question": None, "answer": "#### 2"}, "text_not_a_string"),
    ("gsm8k", "blank question", {"question": " \n", "answer": "#### 2"}, "empty_text"),
    ("gsm8k", "not an object", ["1 + 1?"], "not_an_object"),
    ("gsm8k", "question.jsonl form", {"question_id": 5, "turns": ["1 + 1?"], "reference": ["2"]}, {"id": "5"}),
    ("mt_bench", "fine", {"question_id": 81, "category": "writing", "turns": ["a", "b"]}, {"category": "writing"}),
    ("mt_bench", "one turn", {"question_id": 81, "turns": ["a"]}, "one_turn_only"),
    ("mt_bench", "no turns", {"turns": []}, "no_turns"),
    ("mt_bench", "text for turns", {"turns": "a"}, "turns_not_a_list"),
    ("mt_bench", "null turns", {"turns": None}, "missing_question"),
    ("mt_bench", "empty second turn", {"turns": ["a", ""]}, "empty_text"),
    ("mt_bench", "number turn", {"turns": ["a", 2]}, "text_not_a_string"),
    ("mt_bench", "NUL", {"turns": ["a", "b\0"]}, "nul_character"),
    ("mt_bench", "surrogate", {"turns": ["a", "b\ud800"]}, "lone_surrogate"),
    ("mt_bench", "hub form", {"prompt_id": 81, "prompt": ["a", "b"], "reference": []}, {"id": "81", "reference": None}),
    ("question_jsonl", "one turn", {"question_id": 3, "turns": ["a\r\nb "]}, {"turns": ["a\nb"], "category": None}),
    ("question_jsonl", "no turns", {"question_id": 3}, "missing_question"),
    ("math_500", "hub form", {"problem": "x?", "solution": "so y", "answer": "y", "subject": "Sets", "unique_id": "1"},
     {"id": "1", "category": "Sets", "turns": ["x?"], "reference": ["so y"]}),
    ("math_500", "answer only", {"problem": "x?", "answer": "y"}, {"reference": ["y"], "category": "math"}),
    ("svamp", "hub form", {"ID": "c-1", "Body": "Two birds sing.", "Question": "How many?", "Answer": "2.0"},
     {"id": "c-1", "turns": ["Two birds sing. How many?"], "reference": ["2.0"]}),
    ("svamp", "joined form", {"question_concat": "Two birds. How many?", "Body": "x", "Answer": 2},
     {"turns": ["Two birds. How many?"], "reference": ["2"]}),
    ("svamp", "without question", {"Body": "Two birds sing."}, "text_not_a_string"),
    ("aime", "question", {"question": "Find n.", "answer": "70"}, {"turns": ["Find n."], "reference": ["70"]}),
    ("aime", "problem", {"problem": "Find n.", "answer": 70}, {"turns": ["Find n."], "reference": ["70"]}),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "kind", "record", "expected"), RECORDS, ids=lambda value: str(value)[:24])
def test_record(reader, kind, record, expected, tmp_path):
    path = tmp_path / "in.jsonl"
    good = {"question_id": "good", "turns": ["Good?", "Good!"]}
    path.write_text("\n".join(map(json.dumps, [good, record, good])))
    rows, audit = run_prompts(reader, path, output=tmp_path / "out.jsonl")
    assert [rows[0]["id"], rows[-1]["id"]] == ["good", "good#2"]
    if isinstance(expected, str):
        assert [entry["count"] for entry in audit["dropped"].values()] == [1]
        assert list(audit["dropped"]) == [expected]
    else:
        assert set(rows[1]) == {"id", "category", "turns", "reference"}
        assert {key: rows[1][key] for key in expected} == expected


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
    with pytest.raises(TapsError, match="negative"):
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
    ("value", "expected"), [(None, None), ("a", ["a"]), (3, ["3"]), (["a", None, "", 1.5], ["a", "1.5"]), ([], None)]
)
def test_references(value, expected):
    assert references(value) == expected


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


@pytest.mark.skipif(not SHARED.exists(), reason="the full benchmark files lie outside the repository")
@pytest.mark.parametrize(
    ("reader", "num_turns", "number"),
    [("gsm8k", 1, 1319), ("math_500", 1, 500), ("svamp", 1, 300), ("mt_bench", 2, 80)],
)
def test_full_benchmarks(reader, num_turns, number, tmp_path):
    rows, audit = run_prompts(reader, SHARED / f"{reader}.jsonl", output=tmp_path / "out.jsonl")
    assert (len(rows), audit["dropped"]) == (number, {})
    assert {len(row["turns"]) for row in rows} == {num_turns}


def test_every_reader_is_exercised():
    assert {reader for reader, *_ in RECORDS} | {"reasoning_gym"} == set(READERS)
