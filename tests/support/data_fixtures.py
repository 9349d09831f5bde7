"""Conversations in other people's spelling, and the stages `corpus` and `prompts` run on files of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from taps import corpus, prompts
from taps.plumbing.artefacts import read_json, read_jsonl


def human(text: Any) -> dict[str, Any]:
    return {"from": "human", "value": text}


def gpt(text: Any) -> dict[str, Any]:
    return {"from": "gpt", "value": text}


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def chat(*turns: Any, **more: Any) -> dict[str, Any]:
    return {"id": "x", "conversations": list(turns), **more}


GOOD = [
    {"id": "before", "conversations": [human("Good morning?"), gpt("Good morning.")]},
    {"id": "after", "conversations": [human("Good night?"), gpt("Good night.")]},
]


def run_corpus(path: Path, *flags: str, reader: str = "sharegpt") -> tuple[list[dict], dict]:
    """Returns (rows, audit content) of the stage run on a file."""
    output, audit = path.with_suffix(".out.jsonl"), path.with_suffix(".audit.json")
    corpus.main(["--reader", reader, "--input", str(path), "--output", str(output), "--audit", str(audit), *flags])
    content = read_json(audit, kind="audit")
    rows = read_jsonl(output, kind="corpus")
    assert content["read"] == content["kept"] + sum(entry["count"] for entry in content["dropped"].values())
    assert content["kept"] == len(rows) == len({row["id"] for row in rows})
    return rows, content


def run_prompts(reader: str, *inputs: Path, output: Path, flags: tuple[str, ...] = ()) -> tuple[list[dict], dict]:
    """Returns (rows, audit content) of the stage run on files."""
    audit = output.with_suffix(".audit.json")
    sources = [part for path in inputs for part in ("--input", str(path))]
    prompts.main(["--reader", reader, *sources, *flags, "--output", str(output), "--audit", str(audit)])
    content = read_json(audit, kind="audit")
    assert content["read"] == content["kept"] + sum(entry["count"] for entry in content["dropped"].values())
    return read_jsonl(output, kind="prompts"), content


def write_jsonl_file(path: Path, records: list[Any]) -> Path:
    """Returns the path after writing plain JSON lines there."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def dropped(audit: dict[str, Any]) -> dict[str, int]:
    """Returns reason -> count of an audit."""
    return {reason: entry["count"] for reason, entry in audit["dropped"].items()}
