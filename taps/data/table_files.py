"""Rows of tables and of data sets, through the `datasets` library: streamed, with no copy in its cache.

- A file of parquet or arrow: `stream_table`.
- One split of a Hub data set at a commit, or of a local folder: `stream_split`; whatever the library's builders read.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from taps.plumbing.errors import TapsError
from taps.plumbing.folders import visible_files

_LONGEST_COMPLAINT = 240
_ROWS = 1024  # read at once

PARQUET, ARROW = "parquet", "arrow"


@dataclass(frozen=True, kw_only=True)
class Split:
    """One split of a data set.

    Attributes:
        source: A Hub repository, owner/name, or a local folder.
        split: Its name, e.g. `test`.
        config: Which of the data set's configurations; None where it has one only.
        revision: Commit of the Hub repository; None for a local folder.
    """

    source: str | Path
    split: str
    config: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.source}, {f'{self.config}, ' if self.config else ''}split {self.split}"


def stream_table(path: Path, form: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file as column -> value.

    Args:
        form: Of the file, PARQUET or ARROW.

    Raises:
        TapsError: not a whole file of that form.
    """
    import datasets

    with _library(path, form) as folder:
        link = folder / f"data.{form}"  # its own name may look like a pattern to the library
        link.symlink_to(path.resolve())
        options: dict[str, Any] = {"split": "train", "streaming": True, "cache_dir": str(folder / "cache")}
        if form == PARQUET:
            options["batch_size"] = _ROWS  # else that of the first row group, which may have none
        try:
            yield from datasets.load_dataset(form, data_files=str(link), **options)
        except OSError as error:
            if error.errno is not None:
                raise
            raise ValueError(str(error)) from None  # Arrow's word for bytes that it cannot read


def stream_split(source: Split) -> Iterator[dict[str, Any]]:
    """Yields the rows of a split as column -> value, in their order.

    Raises:
        TapsError: no such data set, configuration or split, no access, or files that its builder cannot read.
        OSError: the network failed; another attempt may mend it.
    """
    import datasets
    from huggingface_hub.errors import HTTPError

    options: dict[str, Any] = {"name": source.config}
    with _library(source, "a data set") as folder:
        if isinstance(source.source, Path):
            where = home = str(_mirror(source.source, folder / "data"))
        else:
            where, home = source.source, f"hf://datasets/{source.source}@{source.revision}/"
            options |= {"revision": source.revision, "token": os.environ.get("HF_TOKEN") or False}
        try:
            builder = datasets.load_dataset_builder(where, cache_dir=str(folder / "cache"), **options)
            _check_files(source, builder.config.data_files or {}, home)
            rows = builder.as_streaming_dataset(split=source.split)
            if rows.features is None:  # the library would hold all of it, and turn values of mixed types into JSON text
                remedy = "fetch the file itself, with --file or --path, which taps.corpus and taps.prompts read exactly"
                raise TapsError(
                    source, "its JSON is a list, or broken where it begins", expected="JSON lines", remedy=remedy
                )
            yield from rows
        except FileNotFoundError as error:  # the network's failures are ConnectionErrors
            remedy = "check name and commit; if it is gated, accept its licence and set HF_TOKEN in the environment"
            raise TapsError(source, "no such data set, or no access", found=_line(error), remedy=remedy) from None
        except HTTPError as error:
            raise OSError(str(error)) from None


def _check_files(source: Split, data_files: Mapping[str, Sequence[object]], home: str) -> None:
    """Checks that a data set's own card sends nobody to files outside it, which no commit pins."""
    for name in (str(name) for names in data_files.values() for name in names):
        if not name.startswith(home) or ".." in name.removeprefix(home).split("/"):
            raise TapsError(source, "names a file outside the data set", expected=f"below {home}", found=name)


def json_line(row: dict[str, Any], *, where: object) -> str:
    """Returns a row as a line of JSON; dates as ISO text, decimals as text.

    Raises:
        TapsError: it holds bytes (pictures, sound), which no text needs.
    """

    def plain(value: Any) -> str:
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        if isinstance(value, Decimal):
            return str(value)
        columns = ", ".join(name for name, cell in row.items() if _has_bytes(cell))
        raise TapsError(where, "holds more than text", found=f"{type(value).__name__} in column {columns}")

    return json.dumps(row, ensure_ascii=False, default=plain) + "\n"


def _has_bytes(cell: Any) -> bool:
    nested = cell.values() if isinstance(cell, dict) else cell if isinstance(cell, list) else ()
    return isinstance(cell, bytes) or any(map(_has_bytes, nested))


@contextmanager
def _library(source: object, form: str) -> Iterator[Path]:
    """Yields a folder for the library's traces, which goes afterwards; its complaints become one line of ours."""
    import datasets

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # it logs what it raises, too
    datasets.disable_progress_bars()
    datasets.config.TORCH_AVAILABLE = "torch" in sys.modules  # else it would load torch to look for workers
    with tempfile.TemporaryDirectory(prefix="taps-datasets-", ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        except (TapsError, OSError, MemoryError):
            raise
        except Exception as error:  # of the library, of Arrow, of the YAML in a card
            found = _line(error)
            remedy = "check what it is and holds; a damaged file is mended by fetching it again"
            if "zstd not supported" in found:
                remedy = "pip install zstandard"
            raise TapsError(source, f"cannot be read as {form}", found=found, remedy=remedy) from error


def _mirror(source: Path, folder: Path) -> Path:
    """Returns `folder` after linking the visible files of another there, whose own name may look like a pattern."""
    for file in visible_files(source):
        link = folder / file.relative_to(source)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file.resolve())
    return folder


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST_COMPLAINT] or type(error).__name__
