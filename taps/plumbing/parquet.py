"""Tables that stages hand to each other: parquet files with the envelope of `taps.plumbing.artefacts`.

The envelope sits in the metadata under the key `taps` and holds kind, provenance and meta. Pages carry checksums in
place of its digest. Equal columns give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps.plumbing.atomic import atomic_path

if TYPE_CHECKING:
    import pyarrow as pa


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
    import pyarrow.parquet as pq

    envelope = {"kind": kind, "provenance": provenance, "meta": meta}
    table = pa.table(dict(columns)).replace_schema_metadata({"taps": json.dumps(envelope, ensure_ascii=False)})
    with atomic_path(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)


def categories(codes: Any, names: list[str]) -> pa.DictionaryArray:
    """Returns a column of strings: `names[code]` for each of the int codes; pandas reads it as a categorical."""
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(codes, type=pa.int32()), pa.array(names, type=pa.string()))
