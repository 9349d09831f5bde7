"""Rows come out of CSV files as text, whatever they look like, and bad lines cost no others."""

from __future__ import annotations

import csv
import gzip

import pytest

from taps.data import text_files
from taps.data.records import stream_records
from taps.plumbing.errors import TapsError

CSV = 'id,prompt,completion\n1,"a, b",None\n007,12,\n3,"x\ny ""z""",NA\n'
EXPECTED = [
    {"id": "1", "prompt": "a, b", "completion": "None"},
    {"id": "007", "prompt": "12", "completion": None},
    {"id": "3", "prompt": 'x\ny "z"', "completion": "NA"},
]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", CSV.encode()),
        ("a [b].CSV", CSV.encode()),
        ("mark.csv", CSV.encode("utf-8-sig")),
        ("utf16.csv", CSV.encode("utf-16")),
        ("a.csv.gz", gzip.compress(CSV.encode(), mtime=0)),
        ("cr.csv", CSV.replace("\n", "\r").replace("x\ry", "x\ny").encode()),
        ("blank lines first.csv", b"\n \n" + CSV.encode()),
        ("blanks around names.csv", CSV.replace("prompt,completion", " prompt, completion ").encode()),
        ("crlf.csv", CSV.replace("\n", "\r\n").replace("x\r\ny", "x\ny").encode()),
    ],
)
def test_every_cell_is_text_and_an_empty_one_null(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    assert [record.value for record in stream_records(tmp_path / name)] == EXPECTED


@pytest.mark.parametrize("block", [1, 9])
def test_lines_may_straddle_pieces(block, tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "_BLOCK", block)
    (tmp_path / "a.csv").write_text(CSV)
    assert [record.value for record in stream_records(tmp_path / "a.csv")] == EXPECTED


@pytest.mark.parametrize(("name", "separator"), [("a.tsv", "\t"), ("a.csv", ";"), ("a.csv", "|")])
def test_other_separators(name, separator, tmp_path):
    (tmp_path / name).write_text(separator.join("ab") + "\n" + separator.join(["1", "x, y"]) + "\n")
    assert [record.value for record in stream_records(tmp_path / name)] == [{"a": "1", "b": "x, y"}]


def test_lines_of_too_many_cells_are_counted(tmp_path):
    (tmp_path / "a.csv").write_text('a,b\n1,2\n1,2,3\n4\n\n"5"x,6\n7,\n')
    records = list(stream_records(tmp_path / "a.csv"))
    assert [record.value for record in records if not record.problem] == [
        {"a": "1", "b": "2"},
        {"a": "4", "b": None},
        {"a": "7", "b": None},
    ]
    assert [record.problem for record in records if record.problem] == ["invalid_csv"] * 2


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        (b'a,b\n1,2\n3,"4\n', [None, "cut_off"]),
        (gzip.compress(CSV.encode() * 2000, mtime=0)[:-200], ["cut_off"]),
        (b"a,b\nM\xe9,2\n", [None]),
    ],
    ids=["open quote", "cut stream", "not UTF-8"],
)
def test_how_a_file_ends(content, problems, tmp_path):
    (tmp_path / "a.csv").write_bytes(content)
    assert [record.problem for record in stream_records(tmp_path / "a.csv")][-len(problems) :] == problems


def test_long_cells_and_other_line_breaks_are_text(tmp_path):
    text = "x" * 300_000 + "\u2028\x0b\r\ny"
    with open(tmp_path / "a.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["a", "b"], [text, "1"]])
    assert [record.value for record in stream_records(tmp_path / "a.csv")] == [{"a": text, "b": "1"}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no table, expected a first line that names each column once"),
        (b"a,a\n1,2\n", "no table"),
        (b'"a,b\n1,2\n', "no table"),
        (b"<html><body>gone</body>", "an HTML page"),
    ],
)
def test_what_is_no_table_says_so(content, message, tmp_path):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(TapsError, match=message):
        list(stream_records(tmp_path / "a.csv"))
