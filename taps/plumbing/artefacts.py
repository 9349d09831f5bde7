"""Files that stages hand to each other: written atomically, stamped with provenance, verified when read.

Three shapes of artefact share one envelope (`kind`, `digest`, `provenance`):
- tensors: one safetensors file; the envelope sits in the header's metadata, the digest covers the data region, and a
  second one the rest of the header;
- rows: JSON lines; the envelope is the sidecar `<file>.provenance.json`, the digest covers the file;
- JSON: the envelope wraps `content`, the digest covers its canonical dump.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from taps.plumbing.atomic import atomic_path, write_text
from taps.plumbing.errors import ArtefactError
from taps.plumbing.provenance import read_header, rebuild_command, sha256_of, sidecar_of

# --- JSON and JSON lines ---------------------------------------------------------------------------------------------


def write_json(path: Path, content: Any, *, kind: str, provenance: Mapping[str, Any]) -> None:
    """Writes `content` in its envelope."""
    envelope = {"kind": kind, "digest": _digest_json(content), "provenance": provenance, "content": content}
    write_text(path, json.dumps(envelope, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path, *, kind: str) -> Any:
    """Returns the content of a JSON artefact.

    Raises:
        ArtefactError: missing, not JSON, of another kind, or edited since it was written.
    """
    path = Path(path)
    try:
        envelope = _opened(path, path.read_text(encoding="utf-8"), kind=kind, needs=("content", "digest"))
    except FileNotFoundError:
        raise ArtefactError(path, "missing", remedy=rebuild_command(path)) from None
    except UnicodeDecodeError:
        raise ArtefactError(path, f"not a {kind} file", remedy=rebuild_command(path)) from None
    if _digest_json(envelope["content"]) != envelope["digest"]:
        raise ArtefactError(path, "changed since it was written", remedy=rebuild_command(path))
    return envelope["content"]


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]], *, kind: str, provenance: Mapping[str, Any]) -> int:
    """Writes one JSON object a line and the sidecar; returns the number of rows."""
    num_rows = 0
    with atomic_path(path) as temporary:
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                num_rows += 1
        envelope = {"kind": kind, "digest": sha256_of(temporary), "provenance": provenance}
    write_text(sidecar_of(path), json.dumps(envelope, indent=1, ensure_ascii=False) + "\n")
    return num_rows


def read_jsonl(path: Path, *, kind: str) -> list[dict[str, Any]]:
    """Returns the rows of a JSON-lines artefact.

    Raises:
        ArtefactError: missing, without its sidecar, of another kind, truncated or edited.
    """
    path = Path(path)
    try:
        sidecar = sidecar_of(path).read_text(encoding="utf-8", errors="replace")
        digest = sha256_of(path)
    except FileNotFoundError as error:
        raise ArtefactError(error.filename, "missing", remedy=rebuild_command(path)) from None
    if digest != _opened(path, sidecar, kind=kind, needs=("digest",))["digest"]:
        raise ArtefactError(path, "changed since it was written", remedy=rebuild_command(path))
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _digest_json(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _opened(path: Path, text: str, *, kind: str, needs: Iterable[str]) -> dict[str, Any]:
    """Returns the envelope that `text` holds, of this kind and with these keys."""
    try:
        envelope = json.loads(text)
    except ValueError:
        envelope = None
    if not isinstance(envelope, dict) or not envelope.keys() >= {"kind", *needs}:
        raise ArtefactError(path, "not written by taps", expected=f"a {kind} file", remedy=rebuild_command(path))
    if envelope["kind"] != kind:
        raise ArtefactError(
            path, "another kind of file", expected=kind, found=envelope["kind"], remedy=rebuild_command(path)
        )
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
    }
    envelope["header_digest"] = _digest_json([header, envelope["meta"]])
    header["__metadata__"] = {"taps": json.dumps(envelope, ensure_ascii=False)}
    encoded = json.dumps(header, ensure_ascii=False).encode()
    encoded += b" " * (-len(encoded) % 8)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        file.write(struct.pack("<Q", len(encoded)))
        file.write(encoded)
        file.write(data)


def read_tensors(
    path: Path, *, kind: str, names: Iterable[str] | None = None, framework: str = "pt", verify: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns (tensors, meta) of a tensor artefact.

    Args:
        names: Tensors wanted; all by default.
        framework: `pt` for torch tensors, `np` for numpy arrays (numpy has no bfloat16: leave such tensors out).
        verify: Whether to hash the data region; switch off only for a file verified before in the same process.

    Raises:
        ArtefactError: missing, truncated, edited, of another kind, or without a wanted tensor.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    envelope = read_envelope(path, kind=kind)
    header, start = read_header(path)
    if verify and sha256_of(path, start=start) != envelope["digest"]:
        raise ArtefactError(path, "changed or truncated since it was written", remedy=rebuild_command(path))
    wanted = sorted(set(header) - {"__metadata__"}) if names is None else list(names)
    if missing := [name for name in wanted if name not in header]:
        raise ArtefactError(path, f"lacks the tensors {', '.join(missing)}", remedy=rebuild_command(path))
    try:
        with safe_open(path, framework=framework) as file:
            return {name: file.get_tensor(name) for name in wanted}, envelope["meta"]
    except (SafetensorError, OSError) as error:
        raise ArtefactError(path, f"cannot be read ({error})", remedy=rebuild_command(path)) from None


def read_envelope(path: Path, *, kind: str) -> dict[str, Any]:
    """Returns kind, digest, provenance and meta of a tensor artefact without reading its data.

    Raises:
        ArtefactError: missing, truncated header, foreign, or of another kind.
    """
    path = Path(path)
    header = read_header(path)[0]
    text = header.pop("__metadata__", {}).get("taps", "")
    envelope = _opened(path, text, kind=kind, needs=("digest", "meta"))
    expected = _digest_json([header, envelope["meta"]])
    if envelope.get("header_digest", expected) != expected:  # the first files had none
        raise ArtefactError(path, "changed since it was written", remedy=rebuild_command(path))
    return envelope


def _serialise(tensors: Mapping[str, Any]) -> bytes:
    if any(type(value).__module__.startswith("torch") for value in tensors.values()):
        from safetensors.torch import save

        return save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
    import numpy as np
    from safetensors.numpy import save as save_numpy

    return save_numpy({name: np.ascontiguousarray(value) for name, value in tensors.items()})
