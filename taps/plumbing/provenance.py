"""Where an artefact came from and what it holds: versions, git state, digests of what was read.

Provenance holds no time stamp and no path outside the run, so equal inputs give byte-equal artefacts.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import taps
from taps.plumbing.artefacts import read_envelope, read_json_envelope, read_sidecar, verify_tensors
from taps.plumbing.envelopes import changed, open_envelope, read_header, sidecar_of
from taps.plumbing.errors import ArtefactError
from taps.plumbing.folder_records import listing_digest
from taps.plumbing.hashes import sha256_of
from taps.plumbing.kinds import KINDS, Shape
from taps.plumbing.remedies import rebuild_command

_VERSIONED = ("numpy", "torch", "transformers", "deepspeed", "datasets", "pandas", "safetensors", "reasoning_gym")
_RECORDS = ("manifest.json", "provenance.json")


def provenance(*, stage: str, inputs: Mapping[str, Path | str] | None = None, **facts: Any) -> dict[str, Any]:
    """Returns who made an artefact: versions, git state, the digests of its inputs, and `facts` (seed, device ...).

    Args:
        stage: Module that writes, e.g. `taps.trace`.
        inputs: Name -> path of each artefact or plain file read, or its digest; only digests are kept.
        facts: JSON-serialisable settings that determine the content.
    """
    versions = {
        name: sys.modules[name].__version__ for name in _VERSIONED if hasattr(sys.modules.get(name), "__version__")
    }
    return {
        "stage": stage,
        "taps": taps.__version__,
        "git": _git_state(),
        "python": platform.python_version(),
        "versions": versions,
        "inputs": digests_of(inputs or {}),
        **facts,
    }


def digests_of(inputs: Mapping[str, Path | str]) -> dict[str, str]:
    """Returns name -> digest of inputs given as paths or as digests: what a stage that runs for hours takes at once."""
    return {name: item if isinstance(item, str) else digest_of(item) for name, item in sorted(inputs.items())}


@lru_cache(maxsize=1)
def _git_state() -> str:
    """Returns `<commit>` or `<commit>+changes` of the checkout that holds the package, else `unknown`."""
    folder = Path(taps.__file__).parent
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+changes"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def digest_of(path: Path) -> str:
    """Returns the digest of an artefact, once its content was found to be what the digest says; else a file's hash.

    A folder stands for its record: `manifest.json` (features) or `provenance.json` (models), whose readers check the
    files that they take. Fetched assets and folders without a record, a user's own, are read in full; a file inside a
    fetched folder answers for the whole of it.

    Raises:
        ArtefactError: missing, or changed since it was written.
    """
    path = Path(path)
    if not path.exists():
        raise ArtefactError(path, "missing", remedy=rebuild_command(path))
    _check_asset_around(path)
    if path.is_dir():
        return _digest_of_folder(path)
    if os.path.lexists(sidecar_of(path)):
        return str(read_sidecar(path, kind=None)["digest"])
    if path.suffix == ".safetensors" and _is_our_tensors(path):
        return str(verify_tensors(path, kind=None)["digest"])
    if path.suffix == ".parquet" and _is_our_table(path):
        from taps.plumbing.parquet import read_parquet_envelope

        return str(read_parquet_envelope(path, kind=None)["digest"])
    if path.suffix == ".json" and _starts_like_ours(path):
        return str(read_json_envelope(path, kind=None)["digest"])
    return sha256_of(path)


def provenance_of(path: Path, *, kind: str) -> dict[str, Any]:
    """Returns the provenance of an artefact; of a folder, that of its record, empty where it has none.

    Raises:
        ArtefactError: as the reader of its shape.
    """
    shape, record = KINDS[kind].shape, KINDS[kind].record
    if shape == Shape.FOLDER:
        folder = Path(path)
        return read_json_envelope(folder / record, kind=kind)["provenance"] if os.path.lexists(folder / record) else {}
    if shape == Shape.TABLE:
        from taps.plumbing.parquet import read_parquet_envelope

        return read_parquet_envelope(path, kind=kind)["provenance"]
    readers = {Shape.JSON: read_json_envelope, Shape.ROWS: read_sidecar, Shape.TENSORS: read_envelope}
    return readers[shape](path, kind=kind)["provenance"]


def _digest_of_folder(path: Path) -> str:
    if os.path.lexists(sidecar_of(path)):
        return _checked_asset(path)
    for name in _RECORDS:
        if os.path.lexists(path / name) and _may_be_ours(path / name):
            return digest_of(path / name)
    return listing_digest(path)


def _check_asset_around(path: Path) -> None:
    for folder in path.parents:
        if folder.name and os.path.lexists(sidecar_of(folder)):
            _checked_asset(folder)


def _checked_asset(folder: Path) -> str:
    """Returns the digest of a fetched folder whose files are those that were fetched."""
    text = sidecar_of(folder).read_text(encoding="utf-8", errors="replace")
    digest = open_envelope(folder, text, kind="asset")["digest"]
    if listing_digest(folder) != digest:
        raise changed(folder, "asset")
    return str(digest)


def _is_our_tensors(path: Path) -> bool:
    try:
        return "taps" in read_header(path)[0].get("__metadata__", {})
    except ArtefactError:
        return False


def _is_our_table(path: Path) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return b"taps" in (pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def _may_be_ours(path: Path) -> bool:
    """Returns whether a file is a record, perhaps a damaged one; other people's folders have files of these names."""
    return not path.exists() or (path.is_file() and (path.stat().st_size == 0 or _starts_like_ours(path)))


def _starts_like_ours(path: Path) -> bool:
    """Returns whether a JSON file opens with our envelope; foreign ones may be gigabytes, or broken."""
    with open(path, "rb") as file:
        return re.match(rb'\{\s*"kind"', file.read(32)) is not None
