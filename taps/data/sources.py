"""What the stages that read other people's data take on their command line: files or a task, and a part of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from taps.data.generated import parse_templates
from taps.data.parts import parse_part
from taps.plumbing.errors import TapsError


def add_source_flags(parser: argparse.ArgumentParser) -> None:
    """Adds --input, --task, --templates and --part; and what is written: --output and --audit."""
    add = parser.add_argument
    files = "JSON, JSON lines, CSV, parquet or arrow, compressed or not, or a folder of these"
    add("--input", type=Path, nargs="+", action="extend", default=[], help=files)
    add("--task", help="generated: name of the generator")
    add(
        "--templates", metavar="NUMBERS", help="generated, gsm_symbolic: templates to use, e.g. 0-49,60; all by default"
    )
    add(
        "--part",
        metavar="START:END",
        help="part of the texts, the same whatever else is there, e.g. 0:0.75; all by default",
    )
    add("--output", type=Path, required=True, help="JSONL to write")
    add("--audit", type=Path, required=True, help="JSON to write: read, kept, dropped by reason")


def settle_source(options: argparse.Namespace) -> dict[str, Any]:
    """Parses --templates and --part in place; returns the facts for provenance, those left out not among them.

    Raises:
        TapsError: one of them does not say what it should, or there is no such input.
    """
    given = {name: getattr(options, name) for name in ("templates", "part") if getattr(options, name) is not None}
    options.templates = parse_templates(options.templates) if options.templates is not None else None
    options.part = parse_part(options.part) if options.part is not None else None
    for path in options.input:
        if not path.exists():
            raise TapsError(path, "no such file or folder", remedy="fetch it with python -m taps.fetch")
    return {"reader": options.reader, "task": options.task, **given}
