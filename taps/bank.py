"""Drafts a tree at every position of a recorded text: one bank per drafter and trace.

    python -m taps.bank --target results/laptop/target --drafter results/laptop/drafters/eagle2/seed0/math \
        --trace results/laptop/traces/gsm8k/t0_s0.safetensors --draft-vocab results/laptop/draft_vocab.safetensors \
        --depth 5 --top-k 8 --num-nodes 80 --output results/laptop/banks/eagle2/seed0/math/gsm8k/t0_s0.safetensors

Only the largest tree is kept: its nodes are sorted so that every smaller budget is a prefix.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taps.plumbing.artefacts import write_tensors
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.lineage import check_made_from, labels_of
from taps.plumbing.provenance import digests_of, provenance
from taps.plumbing.shards import add_shard_flags, own_part, part_label


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.bank", __doc__)
    parser.add_argument("--target", type=Path, required=True, help="folder of the target model")
    parser.add_argument("--drafter", type=Path, required=True, help="folder of the draft model")
    parser.add_argument("--trace", type=Path, required=True, help="trace to draft along")
    parser.add_argument("--draft-vocab", type=Path, help="draft over these tokens only")
    parser.add_argument("--depth", type="depth", required=True, help="expansions after the first level")
    parser.add_argument("--top-k", type="number", required=True, help="children per node, and nodes expanded per level")
    parser.add_argument("--num-nodes", type="nodes", required=True, help="nodes kept per tree, root not counted")
    add_shard_flags(parser, of="the texts")
    parser.add_argument("--chunk", type="number", default=64, help="positions drafted together (default: %(default)s)")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="compute dtype")
    parser.add_argument("--device", default="cpu", help="torch device (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="bank to write (.safetensors)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    causes = {"target": args.target}
    for path, kind in ((args.trace, "trace"), (args.drafter, "drafter"), (args.draft_vocab, "draft_vocab")):
        if path is not None:
            check_made_from(path, causes, kind=kind)
    inputs = {"target": args.target, "drafter": args.drafter, "trace": args.trace}
    if args.draft_vocab:
        inputs["draft_vocab"] = args.draft_vocab
    digests = digests_of(inputs)
    labels = labels_of(args.drafter, "method", "training_seed", kind="drafter")
    labels |= labels_of(args.trace, "benchmark", kind="trace")
    import torch

    from taps.decoding.banks import bank_of_trace, read_trace
    from taps.decoding.drafting import DraftOptions
    from taps.model.checkpoint import load_drafter
    from taps.model.family import features_read_by
    from taps.model.target_head import load_target_head

    place = {"dtype": getattr(torch, args.dtype), "device": args.device}
    head = load_target_head(args.target, draft_vocab=args.draft_vocab, **place)
    model = load_drafter(args.drafter, target_config=head.config, **place)
    trace = read_trace(args.trace, reads=features_read_by(model.config))
    options = DraftOptions(depth=args.depth, top_k=args.top_k, num_nodes=args.num_nodes)
    start = time.perf_counter()
    trees, offsets = bank_of_trace(model, head, own_texts(trace, args), options, chunk=args.chunk)
    seconds = time.perf_counter() - start
    meta = {
        "drafter": args.drafter.name,
        "trace": digests["trace"],
        "depth": args.depth,
        "top_k": args.top_k,
        "num_nodes": args.num_nodes,
        "draft_vocab_size": None if head.token_ids is None else len(head.token_ids),
    }
    write_tensors(
        args.output,
        {
            "tokens": trees.tokens,
            "parents": trees.parents,
            "scores": trees.scores,
            "entropies": trees.entropies,
            "offsets": offsets,
        },
        kind="bank",
        provenance=provenance(stage="taps.bank", inputs=digests, device=args.device, **labels, **part_label(args)),
        meta=meta,
    )
    print(f"{args.output}: {len(trees)} positions, {len(trees) / max(seconds, 1e-9):.0f} positions/s")


def own_texts(trace: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Returns the trace with the texts of this job only; their offsets still point into all tokens."""
    lengths = trace["prompt_lengths"]
    own = own_part(range(len(lengths)), args)
    first, end = (own[0], own[-1] + 1) if own else (0, 0)
    return {**trace, "offsets": trace["offsets"][first : end + 1], "prompt_lengths": lengths[first:end]}


if __name__ == "__main__":
    run(main)
