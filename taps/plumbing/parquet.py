"""Tables that stages hand to each other: parquet files with the envelope of `taps.plumbing.envelopes`.

The envelope sits in the metadata under the key `taps` and holds kind, digest, provenance and meta. Its digest is that
of the whole file, footer included, with the digest's own 64 digits read as zeros. Equal columns give equal bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps.plumbing.atomic import atomic_path
from taps.plumbing.envelopes import changed, missing, open_envelope, seal
from taps.plumbing.errors import ArtefactError
from taps.plumbing.remedies import rebuild_command

if TYPE_CHECKING:
    import pyarrow as pa

_ZEROS = "0" * 64
_DIGEST = re.compile(rb'"digest": "([0-9a-f]{64})"')
_BLOCK = 1 << 20


def write_parquet(
    path: Path, columns: Mapping[str, Any], *, kind: str, provenance: Mapping[str, Any], meta: Mapping[str, Any]
) -> None:
    """Writes a table.

    Args:
        columns: Name -> array (numpy, or `categories` of strings), all of one length.
        kind: What the file is, e.g. `replay`.
        meta: Small JSON facts that readers need.
    """
    import pyarrow as pa

    with table_writer(path, kind=kind, provenance=provenance, meta=meta) as write:
        write(pa.table(dict(columns)))


@contextlib.contextmanager
def table_writer(
    path: Path, *, kind: str, provenance: Mapping[str, Any], meta: Mapping[str, Any]
) -> Iterator[Callable[[pa.Table], None]]:
    """Yields a function that appends a piece of a table; the file is there once the block ends without an error.

    All pieces have the same columns; there must be at least one. Other arguments as of `write_parquet`.
    """
    import pyarrow.parquet as pq

    envelope = seal({"kind": kind, "digest": _ZEROS, "provenance": provenance, "meta": meta})
    metadata = {"taps": json.dumps(envelope, ensure_ascii=False)}
    with atomic_path(path) as temporary, contextlib.ExitStack() as opened:
        writers: list[pq.ParquetWriter] = []

        def write(piece: pa.Table) -> None:
            piece = piece.replace_schema_metadata(metadata)
            if not writers:
                options: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
                writers.append(opened.enter_context(pq.ParquetWriter(temporary, piece.schema, **options)))
            writers[0].write_table(piece)

        yield write
        opened.close()
        _write_digest(temporary)


def read_parquet_envelope(path: Path, *, kind: str | None) -> dict[str, Any]:
    """Returns kind, digest, provenance and meta of a table whose bytes are what was written.

    Raises:
        ArtefactError: missing, truncated, edited, foreign, or of another kind.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    try:
        text = (pq.read_schema(path).metadata or {}).get(b"taps", b"").decode(errors="replace")
        found = _DIGEST.findall(_footer(path)[1])
    except FileNotFoundError:
        raise missing(path, kind) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ArtefactError(path, f"not a complete parquet file ({line})", remedy=rebuild_command(path, kind)) from None
    digest = found[0].decode() if len(found) == 1 else _ZEROS
    envelope = open_envelope(path, text.replace(digest, _ZEROS), kind=kind, needs=("meta",))
    if _digest_without_itself(path) != digest:
        raise changed(path, kind)
    return {**envelope, "digest": digest}


def categories(codes: Any, names: list[str]) -> pa.DictionaryArray:
    """Returns a column of strings: `names[code]` for each of the int codes; pandas reads it as a categorical."""
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(codes, type=pa.int32()), pa.array(names, type=pa.string()))


def _write_digest(path: Path) -> None:
    """Puts the file's digest in the place of the zeros that stand for it."""
    start, footer = _footer(path)
    place = footer.index(f'"digest": "{_ZEROS}"'.encode()) + len('"digest": "')
    digest = _digest_without_itself(path)
    with open(path, "r+b") as file:
        file.seek(start + place)
        file.write(digest.encode())


def _digest_without_itself(path: Path) -> str:
    start, footer = _footer(path)
    digest, left = hashlib.sha256(), start
    with open(path, "rb") as file:
        while left and (block := file.read(min(_BLOCK, left))):
            digest.update(block)
            left -= len(block)
    digest.update(_DIGEST.sub(f'"digest": "{_ZEROS}"'.encode(), footer, count=1))
    return digest.hexdigest()


def _footer(path: Path) -> tuple[int, bytes]:
    """Returns where a parquet file's footer begins, and all bytes from there on.

    Raises:
        ValueError: the file is too short for what its end says.
    """
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - 8, 0))
        tail = file.read(8)
        length = int.from_bytes(tail[:4], "little")
        if len(tail) < 8 or tail[4:] != b"PAR1" or length + 8 > size:
            raise ValueError("its end is missing")
        file.seek(size - 8 - length)
        return size - 8 - length, file.read()
