"""Files that stages hand to each other: written atomically, stamped with provenance, verified when read.

Shapes of artefact share one envelope (`taps.plumbing.envelopes`):
- tensors: one safetensors file; the envelope sits in the header's metadata, the digest covers the data region, the seal
  the rest of the header;
- rows: JSON lines; the envelope is the sidecar `<file>.provenance.json`, the digest covers the file;
- JSON: the envelope wraps `content`, the digest covers its canonical dump;
- tables: `taps.plumbing.parquet`; folders: `taps.plumbing.folder_records`.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from taps.plumbing.atomic import atomic_path, write_text
from taps.plumbing.envelopes import changed, digest_of_json, missing, open_envelope, read_header, seal, sidecar_of
from taps.plumbing.errors import ArtefactError
from taps.plumbing.hashes import sha256_of
from taps.plumbing.remedies import rebuild_command

# --- JSON ------------------------------------------------------------------------------------------------------------


def write_json(path: Path, content: Any, *, kind: str, provenance: Mapping[str, Any]) -> None:
    """Writes `content` in its envelope."""
    envelope = seal({"kind": kind, "digest": digest_of_json(content), "provenance": provenance})
    write_text(path, json.dumps({**envelope, "content": content}, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path, *, kind: str) -> Any:
    """Returns the content of a JSON artefact.

    Raises:
        ArtefactError: missing, not JSON, of another kind, or edited since it was written.
    """
    return read_json_envelope(path, kind=kind)["content"]


def read_json_envelope(path: Path, *, kind: str | None) -> dict[str, Any]:
    """Returns the whole envelope of a JSON artefact, `content` included; as `read_json`."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise missing(path, kind) from None
    except UnicodeDecodeError:
        raise ArtefactError(path, "not UTF-8", remedy=rebuild_command(path, kind)) from None
    envelope = open_envelope(path, text, kind=kind, needs=("content",))
    if digest_of_json(envelope["content"]) != envelope["digest"]:
        raise changed(path, kind)
    return envelope


# --- JSON lines ------------------------------------------------------------------------------------------------------


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]], *, kind: str, provenance: Mapping[str, Any]) -> int:
    """Writes one JSON object a line and the sidecar; returns the number of rows."""
    num_rows = 0
    with atomic_path(path) as temporary:
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                num_rows += 1
        digest = sha256_of(temporary)
    write_sidecar(path, kind=kind, digest=digest, provenance=provenance)
    return num_rows


def write_sidecar(path: Path, *, kind: str, digest: str, provenance: Mapping[str, Any]) -> None:
    """Writes the envelope of a file or folder that cannot hold it."""
    envelope = seal({"kind": kind, "digest": digest, "provenance": provenance})
    write_text(sidecar_of(path), json.dumps(envelope, indent=1, ensure_ascii=False) + "\n")


def read_jsonl(path: Path, *, kind: str) -> list[dict[str, Any]]:
    """Returns the rows of a JSON-lines artefact.

    Raises:
        ArtefactError: missing, without its sidecar, of another kind, truncated or edited.
    """
    read_sidecar(path, kind=kind)
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_sidecar(path: Path, *, kind: str | None) -> dict[str, Any]:
    """Returns the envelope of a file that keeps it in a sidecar, once the file's hash is the one it names.

    Raises:
        ArtefactError: as `read_jsonl`.
    """
    path = Path(path)
    try:
        text = sidecar_of(path).read_text(encoding="utf-8", errors="replace")
        digest = sha256_of(path)
    except FileNotFoundError as error:
        raise missing(path, kind, file=error.filename) from None
    envelope = open_envelope(path, text, kind=kind)
    if digest != envelope["digest"]:
        raise changed(path, kind)
    return envelope


# --- tensors ---------------------------------------------------------------------------------------------------------


def write_tensors(
    path: Path,
    tensors: Mapping[str, Any],
    *,
    kind: str,
    provenance: Mapping[str, Any],
    meta: Mapping[str, Any] | None = None,
) -> None:
    """Writes numpy arrays or torch tensors (all of one library) as one safetensors file.

    Args:
        tensors: Name -> array.
        kind: What the file is, e.g. `trace`; readers ask for it by name.
        meta: Small JSON facts that readers need (ids, options).
    """
    blob = _serialise(tensors)
    (length,) = struct.unpack("<Q", blob[:8])
    header = json.loads(blob[8 : 8 + length])
    data = memoryview(blob)[8 + length :]
    envelope = {
        "kind": kind,
        "digest": hashlib.sha256(data).hexdigest(),
        "provenance": provenance,
        "meta": dict(meta or {}),
        "header_digest": digest_of_json(header),
    }
    header["__metadata__"] = {"taps": json.dumps(seal(envelope), ensure_ascii=False)}
    encoded = json.dumps(header, ensure_ascii=False).encode()
    encoded += b" " * (-len(encoded) % 8)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        file.write(struct.pack("<Q", len(encoded)))
        file.write(encoded)
        file.write(data)


def read_tensors(
    path: Path, *, kind: str, names: Iterable[str] | None = None, framework: str = "pt"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns (tensors, meta) of a tensor artefact, its data verified.

    Args:
        names: Tensors wanted; all by default.
        framework: `pt` for torch tensors, `np` for numpy arrays (numpy has no bfloat16: leave such tensors out).

    Raises:
        ArtefactError: missing, truncated, edited, of another kind, or without a wanted tensor.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    envelope = verify_tensors(path, kind=kind)
    header, _ = read_header(path, kind)
    wanted = sorted(set(header) - {"__metadata__"}) if names is None else list(names)
    if absent := [name for name in wanted if name not in header]:
        raise ArtefactError(path, f"lacks the tensors {', '.join(absent)}", remedy=rebuild_command(path, kind))
    try:
        with safe_open(path, framework=framework) as file:
            return {name: file.get_tensor(name) for name in wanted}, envelope["meta"]
    except (SafetensorError, OSError) as error:
        raise ArtefactError(path, f"cannot be read ({error})", remedy=rebuild_command(path, kind)) from None


def verify_tensors(path: Path, *, kind: str | None) -> dict[str, Any]:
    """Returns the envelope of a tensor artefact whose data are what was written.

    Raises:
        ArtefactError: as `read_envelope`, or the data changed.
    """
    envelope = read_envelope(path, kind=kind)
    if sha256_of(path, start=read_header(path, kind)[1]) != envelope["digest"]:
        raise changed(path, kind)
    return envelope


def read_envelope(path: Path, *, kind: str | None) -> dict[str, Any]:
    """Returns kind, digest, provenance and meta of a tensor artefact without reading its data.

    Raises:
        ArtefactError: missing, truncated or edited header, foreign, or of another kind.
    """
    path = Path(path)
    header = read_header(path, kind)[0]
    text = header.pop("__metadata__", {}).get("taps", "")
    envelope = open_envelope(path, text, kind=kind, needs=("meta", "header_digest"))
    if digest_of_json(header) != envelope["header_digest"]:
        raise changed(path, kind)
    return envelope


def _serialise(tensors: Mapping[str, Any]) -> bytes:
    if any(type(value).__module__.startswith("torch") for value in tensors.values()):
        from safetensors.torch import save

        return save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
    import numpy as np
    from safetensors.numpy import save as save_numpy

    return save_numpy({name: np.ascontiguousarray(value) for name, value in tensors.items()})
