"""What the study's target is, in words: its name, its size, how its weights were read, and what it was made from."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path
from typing import Any

from taps.plumbing.artefacts import read_json_envelope
from taps.plumbing.envelopes import read_header

_GGUF = re.compile(r"(?P<name>.+?)[.-](?P<weights>(?:IQ|Q|F|BF|MXFP|TQ)\d\w*)\.gguf", re.IGNORECASE)
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}


def target_facts(folder: Path) -> dict[str, Any]:
    """Returns `line` (one for the head of a page), and `name`, `source`, `digest` and `versions` of a target.

    Args:
        folder: That `taps.prepare_target` or `taps.tiny_target` wrote.

    Raises:
        ArtefactError: not such a folder.
    """
    envelope = read_json_envelope(folder / "provenance.json", kind="target")
    content, made = envelope["content"], envelope["provenance"]
    headers = [read_header(path)[0] for path in sorted(folder.glob("*.safetensors"))]
    tensors = [entry for header in headers for name, entry in header.items() if name != "__metadata__"]
    size = in_words(sum(prod(entry["shape"]) for entry in tensors))
    held = ", ".join(sorted({_DTYPES.get(entry["dtype"], entry["dtype"]) for entry in tensors}))
    source = content.get("source")
    name, weights = _named(source, held) if source else ("a tiny Llama", f"{held} weights, made for this study")
    return {
        "line": f"{name[0].upper()}{name[1:]}, {size} parameters, {weights}",
        "name": name,
        "source": source and f"{source['name']}, sha256 {source['digest']}",
        "digest": envelope["digest"],
        "git": made["git"],
        "versions": made["versions"],
    }


def _named(source: dict[str, str], held: str) -> tuple[str, str]:
    """Returns the model's name and its weights in words, from the name of the file or folder it came from."""
    found = _GGUF.fullmatch(source["name"])
    if found:
        return found["name"], f"{found['weights'].upper()} weights read as {held}"
    return source["name"].removesuffix(".gguf"), f"{held} weights, not quantised"


def in_words(count: int) -> str:
    """Returns e.g. `135 M`, `8.0 B`, `246 k`: three digits at most."""
    for unit, name in ((10**9, " B"), (10**6, " M"), (10**3, " k")):
        if count >= unit:
            value = count / unit
            return f"{value:.0f}{name}" if value >= 10 else f"{value:.1f}{name}"
    return str(count)
