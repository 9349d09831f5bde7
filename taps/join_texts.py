"""Joins the parts of a trace or of a draft bank, computed by several jobs, into what one job would have written.

    python -m taps.join_texts --kind trace --shard results/paper/trace_shards/gsm8k/t0_s0/0.safetensors \\
        --shard results/paper/trace_shards/gsm8k/t0_s0/1.safetensors \\
        --output results/paper/traces/gsm8k/t0_s0.safetensors
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taps.plumbing.artefacts import read_tensors, write_tensors
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import ArtefactError
from taps.plumbing.lineage import check_equal
from taps.plumbing.provenance import provenance, provenance_of
from taps.plumbing.remedies import rebuild_command

PER_TEXT = {"trace": ("ids", "turns", "categories", "finish", "skipped"), "bank": ()}
"""Facts that a file lists per text, and that are joined as lists; all others must agree."""


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.join_texts", __doc__)
    parser.add_argument("--kind", choices=sorted(PER_TEXT), required=True, help="what is joined")
    parser.add_argument("--shard", type=Path, action="append", required=True, help="one part; repeat, in order")
    parser.add_argument("--output", type=Path, required=True, help="trace or bank to write (.safetensors)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    made = check_parts(args.kind, args.shard)
    tensors, meta = join(args.kind, args.shard)
    labels = {name: made[name] for name in ("benchmark", "method", "training_seed", "seed", "device") if name in made}
    made_from = provenance(stage="taps.join_texts", inputs=made.get("inputs"), **labels)
    write_tensors(args.output, tensors, kind=args.kind, provenance=made_from, meta=meta)
    print(f"{args.output}: {len(tensors['offsets']) - 1} texts from {len(args.shard)} parts")


def check_parts(kind: str, paths: Sequence[Path]) -> dict[str, Any]:
    """Returns the provenance that all parts share, of the first of them.

    Raises:
        ArtefactError: parts made from different inputs, or not all parts of one run with --num-shards, in order.
    """
    made = [provenance_of(path, kind=kind) for path in paths]
    for path, other in zip(paths, made, strict=True):
        for name, digest in other.get("inputs", {}).items():
            check_equal(path, name, digest, made[0]["inputs"].get(name), wanted_by=paths[0], kind=kind)
    found = [item["part"] for item in made if "part" in item]
    if found and found != (expected := [[number, len(paths)] for number in range(len(paths))]):
        raise ArtefactError("--shard", "not the parts of one run, in order", expected=expected, found=found)
    return made[0]


def join(kind: str, paths: Sequence[Path]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns (tensors, facts) of all parts, one after the other.

    Raises:
        ArtefactError: the parts are not of one recording: other settings, or a text that comes twice.
    """
    import torch

    parts = [read_tensors(path, kind=kind) for path in paths]
    tensors = {name: torch.cat([part[name] for part, _ in parts]) for name in parts[0][0] if name != "offsets"}
    offsets, end = [torch.zeros(1, dtype=torch.int64)], 0
    for part, _ in parts:
        offsets.append(part["offsets"][1:] + end)
        end += int(part["offsets"][-1])
    facts = {name: value for name, value in parts[0][1].items() if name not in PER_TEXT[kind]}
    lists: dict[str, list[Any]] = {name: [] for name in PER_TEXT[kind]}
    for path, (_, meta) in zip(paths, parts, strict=True):
        own = {name: value for name, value in meta.items() if name not in lists}
        if own != facts:
            raise ArtefactError(
                path, f"a part of another {kind}", expected=f"that of {paths[0]}", remedy=rebuild_command(path, kind)
            )
        for name, joined in lists.items():
            joined += meta[name]
    texts = list(zip(lists.get("ids", ()), lists.get("turns", ()), strict=True))
    if len(set(texts)) < len(texts):
        raise ArtefactError(paths[-1], "a text comes twice", remedy=rebuild_command(paths[-1], kind))
    return {**tensors, "offsets": torch.cat(offsets)}, {**facts, **lists}


if __name__ == "__main__":
    run(main)
