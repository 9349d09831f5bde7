"""Where an artefact came from and what it holds: versions, git state, digests, the command that rebuilds it.

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
import struct
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import taps
from taps.plumbing.errors import ArtefactError

_VERSIONED = ("numpy", "torch", "transformers", "deepspeed", "datasets", "pandas", "safetensors", "reasoning_gym")
_STANDS_FOR_FOLDER = ("manifest.json", "provenance.json", "config.json")  # folders that are made as a whole hold one


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
        if sidecar_of(path).exists():
            return str(json.loads(sidecar_of(path).read_text())["digest"])
        raise ArtefactError(path, "not a folder of ours", remedy=rebuild_command(path))
    if not path.exists():
        raise ArtefactError(path, "missing", remedy=rebuild_command(path))
    if path.suffix == ".safetensors":
        with contextlib.suppress(ArtefactError):
            envelope = read_header(path)[0].get("__metadata__", {}).get("taps")
            if envelope:
                return str(json.loads(envelope)["digest"])
    sidecar = sidecar_of(path)
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


def sidecar_of(path: Path) -> Path:
    """Returns where a file that cannot hold its envelope keeps it."""
    return Path(path).with_name(Path(path).name + ".provenance.json")


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Returns a safetensors header and the offset of its data region.

    Raises:
        ArtefactError: missing, or not a complete safetensors file.
    """
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
