"""The envelope that every artefact has: its kind, the digest of its content, its causes, and a seal over all of these.

The digest is of the content alone, so equal contents have one digest, whoever made them. The seal covers what the
digest leaves out; a changed byte anywhere breaks one of the two.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from taps.plumbing.errors import ArtefactError
from taps.plumbing.remedies import rebuild_command

_LONGEST_HEADER = 1 << 30  # bytes


def seal(envelope: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the envelope with its seal; `content`, which the digest covers, is left out of it."""
    return {**envelope, "seal": _seal_of(envelope)}


def open_envelope(path: Path, text: str, *, kind: str | None, needs: Iterable[str] = ()) -> dict[str, Any]:
    """Returns the envelope that `text` holds, seal included.

    Args:
        path: The artefact, for messages.
        text: JSON.
        kind: What it must be; None takes any.
        needs: Keys beside kind, digest and provenance.

    Raises:
        ArtefactError: not one of ours, of another kind, or changed since it was written.
    """
    try:
        envelope = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        envelope = None
    if not isinstance(envelope, dict) or not isinstance(envelope.get("kind"), str):
        raise _foreign(path, kind)
    kind = envelope["kind"] if kind is None else kind
    if envelope["kind"] != kind:
        raise ArtefactError(
            path, "another kind of file", expected=kind, found=envelope["kind"], remedy=rebuild_command(path, kind)
        )
    if not envelope.keys() >= {"digest", "provenance", "seal", *needs}:
        raise _foreign(path, kind)
    if envelope["seal"] != _seal_of(envelope):
        raise changed(path, kind)
    return envelope


def changed(path: Path, kind: str | None) -> ArtefactError:
    """Returns the error for an artefact that is not what was written."""
    return ArtefactError(path, "changed or truncated since it was written", remedy=rebuild_command(path, kind))


def missing(path: Path, kind: str | None, *, file: object = None) -> ArtefactError:
    """Returns the error for an artefact of which a file is not there: itself, or `file`."""
    return ArtefactError(file or path, "missing", remedy=rebuild_command(path, kind))


def _foreign(path: Path, kind: str | None) -> ArtefactError:
    return ArtefactError(
        path,
        "not written by taps",
        expected=f"an artefact of kind {kind}" if kind else None,
        remedy=rebuild_command(path, kind),
    )


def digest_of_json(content: Any) -> str:
    """Returns the sha256 of the canonical dump of JSON content."""
    dump = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(dump.encode(errors="surrogatepass")).hexdigest()


def _seal_of(envelope: Mapping[str, Any]) -> str:
    return digest_of_json({name: value for name, value in envelope.items() if name not in ("content", "seal")})


def sidecar_of(path: Path) -> Path:
    """Returns where a file that cannot hold its envelope keeps it."""
    return Path(path).with_name(Path(path).name + ".provenance.json")


def read_header(path: Path, kind: str | None = None) -> tuple[dict[str, Any], int]:
    """Returns a safetensors header and the offset of its data region.

    Raises:
        ArtefactError: missing, or not a complete safetensors file.
    """
    try:
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            encoded = file.read(length) if length < _LONGEST_HEADER else b""
        header = json.loads(encoded)
    except FileNotFoundError:
        raise ArtefactError(path, "missing", remedy=rebuild_command(path, kind)) from None
    except (ValueError, struct.error, RecursionError):
        header = None
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__", {}), dict):
        raise ArtefactError(path, "not a complete safetensors file", remedy=rebuild_command(path, kind))
    return header, 8 + length
