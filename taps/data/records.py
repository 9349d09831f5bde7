"""Records of a file or of a folder of files, whatever their format: JSON, JSON lines or parquet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

from taps.data.json_stream import Record, stream_json
from taps.plumbing.errors import TapsError

_SUFFIXES = (".json", ".jsonl", ".parquet")
_NOT_DATA = ("dataset_infos.json", "dataset_info.json", "config.json", "provenance.json")


def stream_records(path: Path) -> Iterator[Record]:
    """Yields the records of a file, or of all data files of a folder in the order of their names.

    Raises:
        TapsError: missing, or no file of a known format.
    """
    if not path.exists():
        raise TapsError(path, "no such file or folder", remedy="fetch it with python -m taps.fetch")
    if path.is_file():
        yield from _stream_file(path)
        return
    files = [file for file in sorted(path.rglob("*")) if file.suffix in _SUFFIXES and file.name not in _NOT_DATA]
    files = [file for file in files if not any(part.startswith(".") for part in file.relative_to(path).parts)]
    if not files:
        raise TapsError(path, "no data in this folder", expected=f"files ending in {', '.join(_SUFFIXES)}")
    index = count()
    for file in files:
        for record in _stream_file(file):
            yield Record(index=next(index), value=record.value, problem=record.problem)


def _stream_file(path: Path) -> Iterator[Record]:
    return _stream_parquet(path) if path.suffix == ".parquet" else stream_json(path)


def _stream_parquet(path: Path) -> Iterator[Record]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    index = count()
    try:
        for batch in ParquetFile(path).iter_batches(batch_size=1024):
            for row in batch.to_pylist():
                yield Record(index=next(index), value=row)
    except pyarrow.ArrowInvalid as error:
        raise TapsError(path, "not a complete parquet file", found=error, remedy="fetch it again") from None
