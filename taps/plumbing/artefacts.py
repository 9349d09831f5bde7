"""Files that stages hand to each other: written atomically, stamped with provenance, verified when read.

Three shapes of artefact share one envelope (`kind`, `digest`, `provenance`):
- tensors: one safetensors file; the envelope sits in the header's metadata, the digest covers the data region, and a
  second one the rest of the header;
- rows: JSON lines; the envelope is the sidecar `<file>.provenance.json`, the digest covers the file;
- JSON: the envelope wraps `content`, the digest covers its canonical dump.

Provenance holds no time stamp and no path outside the run, so equal inputs give byte-equal artefacts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shlex
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import taps
from taps.plumbing.errors import ArtefactError

_VERSIONED = ("numpy", "torch", "transformers", "deepspeed", "datasets", "pandas", "safetensors", "reasoning_gym")
_STANDS_FOR_FOLDER = ("manifest.json", "provenance.json", "config.json")  # folders that are made as a whole hold one


# --- provenance ------------------------------------------------------------------------------------------------------


def provenance(*, stage: str, inputs: Mapping[str, Path] | None = None, **facts: Any) -> dict[str, Any]:
    """Returns who made an artefact: versions, git state, the digests of its inputs, and `facts` (seed, device ...).

    Args:
        stage: Module that writes, e.g. `taps.trace`.
        inputs: Name -> path of each artefact or plain file read; only their digests are kept.
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
        "inputs": {name: digest_of(path) for name, path in sorted((inputs or {}).items())},
        **facts,
    }


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
    """Returns an artefact's recorded digest without reading its data; hashes files that carry none.

    A folder stands for its `manifest.json` (feature stores), `config.json` (model folders) or sidecar (fetched assets).
    """
    path = Path(path)
    if path.is_dir():
        for name in _STANDS_FOR_FOLDER:
            if (path / name).exists():
                return digest_of(path / name)
        if _sidecar(path).exists():
            return str(json.loads(_sidecar(path).read_text())["digest"])
        raise ArtefactError(path, "not a folder of ours", remedy=rebuild_command(path))
    if not path.exists():
        raise ArtefactError(path, "missing", remedy=rebuild_command(path))
    if path.suffix == ".safetensors":
        with contextlib.suppress(ArtefactError):
            envelope = _read_header(path)[0].get("__metadata__", {}).get("taps")
            if envelope:
                return str(json.loads(envelope)["digest"])
    sidecar = _sidecar(path)
    if sidecar.exists():
        return str(json.loads(sidecar.read_text())["digest"])
    if path.suffix == ".json" and _starts_like_ours(path):
        with contextlib.suppress(ValueError, KeyError):
            return str(json.loads(path.read_text(encoding="utf-8"))["digest"])
    return sha256_of(path)


def _starts_like_ours(path: Path) -> bool:
    """Returns whether a JSON file opens with our envelope; foreign ones may be gigabytes, or broken."""
    with open(path, "rb") as file:
        return re.match(rb'\{\s*"kind"', file.read(32)) is not None


def sha256_of(path: Path, *, start: int = 0) -> str:
    """Returns the hex sha256 of a file from byte `start` on."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        file.seek(start)
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def rebuild_command(path: Path) -> str:
    """Returns the remedy that error messages name for a broken artefact; a file of a folder means the folder.

    The workflow says in TAPS_SNAKEMAKE_OPTIONS by which options it was told its study, quoted for a shell.
    """
    path = Path(path)
    if any((path.parent / name).exists() for name in _STANDS_FOR_FOLDER) or path.name in _STANDS_FOR_FOLDER:
        path = path.parent
    options = shlex.split(os.environ.get("TAPS_SNAKEMAKE_OPTIONS", ""))
    return f"rebuild it with: {shlex.join(['snakemake', '--cores', '1', *options, '--force', str(path)])}"


# --- atomic files ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; moves it there, synced, when the block ends without an error.

    Two writers of one path do not meet: the temporary name holds host and pid. Leftovers of dead writers are removed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    temporary = path.parent / f".{path.name}.{socket.gethostname()}.{os.getpid()}.tmp"
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_leftovers(path: Path) -> None:
    host = socket.gethostname()
    for leftover in path.parent.glob(f".{path.name}.{host}.*.tmp"):
        pid = leftover.name.split(".")[-2]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            leftover.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


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
    write_text(_sidecar(path), json.dumps(envelope, indent=1, ensure_ascii=False) + "\n")
    return num_rows


def read_jsonl(path: Path, *, kind: str) -> list[dict[str, Any]]:
    """Returns the rows of a JSON-lines artefact.

    Raises:
        ArtefactError: missing, without its sidecar, of another kind, truncated or edited.
    """
    path = Path(path)
    try:
        sidecar = _sidecar(path).read_text(encoding="utf-8", errors="replace")
        digest = sha256_of(path)
    except FileNotFoundError as error:
        raise ArtefactError(error.filename, "missing", remedy=rebuild_command(path)) from None
    if digest != _opened(path, sidecar, kind=kind, needs=("digest",))["digest"]:
        raise ArtefactError(path, "changed since it was written", remedy=rebuild_command(path))
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _sidecar(path: Path) -> Path:
    return Path(path).with_name(Path(path).name + ".provenance.json")


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
    header, start = _read_header(path)
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
    header = _read_header(path)[0]
    text = header.pop("__metadata__", {}).get("taps", "")
    envelope = _opened(path, text, kind=kind, needs=("digest", "meta"))
    expected = _digest_json([header, envelope["meta"]])
    if envelope.get("header_digest", expected) != expected:  # the first files had none
        raise ArtefactError(path, "changed since it was written", remedy=rebuild_command(path))
    return envelope


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Returns a safetensors header and the offset of its data region."""
    try:
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            encoded = file.read(length) if length < 1 << 30 else b""
        header = json.loads(encoded)
    except FileNotFoundError:
        raise ArtefactError(path, "missing", remedy=rebuild_command(path)) from None
    except (ValueError, struct.error):
        header = None
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__", {}), dict):
        raise ArtefactError(path, "not a complete safetensors file", remedy=rebuild_command(path))
    return header, 8 + length


def _serialise(tensors: Mapping[str, Any]) -> bytes:
    if any(type(value).__module__.startswith("torch") for value in tensors.values()):
        from safetensors.torch import save

        return save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
    import numpy as np
    from safetensors.numpy import save as save_numpy

    return save_numpy({name: np.ascontiguousarray(value) for name, value in tensors.items()})
