"""Records come out of JSON files of any layout, and what cannot be read is counted once, wherever pieces end."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.data import text_files
from taps.data.json_stream import stream_json
from tests.support.data_fixtures import GOOD, chat, dropped, gpt, human, run_corpus

A, B = (json.dumps(record) for record in GOOD)
DEEP = '{"id": 9, "x": ' + "[" * 5000 + "]" * 5000 + "}"
DEEP_OBJECTS = '{"id": 9, "x": ' + '{"id":' * 5000 + "1" + "}" * 5000 + "}"
HUGE = '{"id": ' + "7" * 5000 + "}"
FILES: dict[str, tuple[bytes, list[str], dict[str, int]]] = {  # kind -> (content, ids kept, dropped)
    "JSON list": (f"[{A}, {B}]".encode(), ["before", "after"], {}),
    "JSON lines": (f"{A}\n{B}\n".encode(), ["before", "after"], {}),
    "JSON lines without a last line break": (f"{A}\n{B}".encode(), ["before", "after"], {}),
    "blank lines": (f"\n{A}\n\n\n{B}\n\n".encode(), ["before", "after"], {}),
    "pretty-printed": (json.dumps(GOOD, indent=2).encode(), ["before", "after"], {}),
    "two lists": (f"[{A}]\n[{B}]\n".encode(), ["before", "after"], {}),
    "byte-order mark": (f"\ufeff[{A}, {B}]".encode(), ["before", "after"], {}),
    "CRLF": (f"[\r\n{A},\r\n{B}\r\n]\r\n".encode(), ["before", "after"], {}),
    "trailing comma": (f"[{A}, {B},]".encode(), ["before", "after"], {}),
    "missing comma": (f"[{A} {B}]".encode(), ["before", "after"], {}),
    "cut inside a text": (f"[{A}, {B[:60]}".encode(), ["before"], {"cut_off": 1}),
    "cut behind a key": (f'[{A}, {{"id":'.encode(), ["before"], {"cut_off": 1}),
    "cut between records": (f"[{A}, {B}".encode(), ["before", "after"], {"cut_off": 1}),
    "cut inside an escape": (f'[{A}, {{"id": "\\u00'.encode(), ["before"], {"cut_off": 1}),
    "cut inside a literal": (f'[{A}, {{"id": tru'.encode(), ["before"], {"cut_off": 1}),
    "cut inside a number": (f'[{A}, {{"id": 12.'.encode(), ["before"], {"cut_off": 1}),
    "cut inside an exponent": (f'[{A}, {{"id": 12e-'.encode(), ["before"], {"cut_off": 1}),
    "cut lines": (f"{A}\n{B[:40]}".encode(), ["before"], {"cut_off": 1}),
    "broken line": (f'{A}\n{{"id": oops}}\n{B}\n'.encode(), ["before", "after"], {"invalid_json": 1}),
    "line with an open text": (f'{A}\n{{"id": "x\n{B}\n'.encode(), ["before", "after"], {"invalid_json": 1}),
    "line with an open list": (f'{A}\n{{"id": [1, \n{B}\n'.encode(), ["before", "after"], {"invalid_json": 1}),
    "broken in a list": (f'[{A}, {{"id": oops, "x": []}}, {B}]'.encode(), ["before", "after"], {"invalid_json": 1}),
    "not UTF-8": (f"{A}\n{B}".encode().replace(b"night?", b"night\xe9\xff"), ["before"], {"lone_surrogate": 1}),
    "NUL padding at the end": (f"{A}\n{B}\n".encode() + b"\0" * 64, ["before", "after"], {}),
    "raw line break in a text": (A.replace("Good morning?", "Good\nmorning?").encode(), ["before"], {}),
    "nesting without end": (f"{A}\n{'[' * 100_000}\n{B}\n".encode(), ["before", "after"], {"invalid_json": 1}),
    "deep lists in a line": (f"{A}\n{DEEP}\n{B}\n".encode(), ["before", "after"], {"invalid_json": 1}),
    "deep objects in a list": (f"[{A}, {DEEP_OBJECTS}, {B}]".encode(), ["before", "after"], {"invalid_json": 1}),
    "huge integer in a line": (f"{A}\n{HUGE}\n{B}\n".encode(), ["before", "after"], {"invalid_json": 1}),
    "huge integer in a list": (f"[{A}, {HUGE}, {B}]".encode(), ["before", "after"], {"invalid_json": 1}),
    "huge integer nested": (f'{A}\n{{"x": [{HUGE}]}}\n{B}\n'.encode(), ["before", "after"], {"invalid_json": 1}),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_file(kind, tmp_path):
    content, ids, expected = FILES[kind]
    path = tmp_path / "in.json"
    path.write_bytes(content)
    rows, audit = run_corpus(path)
    assert [row["id"] for row in rows] == ids
    assert dropped(audit) == expected


@pytest.mark.parametrize("block", [1, 7, 64])
@pytest.mark.parametrize("kind", ["JSON list", "pretty-printed", "broken in a list", "line with an open list", "CRLF"])
def test_file_in_small_pieces(kind, block, tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "_BLOCK", block)
    test_file(kind, tmp_path)


# --- one broken record is one broken record --------------------------------------------------------------------------

RECORDS = [{"id": i, "turns": [{"n": 7, "text": "a" * i}, {"n": 8, "text": "b"}]} for i in range(6)]
BREAKS = {
    "value": ('"text": "b"', '"text": oops'),
    "open text": ('"text": "b"', '"text": "b'),
    "missing bracket": ("]", ""),
    "missing colon": ('"turns":', '"turns"'),
    "too many braces": ('"text": "b"', '"text": {{{'),
}
LAYOUTS = {
    "lines": ("", "\n", "", None),
    "pretty values": ("", "\n", "", 2),
    "pretty list": ("[\n", ",\n", "\n]", 4),
    "list of lines": ("[\n", ",\n", "\n]", None),
    "one-line list": ("[", ", ", "]", None),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("damage", BREAKS)
@pytest.mark.parametrize("place", [0, 2])
def test_one_broken_record_counts_once_and_costs_no_other(layout, damage, place, tmp_path):
    opening, separator, closing, indent = LAYOUTS[layout]
    texts = [json.dumps(record, indent=indent) for record in RECORDS]
    texts[place] = texts[place].replace(*BREAKS[damage], 1)
    path = tmp_path / "in.json"
    path.write_text(opening + separator.join(texts) + closing)
    records = list(stream_json(path))
    assert [record.value["id"] for record in records if not record.problem] == [i for i in range(6) if i != place]
    assert [record.problem for record in records if record.problem] == ["invalid_json"]


def test_items_inside_a_record_that_open_like_records_are_told_by_their_indentation(tmp_path):
    nested = [{"id": i, "turns": [{"id": 7, "text": "a"}, {"id": 8, "text": "b"}]} for i in range(6)]
    path = tmp_path / "in.json"
    path.write_text(json.dumps(nested, indent=1).replace('"text": "a"', '"text": oops', 3))
    problems = [record.problem for record in stream_json(path)]
    assert problems == ["invalid_json"] * 3 + [None] * 3


@pytest.mark.parametrize("separator", [", ", ",\n"])
def test_records_that_open_with_other_keys_are_found_again(separator, tmp_path):
    texts = ['{"id": 0, "a": 1}', '{"a": 1, "id": 1}', '{"id": 2, "a": oops}', '{"a": 1, "id": 3}', '{"id": 4}']
    path = tmp_path / "in.json"
    path.write_text(f"[{separator.join(texts)}]")
    records = list(stream_json(path))
    assert [record.value["id"] for record in records if not record.problem] == [0, 1, 3, 4]
    assert len(records) == 5


# --- borders of pieces -----------------------------------------------------------------------------------------------

NUMBERS = [1.5e-7, -12.25, 3e20, -0.5, 123456789012, 1e300, -7, 0]


@pytest.mark.parametrize("block", [5, 16, 33])
def test_a_number_may_straddle_two_pieces(block, tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "_BLOCK", block)
    path = tmp_path / "in.jsonl"
    text = "\n".join(json.dumps({"id": i, "numbers": NUMBERS}) for i in range(8))
    for padding in range(block):
        path.write_text(" " * padding + text)
        assert [record.value for record in stream_json(path)] == [{"id": i, "numbers": NUMBERS} for i in range(8)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@settings(deadline=None)
@given(values=st.lists(JSON, max_size=5), length=st.integers(0, 400), as_lines=st.booleans(), block=st.integers(1, 80))
def test_any_beginning_of_a_file_gives_its_complete_records(tmp_path_factory, values, length, as_lines, block):
    path = tmp_path_factory.mktemp("stream") / "in.json"
    objects = [{"n": value} for value in values]
    text = "\n".join(map(json.dumps, objects)) if as_lines else json.dumps(objects)
    path.write_text(text[:length])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_files, "_BLOCK", block)
        read = list(stream_json(path))
    complete = [record.value for record in read if not record.problem]
    assert complete == objects[: len(complete)]
    assert [record.problem for record in read[len(complete) :]] in ([], ["cut_off"])
    if length >= len(text):
        assert complete == objects


# --- size ------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "value",
    ["y" * 40_000_000, ["y" * 1000] * 40_000, {"deep": [["y" * 100_000] * 50] * 9}],
    ids=["one text", "many texts", "nested"],
)
def test_a_long_record_is_a_record(value: Any, tmp_path: Path):
    path = tmp_path / "in.json"
    path.write_text(json.dumps([{"id": 0}, {"id": 1, "value": value}, {"id": 2}]))
    records = list(stream_json(path))
    assert [record.problem for record in records] == [None] * 3
    assert records[1].value["value"] == value
