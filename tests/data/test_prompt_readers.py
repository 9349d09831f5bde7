"""Each benchmark's own format becomes prompts, whichever spelling its file has; what cannot be one has a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from taps.data.prompt_reader import PROMPT_READERS, references
from tests.support.data_fixtures import run_prompts, said
from tests.support.shared_inputs import BENCHMARKS

RECORDS: list[tuple[str, str, Any, str | dict[str, Any]]] = [  # reader, kind, record, reason or prompt
    ("gsm8k", "fine", {"question": "1 + 1?", "answer": "It is 2.\n#### 2"}, {"reference": ["It is 2.\n#### 2"]}),
    ("gsm8k", "without ####", {"question": "1 + 1?", "answer": "two"}, {"turns": ["1 + 1?"], "reference": ["two"]}),
    ("gsm8k", "without answer", {"question": "1 + 1?"}, {"reference": None}),
    ("gsm8k", "without question", {"answer": "#### 2"}, "missing_question"),
    ("gsm8k", "null question", {"question": None, "answer": "#### 2"}, "missing_question"),
    ("gsm8k", "number question", {"question": 7, "answer": "#### 2"}, "text_not_a_string"),
    ("gsm8k", "null turns", {"turns": None, "question": "1 + 1?", "answer": "#### 2"}, {"turns": ["1 + 1?"]}),
    ("gsm8k", "blank question", {"question": " \n", "answer": "#### 2"}, "empty_text"),
    ("gsm8k", "not an object", ["1 + 1?"], "not_an_object"),
    ("gsm8k", "question.jsonl form", {"question_id": 5, "turns": ["1 + 1?"], "reference": ["2"]}, {"id": "5"}),
    ("mt_bench", "fine", {"question_id": 81, "category": "writing", "turns": ["a", "b"]}, {"category": "writing"}),
    ("mt_bench", "one turn", {"question_id": 81, "turns": ["a"]}, "one_turn_only"),
    ("mt_bench", "no turns", {"turns": []}, "no_turns"),
    ("mt_bench", "text for turns", {"turns": "a"}, "one_turn_only"),
    ("mt_bench", "number for turns", {"turns": 2}, "turns_not_a_list"),
    ("mt_bench", "null turns beside a prompt", {"turns": None, "prompt": ["a", "b"]}, {"turns": ["a", "b"]}),
    ("mt_bench", "null turns", {"turns": None}, "missing_question"),
    ("mt_bench", "empty turns beside a prompt", {"turns": [], "prompt": ["a", "b"]}, {"turns": ["a", "b"]}),
    ("mt_bench", "padded with nulls", {"turns": ["a", "b", None]}, {"turns": ["a", "b"]}),
    ("mt_bench", "padded to two", {"turns": ["a", None]}, "one_turn_only"),
    ("mt_bench", "nulls alone", {"turns": [None, None]}, "no_turns"),
    ("gsm8k", "picture", {"question": "How many?", "answer": "#### 2", "image": "1.png"}, "not_only_text"),
    ("gsm8k", "null picture", {"question": "How many?", "answer": "#### 2", "images": []}, {"turns": ["How many?"]}),
    ("mt_bench", "empty second turn", {"turns": ["a", ""]}, "empty_text"),
    ("mt_bench", "number turn", {"turns": ["a", 2]}, "text_not_a_string"),
    ("mt_bench", "NUL", {"turns": ["a", "b\0"]}, "nul_character"),
    ("mt_bench", "surrogate", {"turns": ["a", "b\ud800"]}, "lone_surrogate"),
    ("mt_bench", "hub form", {"prompt_id": 81, "prompt": ["a", "b"], "reference": []}, {"id": "81", "reference": None}),
    ("question_jsonl", "one turn", {"question_id": 3, "turns": ["a\r\nb "]}, {"turns": ["a\nb"], "category": None}),
    ("question_jsonl", "no turns", {"question_id": 3}, "missing_question"),
    ("question_jsonl", "text", {"prompt": "a"}, {"turns": ["a"]}),
    ("question_jsonl", "text for turns", {"turns": " a "}, {"turns": ["a"]}),
    ("question_jsonl", "list as JSON text", {"turns": '["a", "b"]'}, {"turns": ["a", "b"]}),
    ("question_jsonl", "HumanEval", {"task_id": "H/0", "prompt": "def f():\n"}, {"id": "H/0", "turns": ["def f():"]}),
    ("question_jsonl", "messages", {"messages": [said("system", "s"), said("user", "a"), said("assistant", "r")]},
     {"turns": ["a"], "system": "s", "reference": ["r"]}),
    ("question_jsonl", "chat as prompt", {"prompt": [said("user", [{"type": "text", "text": "a"}])]}, {"turns": ["a"]}),
    ("question_jsonl", "answers between", {"prompt": [said("user", "a"), said("assistant", "r"), said("user", "b")]},
     {"turns": ["a", "b"], "reference": None}),
    ("question_jsonl", "no user", {"messages": [said("system", "s")]}, "no_user_turn"),
    ("question_jsonl", "tool turn", {"messages": [said("user", "a"), said("tool", "b")]}, "unknown_role"),
    ("math_500", "hub form", {"problem": "x?", "solution": "so y", "answer": "y", "subject": "Sets", "unique_id": "1"},
     {"id": "1", "category": "Sets", "turns": ["x?"], "reference": ["so y"]}),
    ("math_500", "answer only", {"problem": "x?", "answer": "y"}, {"reference": ["y"], "category": "math"}),
    ("svamp", "hub form", {"ID": "c-1", "Body": "Two birds sing.", "Question": "How many?", "Answer": "2.0"},
     {"id": "c-1", "turns": ["Two birds sing. How many?"], "reference": ["2.0"]}),
    ("svamp", "joined form", {"question_concat": "Two birds. How many?", "Body": "x", "Answer": 2},
     {"turns": ["Two birds. How many?"], "reference": ["2"]}),
    ("svamp", "without question", {"Body": "Two birds sing."}, "missing_question"),
    ("svamp", "null joined form", {"question_concat": None, "Body": "Two birds.", "Question": "Why?", "Answer": None},
     {"turns": ["Two birds. Why?"], "reference": None}),
    ("svamp", "NUL in the story", {"Body": "Two\0", "Question": "Why?"}, "nul_character"),
    ("math_500", "null solution", {"problem": "x?", "solution": None, "answer": "y"}, {"reference": ["y"]}),
    ("humaneval", "fine", {"task_id": "H/0", "prompt": "def f():\n", "canonical_solution": "    pass\n"},
     {"id": "H/0", "turns": ["def f():"], "reference": ["pass"], "category": "coding"}),
    ("humaneval", "without prompt", {"task_id": "H/0"}, "missing_question"),
    ("humaneval", "parts", {"prompt": [{"type": "text", "text": "a"}]}, {"turns": ["a"]}),
    ("aime", "null problem", {"problem": None, "question": "Find n.", "answer": "70"}, {"turns": ["Find n."]}),
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
        assert set(rows[1]) - {"system"} == {"id", "category", "turns", "reference"}
        assert {key: rows[1][key] for key in expected} == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(None, None), ("a", ["a"]), (3, ["3"]), (["a", None, "", 1.5], ["a", "1.5"]), ([], None)]
)
def test_references(value, expected):
    assert references(value) == expected


@pytest.mark.skipif(not BENCHMARKS.exists(), reason="the full benchmark files lie outside the repository")
@pytest.mark.parametrize(
    ("reader", "num_turns", "number"),
    [("gsm8k", 1, 1319), ("math_500", 1, 500), ("svamp", 1, 300), ("mt_bench", 2, 80)],
)
def test_full_benchmarks(reader, num_turns, number, tmp_path):
    rows, audit = run_prompts(reader, BENCHMARKS / f"{reader}.jsonl", output=tmp_path / "out.jsonl")
    assert (len(rows), audit["dropped"]) == (number, {})
    assert {len(row["turns"]) for row in rows} == {num_turns}


def test_every_reader_is_exercised():
    assert {reader for reader, *_ in RECORDS} | {"reasoning_gym"} == set(PROMPT_READERS)


def test_traits_for_planning_and_print():
    assert [name for name, reader in PROMPT_READERS.items() if reader.num_turns > 1] == ["mt_bench"]
    assert PROMPT_READERS.find("mt_bench").num_turns == 2
    assert PROMPT_READERS.find("gsm8k").title == "GSM8K"
    assert [name for name, reader in PROMPT_READERS.items() if reader.is_generated] == ["reasoning_gym"]
