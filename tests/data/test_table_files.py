"""Tables come out of parquet and arrow files row by row, whatever the file is called."""

from __future__ import annotations

import datetime
import decimal
import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import ipc, parquet

from taps.data.records import stream_records
from taps.data.table_files import Split, json_line, stream_split
from taps.plumbing.errors import TapsError
from tests.support.data_fixtures import GOOD, run_corpus

ROWS: list[dict[str, Any]] = [*GOOD, {"id": "third", "conversations": None}]


def write_parquet(path: Path, table: Any) -> None:
    parquet.write_table(table, path)


def write_arrow(path: Path, table: Any) -> None:
    with pyarrow.OSFile(str(path), "wb") as file, ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def write_arrow_stream(path: Path, table: Any) -> None:
    with pyarrow.OSFile(str(path), "wb") as file, ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, tuple[str, Callable[[Path, Any], None]]] = {
    "parquet": ("rows.parquet", write_parquet),
    "parquet by its first bytes": ("rows.json", write_parquet),
    "arrow": ("rows.arrow", write_arrow),
    "arrow by its first bytes": ("rows.data", write_arrow),
    "arrow stream": ("rows.arrow", write_arrow_stream),
    "a name like a pattern": ("a [1]::* é'.parquet", write_parquet),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_rows_are_records(kind, tmp_path):
    name, write = WRITERS[kind]
    write(tmp_path / name, pyarrow.Table.from_pylist(ROWS))
    assert [record.value for record in stream_records(tmp_path / name)] == ROWS
    rows, audit = run_corpus(tmp_path / name, reader="hub")
    assert [row["id"] for row in rows] == ["before", "after"]
    assert list(audit["dropped"]) == ["missing_conversation"]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "parquet by its first bytes"])
@pytest.mark.parametrize("damage", [slice(0, -40), slice(0, 60)])
def test_a_file_that_is_not_whole_is_refused(kind, damage, tmp_path):
    name, write = WRITERS[kind]
    write(tmp_path / name, pyarrow.Table.from_pylist(ROWS))
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[damage])
    with pytest.raises(TapsError, match=r"rows\.\w+: cannot be read as (parquet|arrow), found .*fetching it again"):
        list(stream_records(tmp_path / name))


@pytest.mark.parametrize("kind", ["parquet", "arrow", "arrow stream"])
def test_changed_bytes_that_only_arrow_notices_are_refused_by_name(kind, tmp_path):
    name, write = WRITERS[kind]
    write(tmp_path / name, pyarrow.Table.from_pylist(ROWS * 50))
    content = bytearray((tmp_path / name).read_bytes())
    if kind == "parquet":
        content[60:90] = bytes(30)
    else:
        content = content[: len(content) // 2]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TapsError, match=r"rows\.\w+: cannot be read as (parquet|arrow), found .*fetching it again"):
        list(stream_records(tmp_path / name))


def test_shards_of_which_some_have_no_rows(tmp_path):
    table = pyarrow.Table.from_pylist(ROWS)
    for number, piece in enumerate((table.slice(0, 0), table, table.slice(0, 0))):
        write_parquet(tmp_path / f"train-{number:05d}-of-00003.parquet", piece)
    with parquet.ParquetWriter(tmp_path / "u.parquet", table.schema) as writer:
        for piece in (table.slice(0, 0), table):
            writer.write_table(piece)
    (tmp_path / "README.md").write_text("---\n")
    (tmp_path / "._train.parquet").write_bytes(b"resource fork")
    assert [record.value for record in stream_records(tmp_path)] == ROWS * 2


def test_a_table_compressed_once_more_says_so(tmp_path):
    write_parquet(tmp_path / "rows.parquet", pyarrow.Table.from_pylist(ROWS))
    packed = tmp_path / "rows.parquet.gz"
    packed.write_bytes(gzip.compress((tmp_path / "rows.parquet").read_bytes()))
    with pytest.raises(TapsError, match=r"parquet that was compressed once more \(\.gz\); decompress it"):
        list(stream_records(packed))


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow", "rows.csv", "rows.jsonl"])
def test_a_pointer_says_so_whatever_it_is_called(name, tmp_path):
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n")
    with pytest.raises(TapsError, match="a Git-LFS pointer"):
        list(stream_records(tmp_path / name))


# --- rows as JSON lines ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"a": "é\n", "b": [1, None, {"c": True}]}, {"a": "é\n", "b": [1, None, {"c": True}]}),
        ({"a": datetime.date(2024, 7, 26)}, {"a": "2024-07-26"}),
        ({"a": datetime.datetime(2024, 7, 26, 1)}, {"a": "2024-07-26T01:00:00"}),
        ({"a": decimal.Decimal("1.50")}, {"a": "1.50"}),
    ],
)
def test_json_line(row, expected):
    line = json_line(row, where="x")
    assert line.endswith("}\n")
    assert line.count("\n") == 1
    assert json.loads(line) == expected


@pytest.mark.parametrize("cell", [b"x", [b"x"], {"image": {"bytes": b"x"}}])
def test_bytes_are_no_text(cell):
    with pytest.raises(TapsError, match=r"x: holds more than text, found bytes in column b"):
        json_line({"a": "fine", "b": cell}, where="x")


# --- the library -----------------------------------------------------------------------------------------------------


def test_nothing_is_left_behind_and_torch_is_not_loaded(tmp_path):
    write_parquet(tmp_path / "a.parquet", pyarrow.Table.from_pylist(ROWS))
    code = (
        "import sys; from pathlib import Path; from taps.data.records import stream_records;"
        f"print(len(list(stream_records(Path({str(tmp_path / 'a.parquet')!r})))), 'torch' in sys.modules)"
    )
    (tmp_path / "tmp").mkdir()
    environment = {"HF_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp"), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", code]
    result = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment, cwd=Path(__file__).parents[2]
    )
    assert (result.stdout.split(), result.stderr) == (["3", "False"], "")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.parquet", "tmp"]


@pytest.mark.parametrize("content", ['{"a": "x"}\n{"a": oops}\n', '{"a": "x"}\n{"a": "cut'], ids=["broken", "cut off"])
def test_why_json_has_a_reader_of_its_own(content, tmp_path):
    """The library refuses a file for one bad record; the day that it does not, `taps.data.json_stream` can go."""
    (tmp_path / "train.jsonl").write_text(content)
    with pytest.raises(TapsError, match=r"cannot be read as a data set|its JSON is a list, or broken where it begins"):
        list(stream_split(Split(source=tmp_path, split="train")))
    assert [record.problem is None for record in stream_records(tmp_path / "train.jsonl")] == [True, False]
