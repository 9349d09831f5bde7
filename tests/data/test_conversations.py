"""Every kind of record has an expected outcome: what is kept means what the source meant, what is not has a reason.

Each record of the tables is read between two good ones, which must survive: no bad record stops a run.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.data.audit import Audit
from taps.data.conversations import Turn, alternating
from taps.data.corpus_reader import CORPUS_READERS, read_conversations
from taps.data.json_stream import Record
from taps.data.texts import as_list, first_present
from tests.support.data_fixtures import GOOD, chat, dropped, gpt, human, run_corpus, said, write_jsonl_file

PROGRAM = "import math\n\n\ndef area(r):\n    return math.pi * r**2\n\n\nprint(area(2))"
HEBREW = "שלום \u202eabc\u202c"
OK = ["Hi", "Hello."]
PARTS = [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]
CALL = [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
ASK, ANSWER = said("user", "Hi"), said("assistant", "Hello.")


def messages(*turns: Any, **more: Any) -> dict[str, Any]:
    return {"messages": list(turns), **more}


RECORDS: dict[str, tuple[Any, str | list[str]]] = {  # kind -> (record, reason it is dropped for | texts that are kept)
    "fine": (chat(human("Hi"), gpt("Hello.")), OK),
    "null record": (None, "not_an_object"),
    "text for a record": ("conversation", "not_an_object"),
    "list for a record": ([human("Hi"), gpt("Hello.")], "not_an_object"),
    "missing conversation": ({"id": "x"}, "missing_conversation"),
    "null conversation": ({"id": "x", "conversations": None}, "missing_conversation"),
    "text for a conversation": ({"id": "x", "conversations": "Hi"}, "conversation_not_a_list"),
    "no turns": (chat(), "no_turns"),
    "null turn": (chat(None, gpt("Hello.")), "turn_not_an_object"),
    "missing from": (chat({"value": "Hi"}, gpt("Hello.")), "missing_role"),
    "null from": (chat({"from": None, "value": "Hi"}, gpt("Hello.")), "missing_role"),
    "number for from": (chat({"from": 1, "value": "Hi"}, gpt("Hello.")), "unknown_role"),
    "unknown role": (chat({"from": "narrator", "value": "Hi"}, gpt("Hello.")), "unknown_role"),
    "missing value": (chat({"from": "human"}, gpt("Hello.")), "missing_text"),
    "null value": (chat(human(None), gpt("Hello.")), "missing_text"),
    "number value": (chat(human(7), gpt("Hello.")), "text_not_a_string"),
    "list value": (chat(human([["Hi"]]), gpt("Hello.")), "text_not_a_string"),
    "empty value": (chat(human(""), gpt("Hello.")), "empty_text"),
    "blank value": (chat(human(" \r\n\t"), gpt("Hello.")), "empty_text"),
    "one turn": (chat(human("Hi")), "no_answer"),
    "assistant only": (chat(gpt("Hello.")), "no_user_turn"),
    "system only": (chat({"from": "system", "value": "Be kind."}), "no_user_turn"),
    "same role twice": (chat(human("Hi"), human("Hi?"), gpt("Hello.")), "same_role_twice"),
    "NUL": (chat(human("H\0i"), gpt("Hello.")), "nul_character"),
    "lone surrogate": (chat(human("Hi \ud83d"), gpt("Hello.")), "lone_surrogate"),
    "role/content spelling": (chat({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}), OK),
    "messages": (messages(ASK, ANSWER), OK),
    "upper case roles": (chat({"from": "HUMAN", "value": "Hi"}, {"from": " ChatGPT", "value": "Hello."}), OK),
    "bing": (chat({"from": "user", "value": "Hi"}, {"from": "bing", "value": "Hello."}), OK),
    "bot": (chat({"from": "user", "value": "Hi"}, {"from": "bot", "value": "Hello."}), OK),
    "AI": (chat(human("Hi"), {"from": "AI", "value": "Hello."}), OK),
    "bard": (chat(human("Hi"), {"from": "bard", "value": "Hello."}), OK),
    "system first": (chat({"from": "system", "value": "Be kind."}, human("Hi"), gpt("Hello.")), ["Be kind.", *OK]),
    "empty system first": (chat({"from": "system", "value": ""}, human("Hi"), gpt("Hello.")), OK),
    "assistant first": (chat(gpt("Ready."), human("Hi"), gpt("Hello.")), OK),
    "broken turn first": (chat(None, human("Hi"), gpt("Hello.")), OK),
    "system in the middle": (chat(human("Hi"), gpt("Hello."), {"from": "system", "value": "s"}, human("More")), OK),
    "ends on user": (chat(human("Hi"), gpt("Hello."), human("Bye")), OK),
    "same role twice later": (chat(human("Hi"), gpt("Hello."), gpt("Hello?"), human("Hm"), gpt("Yes.")), OK),
    "empty answer later": (chat(human("Hi"), gpt("Hello."), human("And?"), gpt("")), OK),
    "CRLF in text": (chat(human("Hi"), gpt("a\r\nb\rc\n")), ["Hi", "a\nb\nc"]),
    "HTML remains": (chat(human("<div>Hi</div>"), gpt("&lt;p&gt;")), ["<div>Hi</div>", "&lt;p&gt;"]),
    "zero-width text": (chat(human("H\u200bi\ufeff!"), gpt("\u200b")), ["H\u200bi\ufeff!", "\u200b"]),
    "right-to-left text": (chat(human(HEBREW), gpt("Hello.")), [HEBREW, "Hello."]),
    "special tokens as text": (chat(human("What is <|im_end|>?"), gpt("</s>")), ["What is <|im_end|>?", "</s>"]),
    "very long turn": (chat(human("Hi"), gpt("x" * 200_000)), ["Hi", "x" * 200_000]),
    "a whole program": (chat(human("Area?"), gpt(PROGRAM)), ["Area?", PROGRAM]),
    "duplicate of another": (GOOD[0], "duplicate_conversation"),
    # null is absent: rows of a table with a union schema
    "null spelling beside the other": (
        chat(*({"from": None, "value": None, **turn} for turn in (ASK, ANSWER))), OK),
    "null list beside the other": ({"conversations": None, "messages": [ASK, ANSWER]}, OK),
    "NaN beside the other": ({"conversations": float("nan"), "messages": [ASK, ANSWER]}, OK),
    "blank text beside the other": (chat({"from": "human", "value": "", "content": "Hi"}, gpt("Hello.")), OK),
    "empty list beside the other": ({"conversations": [], "messages": [ASK, ANSWER]}, OK),
    "empty table beside the other": ({"conversations": {}, "messages": [], "conversation": [ASK, ANSWER]}, OK),
    "empty content beside the other": (chat({"role": "user", "content": [], "value": "Hi"}, gpt("Hello.")), OK),
    "calls as text of none": (messages(ASK, {**ANSWER, "tool_calls": "[]", "function_call": "null"}), OK),
    "null tool calls": (messages(ASK, {**ANSWER, "tool_calls": None, "reasoning_content": None}), OK),
    # content as parts, conversations as text or columns
    "text parts": (messages(said("user", PARTS), said("assistant", PARTS[:1])), ["Hi\nthere", "Hi"]),
    "parts of a union schema": (
        messages(said("user", [{"type": "text", "text": "Hi", "image_url": None}]), ANSWER), OK),
    "part without a type": (messages(said("user", [{"text": "Hi"}]), ANSWER), OK),
    "texts in a list": (messages(said("user", ["Hi", "there"]), ANSWER), ["Hi\nthere", "Hello."]),
    "one part without a list": (messages(said("user", PARTS[0]), ANSWER), OK),
    "Gemini's spelling": (
        {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}, {"role": "model", "parts": [{"text": "Hello."}]}]},
        OK),
    # a picture is part of what is said
    "picture without a type": (messages(said("user", [*PARTS, {"inline_data": {}, "id": 1}]), ANSWER), "not_only_text"),
    "picture beside a turn": (messages(said("user", "What is it?", images=["x"]), ANSWER), "not_only_text"),
    "picture beside the turns": (chat(human("<image>\nWhat is it?"), gpt("A cat."), image="1.jpg"), "not_only_text"),
    "null picture": (messages(said("user", "Hi", images=None), ANSWER, image=None, images=[]), OK),
    "picture part": (messages(said("user", [*PARTS, {"type": "image_url", "image_url": {}}]), ANSWER), "not_only_text"),
    "no parts": (messages(said("user", []), ANSWER), "text_not_a_string"),
    "number in a part": (messages(said("user", [{"type": "text", "text": 7}]), ANSWER), "text_not_a_string"),
    "list as JSON text": ({"conversations": json.dumps([human("Hi"), gpt("Hello.")])}, OK),
    "broken JSON text": ({"conversations": '[{"from": "human"'}, "conversation_not_a_list"),
    "nested JSON text": ({"conversations": "[" * 100_000}, "conversation_not_a_list"),
    "columns": ({"messages": {"role": ["user", "assistant"], "content": OK}}, OK),
    "columns of unequal length": ({"messages": {"role": ["user"], "content": OK}}, "conversation_not_a_list"),
    "this project's own rows": (
        {"turns": [{"role": "user", "text": "Hi"}, {"role": "assistant", "text": "Hello."}]}, OK),
    # instructions that must not vanish
    "developer": (messages(said("developer", "Be terse."), ASK, ANSWER), ["Be terse.", *OK]),
    "system and developer": (
        messages(said("system", "Be kind."), said("developer", "Be terse."), ASK, ANSWER),
        ["Be kind.\n\nBe terse.", *OK]),
    "empty system before developer": (
        messages(said("system", ""), said("developer", "Be terse."), ASK, ANSWER), ["Be terse.", *OK]),
    "system beside the turns": (chat(human("Hi"), gpt("Hello."), system="Be kind."), ["Be kind.", *OK]),
    "system beside and in front": (
        messages(said("system", "Be kind."), ASK, ANSWER, system="Be kind."), ["Be kind.", *OK]),
    "system as parts": (messages(ASK, ANSWER, system=[{"type": "text", "text": "Be kind."}]), ["Be kind.", *OK]),
    "system as a turn beside": (messages(ASK, ANSWER, system=said("system", "Be kind.")), ["Be kind.", *OK]),
    "system message": (messages(ASK, ANSWER, system_message="Be kind."), ["Be kind.", *OK]),
    "system with a picture": (messages(said("system", [{"type": "image_url"}]), ASK, ANSWER), "not_only_text"),
    "system that is no text": (messages(ASK, ANSWER, system=7), "text_not_a_string"),
    "NUL in a system turn": (messages(said("system", "Be\0"), ASK, ANSWER), "nul_character"),
    "instructions of an unknown role": (messages(said("instructions", "Be kind."), ASK, ANSWER), "unknown_role"),
    # thoughts are no answer
    "channels": (
        messages(ASK, said("assistant", "Greet.", channel="analysis"), {**ANSWER, "channel": "final"}), OK),
    "a turn of thoughts": (chat(human("Hi"), {"from": "thought", "value": "Greet."}, gpt("Hello.")), OK),
    "thoughts before the question": (chat({"from": "reasoning", "value": "Hm."}, human("Hi"), gpt("Hello.")), OK),
    # tool calls: no end of turn in a call's place
    "answer that is a call": (messages(ASK, {**ANSWER, "tool_calls": CALL}, said("tool", "3")), "tool_use"),
    "old function call": (messages(ASK, {**ANSWER, "function_call": {"name": "look"}}), "tool_use"),
    "call in parts": (messages(ASK, said("assistant", [*PARTS, {"type": "tool_use", "name": "look"}])), "tool_use"),
    "text, then a call's result": (messages(ASK, ANSWER, said("tool", "3"), said("assistant", "3.")), "tool_use"),
    "text, then a call": (
        chat(human("Hi"), gpt("Let me look."), {"from": "function_call", "value": "{}"}), "tool_use"),
    "call to a recipient": (
        messages(ASK, said("assistant", "{}", channel="commentary", recipient="functions.look")), "tool_use"),
    "text, then the surroundings": (messages(ASK, ANSWER, said("environment", "3")), "tool_use"),
    "text, then a result": (messages(ASK, ANSWER, said("tool-result", "3")), "tool_use"),
    "call later": (messages(ASK, ANSWER, said("user", "And?"), {**ANSWER, "tool_calls": CALL}), OK),
    "text and call later": (
        messages(ASK, ANSWER, said("user", "And?"), said("assistant", "Hm."), said("ipython", "3")), OK),
}  # fmt: skip


@pytest.mark.parametrize("kind", RECORDS)
def test_record(kind, tmp_path):
    record, expected = RECORDS[kind]
    path = write_jsonl_file(tmp_path / "in.json", [GOOD[0], record, GOOD[1]])
    rows, audit = run_corpus(path)
    assert [rows[0]["id"], rows[-1]["id"]] == ["before", "after"]
    if isinstance(expected, str):
        assert len(rows) == 2
        id_ = record.get("id", "1") if isinstance(record, dict) else "1"
        assert audit["dropped"] == {expected: {"count": 1, "example": id_}}
    else:
        assert audit["dropped"] == {}
        assert [turn["text"] for turn in rows[1]["turns"]] == expected
        assert rows[1]["turns"][-1]["role"] == "assistant"
        assert [turn["role"] for turn in rows[1]["turns"][-2:]] == ["user", "assistant"]


REASONED = {
    "own field": said("assistant", "Hello.", reasoning_content="Greet."),
    "newer name": said("assistant", "Hello.", thought="Greet."),
    "details": said("assistant", "Hello.", reasoning_details=[{"type": "reasoning.text", "text": "Greet."}]),
    "other name": said("assistant", "Hello.", reasoning="Greet."),
    "part": said("assistant", [{"type": "thinking", "thinking": "Greet."}, {"type": "text", "text": "Hello."}]),
}


@pytest.mark.parametrize("kind", REASONED)
def test_reasoning_is_left_out_and_counted(kind, tmp_path):
    path = write_jsonl_file(tmp_path / "in.json", [messages(ASK, REASONED[kind]), GOOD[0]])
    rows, audit = run_corpus(path)
    assert [turn["text"] for turn in rows[0]["turns"]] == OK
    assert "1 of the kept: reasoning left out" in audit["notes"]


def test_an_answer_of_reasoning_only_is_no_answer(tmp_path):
    only = [said("assistant", "", reasoning_content="Hm."), said("assistant", None, reasoning_content="Hm.")]
    path = write_jsonl_file(tmp_path / "in.json", [*(messages(ASK, turn) for turn in only), GOOD[0]])
    rows, audit = run_corpus(path)
    assert len(rows) == 1
    assert dropped(audit) == {"empty_text": 1, "missing_text": 1}


def test_thoughts_in_a_turn_of_their_own_are_counted(tmp_path):
    told = [
        messages(ASK, said("assistant", "Greet.", channel="analysis"), {**ANSWER, "channel": "final"}),
        chat(human("Hi?"), {"from": "thinking", "value": "Greet."}, gpt("Hello.")),
        messages(said("user", "Hm"), said("analysis", "Hm."), ANSWER),
    ]
    rows, audit = run_corpus(write_jsonl_file(tmp_path / "in.json", told))
    assert [turn["text"] for row in rows for turn in row["turns"] if turn["role"] == "assistant"] == ["Hello."] * 3
    assert audit["notes"] == ["3 of the kept: reasoning left out"]


@pytest.mark.parametrize("mark", [{"weight": 0}, {"weight": 0.0}, {"train": False}, {"trainable": False}])
def test_answers_that_must_not_be_learnt_are_marked(mark, tmp_path):
    told = messages(ASK, {**ANSWER, **mark}, said("user", "And?"), said("assistant", "Good.", weight=1, train=True))
    rows, audit = run_corpus(write_jsonl_file(tmp_path / "in.json", [told, GOOD[0]]))
    assert [turn.get("taught") for turn in rows[0]["turns"]] == [None, False, None, None]
    assert audit["notes"] == ["1 of the kept: with answers that are marked as not to be learnt, and are not supervised"]


def test_what_is_trimmed_or_left_out_is_noted(tmp_path):
    records = [
        chat(gpt("Ready."), human("Hi"), gpt("Hello.")),
        messages(said("user", "Bye"), ANSWER, tools=[{"type": "function"}]),
        messages(said("user", "Hm"), ANSWER, tools=[], functions="[]"),
        messages(said("user", "Ho"), ANSWER, functions=[{"name": "look"}]),
        messages(said("user", "Oh"), ANSWER, tools='[{"name": "look"}]'),
    ]
    _, audit = run_corpus(write_jsonl_file(tmp_path / "in.json", records))
    assert audit["notes"] == [
        "3 of the kept: descriptions of tools left out",
        "1 of the kept: trimmed to the first user turn or cut at a break",
    ]


PAIRS: dict[str, tuple[Any, str | list[str]]] = {
    "fine": ({"instruction": "Hi", "output": "Hello."}, OK),
    "with input": ({"instruction": "Add", "input": "1 2", "output": "3"}, ["Add\n\n1 2", "3"]),
    "empty input": ({"instruction": "Hi", "input": "", "output": "Hello."}, OK),
    "null input": ({"instruction": "Hi", "input": None, "output": "Hello."}, OK),
    "unusable input": ({"instruction": "Hi", "input": "a\0b", "output": "Hello."}, "nul_character"),
    "program": ({"instruction": "Area?", "output": PROGRAM}, ["Area?", PROGRAM]),
    "empty output": ({"instruction": "Hi", "output": " "}, "empty_output"),
    "missing output": ({"instruction": "Hi"}, "empty_output"),
    "null output": ({"instruction": "Hi", "output": None}, "empty_output"),
    "empty instruction": ({"instruction": "", "output": "Hello."}, "empty_instruction"),
    "NUL": ({"instruction": "Hi", "output": "a\0b"}, "nul_character"),
    "not an object": (3, "not_an_object"),
    "query and response": ({"type": "GSM", "query": "Hi", "original_question": "Hm", "response": "Hello."}, OK),
    "prompt and completion": ({"prompt": "Hi", "completion": "Hello."}, OK),
    "problem and solution": ({"problem": "Hi", "solution": "Hello."}, OK),
    "chats as prompt and completion": ({"prompt": [ASK], "completion": [ANSWER]}, OK),
    "null keys in front": ({"instruction": None, "question": "Hi", "output": None, "answer": "Hello."}, OK),
    "NaN keys in front": ({"instruction": float("nan"), "query": "Hi", "output": float("nan"), "answer": "Hello."}, OK),
    "blank keys in front": ({"instruction": "", "prompt": "Hi", "output": " ", "completion": "Hello."}, OK),
    "empty list in front": ({"instruction": [], "question": "Hi", "output": {}, "answer": "Hello."}, OK),
    "empty list of turns beside": ({"conversations": [], "instruction": "Hi", "output": "Hello."}, OK),
    "parts": ({"instruction": "Hi", "output": [{"type": "text", "text": "Hello."}]}, OK),
    "picture": ({"instruction": "What is it?", "output": "A cat.", "image": {"path": "x"}}, "not_only_text"),
    "system that is no text": ({"system": {"a": 1}, "question": "Hi", "response": "Hello."}, "not_only_text"),
    "system prompt": ({"system_prompt": "Be kind.", "question": "Hi", "response": "Hello."}, ["Be kind.", *OK]),
    "history": ({"instruction": "Bye", "output": "Bye.", "history": [["Hi", "Hello."]]}, [*OK, "Bye", "Bye."]),
    "broken history": ({"instruction": "Bye", "output": "Bye.", "history": ["Hi"]}, "conversation_not_a_list"),
    "empty history": ({"instruction": "Hi", "output": "Hello.", "history": []}, OK),
}  # fmt: skip


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("reader", ["instruction", "hub"])
def test_instruction_pair(kind, reader, tmp_path):
    record, expected = PAIRS[kind]
    first, last = {"instruction": "first", "output": "1"}, {"instruction": "last", "output": "2"}
    rows, audit = run_corpus(write_jsonl_file(tmp_path / "in.json", [first, record, last]), reader=reader)
    if isinstance(expected, str):
        assert audit["dropped"] == {expected: {"count": 1, "example": "1"}}
        assert [row["id"] for row in rows] == ["0", "2"]
    else:
        assert [turn["text"] for turn in rows[1]["turns"]] == expected


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["a", "a", "a"], ["a", "a#2", "a#3"]),
        ([7, "7", None], ["7", "7#2", "2"]),
        (["", " b", "\ud800"], ["0", "1", "2"]),
        ([1.5, [], True], ["0", "1", "True"]),
    ],
    ids=["duplicate", "int and string", "unusable", "other types"],
)
def test_ids_become_unique_text(ids, expected, tmp_path):
    records = [{"id": id_, "conversations": [human(f"Hi {i}"), gpt("Yes")]} for i, id_ in enumerate(ids)]
    assert [row["id"] for row in run_corpus(write_jsonl_file(tmp_path / "in.json", records))[0]] == expected


# --- parts -----------------------------------------------------------------------------------------------------------


def test_alternation_example():
    turns = [Turn(role=role, text="t") for role in ("user", "assistant", "user", "user", "assistant")]
    exchange, _ = alternating(turns)
    assert exchange == turns[:2]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"b": "x"}, "x"),
        ({"a": None, "b": "x"}, "x"),
        ({"a": " ", "b": "x"}, "x"),
        ({"a": " ", "b": None}, " "),
        ({"a": 0, "b": "x"}, 0),
        ({"a": [], "b": "x"}, "x"),
        ({"a": {}, "b": None}, {}),
        ({"a": False, "b": "x"}, False),
        ({}, None),
    ],
)
def test_first_present(record, expected):
    assert first_present(record, ("a", "b")) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([1], [1]),
        ("[1]", [1]),
        (' ["a\nb"]', ["a\nb"]),
        ("1", None),
        ({"a": [1, 2], "b": None}, [{"a": 1}, {"a": 2}]),
        ({"a": 1}, None),
        ({}, None),
        (None, None),
    ],
)
def test_as_list(value, expected):
    assert as_list(value) == expected


# --- properties ------------------------------------------------------------------------------------------------------

_NAMES = [
    "id",
    "conversations",
    "from",
    "value",
    "role",
    "content",
    "prompt",
    "completion",
    "history",
    "system",
    "type",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["user", "text"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=3),
    max_leaves=12,
)
TURN = st.builds(
    lambda role, text: {"from": role, "value": text},
    st.sampled_from(["human", "gpt", "system", "tool", "x"]),
    st.text(max_size=3),
)


@given(
    st.lists(JSON | st.builds(lambda turns: {"conversations": turns}, st.lists(TURN | JSON, max_size=5)), max_size=6),
    st.sampled_from(["hub", "sharegpt", "instruction"]),
)
def test_any_records_add_up_and_rows_are_well_formed(values, reader):
    audit = Audit(source="any")
    records = (Record(index=i, value=value) for i, value in enumerate(values))
    rows = list(read_conversations(records, audit, reader=CORPUS_READERS.find(reader)))
    assert audit.read == len(values) == audit.kept + sum(entry["count"] for entry in audit.dropped.values())
    for row in rows:
        roles = [turn["role"] for turn in row["turns"] if turn["role"] != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        assert roles
        assert all(turn["text"].strip() and turn["text"].encode() for turn in row["turns"])
