"""Records of a file or of a folder of files, whatever their format: JSON, JSON lines, CSV, parquet or arrow."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

from taps.data.csv_stream import stream_csv
from taps.data.json_stream import Record, stream_json
from taps.data.text_files import compression_of, first_bytes, refuse_strangers
from taps.plumbing.errors import TapsError
from taps.plumbing.folders import visible_files

_JSON = (".json", ".jsonl", ".ndjson")
_CSV = (".csv", ".tsv")
_TABLES = {".parquet": "parquet", ".arrow": "arrow"}
_COMPRESSED = (".gz", ".zst", ".bz2", ".xz")
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow"}
_NOT_DATA = ("dataset_infos.json", "dataset_info.json", "config.json", "provenance.json")


def stream_records(path: Path) -> Iterator[Record]:
    """Yields the records of a file, or of all data files of a folder in the order of their names.

    Raises:
        TapsError: missing, no file of a known format, or none that can be read.
    """
    if not path.exists():
        raise TapsError(path, "no such file or folder", remedy="fetch it with python -m taps.fetch")
    if path.is_file():
        yield from _stream_file(path)
        return
    if not path.is_dir():
        raise TapsError(path, "neither a file nor a folder", remedy="write what comes out of it to a file first")
    files = [file for file in sorted(visible_files(path)) if _suffix(file) in (*_JSON, *_CSV, *_TABLES)]
    files = [file for file in files if file.name not in _NOT_DATA]
    if not files:
        known = ", ".join((*_JSON, *_CSV, *_TABLES))
        raise TapsError(path, "no data in this folder", expected=f"files ending in {known}, compressed or not")
    index = count()
    for file in files:
        for record in _stream_file(file):
            yield Record(index=next(index), value=record.value, problem=record.problem)


def _suffix(path: Path) -> str:
    """Returns the suffix that names the format, e.g. `.jsonl` of `train.jsonl.zst`."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in _COMPRESSED else suffix


def _stream_file(path: Path) -> Iterator[Record]:
    head = first_bytes(path)
    form = next((form for magic, form in _MAGIC.items() if head.startswith(magic)), _TABLES.get(_suffix(path)))
    if form is None:
        yield from (stream_csv if _suffix(path) in _CSV else stream_json)(path)
        return
    refuse_strangers(path, head)
    if compression := compression_of(path):
        raise TapsError(path, f"{form} that was compressed once more ({compression})", remedy="decompress it")
    from taps.data.table_files import stream_table  # text needs none of it

    for index, row in enumerate(stream_table(path, form)):
        yield Record(index=index, value=row)
