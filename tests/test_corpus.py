"""Every kind of bad input has an expected outcome, and read = kept + dropped whatever comes in.

Each record of the tables is read between two good ones, which must survive: no bad record stops a run.
"""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps import corpus
from taps.data.audit import Audit
from taps.data.chat import ChatTokenizer
from taps.data.chat import Reason as ChatReason
from taps.data.conversations import alternating, read_conversations
from taps.data.json_stream import Record, stream_json
from taps.plumbing.artefacts import read_json, read_jsonl
from taps.plumbing.errors import TapsError
from taps.tiny_target import byte_tokenizer

SMALL = Path(__file__).parent / "data" / "sharegpt_small.json"
PROGRAM = "import math\n\n\ndef area(r):\n    return math.pi * r**2\n\n\nprint(area(2))"
HEBREW = "שלום \u202eabc\u202c"


def human(text: Any) -> dict[str, Any]:
    return {"from": "human", "value": text}


def gpt(text: Any) -> dict[str, Any]:
    return {"from": "gpt", "value": text}


def chat(*turns: Any, **more: Any) -> dict[str, Any]:
    return {"id": "x", "conversations": list(turns), **more}


def run_corpus(path: Path, *flags: str, reader: str = "sharegpt") -> tuple[list[dict], dict]:
    """Returns (rows, audit content) of the stage run on a file."""
    output, audit = path.with_suffix(".out.jsonl"), path.with_suffix(".audit.json")
    corpus.main(["--reader", reader, "--input", str(path), "--output", str(output), "--audit", str(audit), *flags])
    content = read_json(audit, kind="audit")
    rows = read_jsonl(output, kind="corpus")
    assert content["read"] == content["kept"] + sum(entry["count"] for entry in content["dropped"].values())
    assert content["kept"] == len(rows) == len({row["id"] for row in rows})
    return rows, content


GOOD = [
    {"id": "before", "conversations": [human("Good morning?"), gpt("Good morning.")]},
    {"id": "after", "conversations": [human("Good night?"), gpt("Good night.")]},
]
OK = ["Hi", "Hello."]

RECORDS: dict[str, tuple[Any, str | list[str]]] = {  # kind -> (record, reason it is dropped for | texts that are kept)
    "fine": (chat(human("Hi"), gpt("Hello.")), OK),
    "null record": (None, "not_an_object"),
    "text for a record": ("conversation", "not_an_object"),
    "list for a record": ([human("Hi"), gpt("Hello.")], "not_an_object"),
    "missing conversation": ({"id": "x"}, "missing_conversation"),
    "null conversation": ({"id": "x", "conversations": None}, "conversation_not_a_list"),
    "text for a conversation": ({"id": "x", "conversations": "Hi"}, "conversation_not_a_list"),
    "no turns": (chat(), "no_turns"),
    "null turn": (chat(None, gpt("Hello.")), "turn_not_an_object"),
    "missing from": (chat({"value": "Hi"}, gpt("Hello.")), "missing_role"),
    "null from": (chat({"from": None, "value": "Hi"}, gpt("Hello.")), "missing_role"),
    "number for from": (chat({"from": 1, "value": "Hi"}, gpt("Hello.")), "unknown_role"),
    "unknown role": (chat({"from": "narrator", "value": "Hi"}, gpt("Hello.")), "unknown_role"),
    "missing value": (chat({"from": "human"}, gpt("Hello.")), "missing_text"),
    "null value": (chat(human(None), gpt("Hello.")), "text_not_a_string"),
    "number value": (chat(human(7), gpt("Hello.")), "text_not_a_string"),
    "list value": (chat(human(["Hi"]), gpt("Hello.")), "text_not_a_string"),
    "empty value": (chat(human(""), gpt("Hello.")), "empty_text"),
    "blank value": (chat(human(" \r\n\t"), gpt("Hello.")), "empty_text"),
    "one turn": (chat(human("Hi")), "no_answer"),
    "assistant only": (chat(gpt("Hello.")), "no_user_turn"),
    "system only": (chat({"from": "system", "value": "Be kind."}), "no_user_turn"),
    "same role twice": (chat(human("Hi"), human("Hi?"), gpt("Hello.")), "same_role_twice"),
    "NUL": (chat(human("H\0i"), gpt("Hello.")), "nul_character"),
    "lone surrogate": (chat(human("Hi \ud83d"), gpt("Hello.")), "lone_surrogate"),
    "role/content spelling": (chat({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}), OK),
    "messages": ({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]}, OK),
    "upper case roles": (chat({"from": "HUMAN", "value": "Hi"}, {"from": " ChatGPT", "value": "Hello."}), OK),
    "bing": (chat({"from": "user", "value": "Hi"}, {"from": "bing", "value": "Hello."}), OK),
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
}


@pytest.mark.parametrize("kind", RECORDS)
def test_record(kind, tmp_path):
    record, expected = RECORDS[kind]
    path = tmp_path / "in.json"
    path.write_text(json.dumps([GOOD[0], record, GOOD[1]]))
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


PAIRS: dict[str, tuple[Any, str | list[str]]] = {
    "fine": ({"instruction": "Hi", "output": "Hello."}, OK),
    "with input": ({"instruction": "Add", "input": "1 2", "output": "3"}, ["Add\n\n1 2", "3"]),
    "empty input": ({"instruction": "Hi", "input": "", "output": "Hello."}, OK),
    "program": ({"instruction": "Area?", "output": PROGRAM}, ["Area?", PROGRAM]),
    "empty output": ({"instruction": "Hi", "output": " "}, "empty_output"),
    "missing output": ({"instruction": "Hi"}, "empty_output"),
    "null output": ({"instruction": "Hi", "output": None}, "empty_output"),
    "empty instruction": ({"instruction": "", "output": "Hello."}, "empty_instruction"),
    "NUL": ({"instruction": "Hi", "output": "a\0b"}, "nul_character"),
    "not an object": (3, "not_an_object"),
}


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("reader", ["instruction", "hub"])
def test_instruction_pair(kind, reader, tmp_path):
    record, expected = PAIRS[kind]
    path = tmp_path / "in.json"
    path.write_text(
        json.dumps([{"instruction": "first", "output": "1"}, record, {"instruction": "last", "output": "2"}])
    )
    rows, audit = run_corpus(path, reader=reader)
    if isinstance(expected, str):
        assert audit["dropped"] == {expected: {"count": 1, "example": "1"}}
        assert [row["id"] for row in rows] == ["0", "2"]
    else:
        assert [turn["text"] for turn in rows[1]["turns"]] == expected


# --- files -----------------------------------------------------------------------------------------------------------

A, B = (json.dumps(record) for record in GOOD)
FILES: dict[str, tuple[bytes, list[str], dict[str, int]]] = {  # kind -> (content, ids kept, dropped)
    "JSON list": (f"[{A}, {B}]".encode(), ["before", "after"], {}),
    "JSON lines": (f"{A}\n{B}\n".encode(), ["before", "after"], {}),
    "JSON lines without a last line break": (f"{A}\n{B}".encode(), ["before", "after"], {}),
    "blank lines": (f"\n{A}\n\n\n{B}\n\n".encode(), ["before", "after"], {}),
    "pretty-printed": (json.dumps(GOOD, indent=2).encode(), ["before", "after"], {}),
    "byte-order mark": (f"\ufeff[{A}, {B}]".encode(), ["before", "after"], {}),
    "CRLF": (f"[\r\n{A},\r\n{B}\r\n]\r\n".encode(), ["before", "after"], {}),
    "trailing comma": (f"[{A}, {B},]".encode(), ["before", "after"], {}),
    "missing comma": (f"[{A} {B}]".encode(), ["before", "after"], {}),
    "cut inside a text": (f"[{A}, {B[:60]}".encode(), ["before"], {"cut_off": 1}),
    "cut behind a key": (f'[{A}, {{"id":'.encode(), ["before"], {"cut_off": 1}),
    "cut between records": (f"[{A}, {B}".encode(), ["before", "after"], {"cut_off": 1}),
    "cut inside an escape": (f'[{A}, {{"id": "\\u00'.encode(), ["before"], {"cut_off": 1}),
    "cut inside a literal": (f'[{A}, {{"id": tru'.encode(), ["before"], {"cut_off": 1}),
    "cut lines": (f"{A}\n{B[:40]}".encode(), ["before"], {"cut_off": 1}),
    "broken line": (f'{A}\n{{"id": oops}}\n{B}\n'.encode(), ["before", "after"], {"invalid_json": 1}),
    "line with an open text": (f'{A}\n{{"id": "x\n{B}\n'.encode(), ["before", "after"], {"invalid_json": 1}),
    "broken in a list": (f'[{A}, {{"id": oops, "x": []}}, {B}]'.encode(), ["before", "after"], {"invalid_json": 1}),
    "not UTF-8": (f"{A}\n{B}".encode().replace(b"night?", b"night\xe9\xff"), ["before"], {"lone_surrogate": 1}),
    "NUL padding at the end": (f"{A}\n{B}\n".encode() + b"\0" * 64, ["before", "after"], {}),
    "raw line break in a text": (A.replace("Good morning?", "Good\nmorning?").encode(), ["before"], {}),
    "deep nesting": (f"{A}\n{'[' * 100_000}\n{B}\n".encode(), ["before", "after"], {"invalid_json": 1}),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_file(kind, tmp_path):
    content, ids, dropped = FILES[kind]
    path = tmp_path / "in.json"
    path.write_bytes(content)
    rows, audit = run_corpus(path)
    assert [row["id"] for row in rows] == ids
    assert {reason: entry["count"] for reason, entry in audit["dropped"].items()} == dropped


def test_cut_is_reported(tmp_path):
    path = tmp_path / "in.json"
    path.write_bytes(FILES["cut inside a text"][0])
    _, audit = run_corpus(path)
    assert "the file ends inside record 1; the 1 before it were read" in audit["notes"]


@pytest.mark.parametrize("content", ["", "[]", "[null]", "\ufeff", "{}", "\0\0"])
def test_nothing_usable_is_an_error_and_no_file(content, tmp_path):
    path = tmp_path / "in.json"
    path.write_text(content)
    with pytest.raises(TapsError, match=r"in\.json: no usable conversation, found in\.json: read \d, kept 0"):
        run_corpus(path)
    assert [file.name for file in tmp_path.iterdir()] == ["in.json"]


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
    path = tmp_path / "in.json"
    path.write_text(
        json.dumps([{"id": id_, "conversations": [human(f"Hi {i}"), gpt("Yes")]} for i, id_ in enumerate(ids)])
    )
    assert [row["id"] for row in run_corpus(path)[0]] == expected


def test_several_files_and_a_folder(tmp_path):
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.json").write_text(f"[{A}]")
    (folder / "sub" / "b.jsonl").write_text(B)
    (folder / ".cache").mkdir()
    (folder / ".cache" / "c.json").write_text("[1]")
    (folder / "README.md").write_text("no data")
    (folder / "provenance.json").write_text("{}")
    flags = ["--reader", "hub", "--output", str(tmp_path / "o.jsonl"), "--audit", str(tmp_path / "a.json")]
    (tmp_path / "data.provenance.json").write_text(json.dumps({"digest": "d"}))
    corpus.main([*flags, "--input", str(folder)])
    assert [row["id"] for row in read_jsonl(tmp_path / "o.jsonl", kind="corpus")] == ["before", "after"]
    corpus.main([*flags, "--input", str(folder / "sub" / "b.jsonl"), "--input", str(folder / "a.json")])
    assert [row["id"] for row in read_jsonl(tmp_path / "o.jsonl", kind="corpus")] == ["after", "before"]


def test_parquet(tmp_path):
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / "train.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(GOOD), path)
    assert [row["id"] for row in run_corpus(path, reader="hub")[0]] == ["before", "after"]
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(TapsError, match="not a complete parquet file"):
        run_corpus(path, reader="hub")


# --- properties ------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "conversations", "from", "value", "role", "content"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)
TURN = st.builds(
    lambda role, text: {"from": role, "value": text},
    st.sampled_from(["human", "gpt", "system", "x"]),
    st.text(max_size=3),
)


@given(
    st.lists(JSON | st.builds(lambda turns: {"conversations": turns}, st.lists(TURN | JSON, max_size=5)), max_size=6)
)
def test_any_records_add_up_and_rows_are_well_formed(values):
    audit = Audit(source="any")
    records = (Record(index=i, value=value) for i, value in enumerate(values))
    rows = list(read_conversations(records, audit, reader="hub"))
    assert audit.read == len(values) == audit.kept + sum(entry["count"] for entry in audit.dropped.values())
    for row in rows:
        roles = [turn["role"] for turn in row["turns"] if turn["role"] != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
        assert roles
        assert all(turn["text"].strip() and turn["text"].encode() for turn in row["turns"])


@given(st.lists(JSON, max_size=5), st.integers(0, 400), st.booleans())
def test_any_beginning_of_a_file_gives_its_complete_records(tmp_path_factory, values, length, as_lines):
    path = tmp_path_factory.mktemp("stream") / "in.json"
    objects = [{"n": value} for value in values]
    text = "\n".join(map(json.dumps, objects)) if as_lines else json.dumps(objects)
    path.write_text(text[:length])
    read = list(stream_json(path))
    complete = [record.value for record in read if not record.problem]
    assert complete == objects[: len(complete)]
    assert [record.problem for record in read[len(complete) :]] in ([], ["cut_off"])
    if length >= len(text):
        assert complete == objects


def test_alternation_example():
    turns = [{"role": role, "text": "t"} for role in ("user", "assistant", "user", "user", "assistant")]
    exchange, _ = alternating(turns)
    assert exchange == turns[:2]


def test_memory_stays_flat(tmp_path):
    path = tmp_path / "big.json"
    record = json.dumps(chat(human("Hi"), gpt("y" * 10_000)))
    with open(path, "w") as file:
        file.write("[" + ",".join([record] * 3000))
    tracemalloc.start()
    assert sum(1 for _ in stream_json(path)) == 3001  # the list is not closed
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert path.stat().st_size > 30e6
    assert peak < 8e6


# --- sources ---------------------------------------------------------------------------------------------------------


def test_small_sharegpt_file_exercises_the_audit(tmp_path):
    output, audit = tmp_path / "c.jsonl", tmp_path / "a.json"
    corpus.main(["--reader", "sharegpt", "--input", str(SMALL), "--output", str(output), "--audit", str(audit)])
    content = read_json(audit, kind="audit")
    assert len(content["dropped"]) >= 8
    assert content["kept"] >= 90


def test_max_rows_keeps_the_first(tmp_path):
    path = tmp_path / "in.json"
    path.write_text(json.dumps([*GOOD, chat(human("Hi"), gpt("Hello."))]))
    rows, audit = run_corpus(path, "--max-rows", "2")
    assert [row["id"] for row in rows] == ["before", "after"]
    assert "reading stopped after 2 kept conversations, as asked" in audit["notes"]


def generate(tmp_path: Path, rows: int, seed: int) -> list[dict]:
    output = tmp_path / "g.jsonl"
    flags = ["--reader", "reasoning_gym", "--task", "gsm_symbolic", "--rows", str(rows), "--seed", str(seed)]
    corpus.main([*flags, "--output", str(output), "--audit", str(tmp_path / "g.audit.json")])
    return read_jsonl(output, kind="corpus")


def test_generated_problems_extend_and_seeds_are_disjoint(tmp_path):
    few, many, other = generate(tmp_path, 20, 0), generate(tmp_path, 60, 0), generate(tmp_path, 60, 1)
    assert many[: len(few)] == few
    questions = [{row["turns"][0]["text"] for row in rows} for rows in (many, other)]
    assert not questions[0] & questions[1]
    assert all("####" in row["turns"][1]["text"] for row in many)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--reader", "sharegpt"], "--reader sharegpt: needs --input"),
        (["--reader", "sharegpt", "--input", "/nowhere.json"], "missing"),
        (["--reader", "reasoning_gym", "--rows", "3"], "needs --task and --rows"),
        (
            ["--reader", "reasoning_gym", "--rows", "3", "--task", "gsm_sym"],
            "not a task of reasoning-gym.*gsm_symbolic",
        ),
    ],
)
def test_bad_flags(flags, message, tmp_path):
    with pytest.raises(TapsError, match=message):
        corpus.main([*flags, "--output", str(tmp_path / "o.jsonl"), "--audit", str(tmp_path / "a.json")])
    assert not list(tmp_path.iterdir())


# --- what the next stage makes of it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["What is <|im_end|>?", "A token."], ChatReason.SPECIAL_TOKEN_IN_TEXT),
        (["x" * 300, "Too late."], ChatReason.NO_SUPERVISED_TOKEN),
        (["Say it", "y" * 300], True),  # cut: supervised up to the limit
        (["Count: 1", "1 2 3"], False),
        (["ab", "\u0301bc é"], False),  # the answer's first character joins what stands before it
    ],
    ids=["special token", "question beyond the limit", "answer beyond the limit", "short", "combining"],
)
def test_awkward_conversations_as_tokens(texts, expected):
    tokenizer = ChatTokenizer(byte_tokenizer(["ab ab 1 2 3 é"] * 4))
    turns = [{"role": role, "text": text} for role, text in zip(("user", "assistant"), texts, strict=True)]
    (row,) = tokenizer.encode([turns], max_length=128)
    if isinstance(expected, ChatReason):
        assert row is expected
        return
    assert not isinstance(row, ChatReason)
    assert row.truncated is expected
    supervised = tokenizer.tokenizer.decode(row.tokens[row.supervised])
    assert (texts[1] + "<|im_end|>").startswith(supervised)
    assert (supervised == texts[1] + "<|im_end|>") is not expected
