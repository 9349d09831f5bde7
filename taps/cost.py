"""Measures on this machine what a cycle costs: target forwards by tree size, drafting, plain decoding, the overhead.

    python -m taps.cost --target results/laptop/target --drafter math=results/laptop/drafters/eagle2/seed0/math \
        --draft-vocab results/laptop/draft_vocab.safetensors --depth 5 --top-k 8 --num-draft-tokens 40 \
        --output results/laptop/cost.json

All drafters of a study have one shape, so the first one given stands for all. Sizes take turns, so that a busy moment
of the machine falls on all of them; medians are reported, beside the quartiles.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from taps.decoding.live_models import add_model_flags, load_models, model_inputs
from taps.plumbing.artefacts import write_json
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.provenance import provenance


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.cost", __doc__)
    add_model_flags(parser)
    parser.add_argument(
        "--nodes",
        type=int,
        nargs="+",
        default=[0, 5, 10, 20, 40, 60, 80, 119],
        help="tree sizes at which the target is timed (default: %(default)s)",
    )
    parser.add_argument("--prefix-length", type=int, default=192, help="tokens read before (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=9, help="timings per size (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="times to write (.json)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    import torch

    from taps.measuring.costs import NUM_DECODED, decoding_times, draft_times, target_times

    target, drafters = load_models(args)
    drafter = next(iter(drafters.values()))
    longest = max(target.max_length - NUM_DECODED - args.repeats * len(args.nodes) - max(args.nodes), 2)
    prefix = torch.randint(
        target.config["vocab_size"], (min(args.prefix_length, longest),), generator=torch.Generator().manual_seed(0)
    ).tolist()
    draft_nodes = sorted({max(args.num_draft_tokens * share // 4, 1) for share in (1, 2, 4, 8)})
    plain, one, many = decoding_times(target, drafter, prefix, num_draft_tokens=args.num_draft_tokens)
    content = {
        "device": torch.cuda.get_device_name(target.device) if target.device.type == "cuda" else "cpu",
        "num_threads": torch.get_num_threads(),
        "dtype": args.dtype,
        "prefix_length": len(prefix),
        "repeats": args.repeats,
        "depth": args.depth,
        "top_k": args.top_k,
        "target": target_times(target, prefix, sorted({0, *args.nodes}), args.repeats),
        "draft": draft_times(target, drafter, prefix, draft_nodes, args.repeats),
        "plain_s": plain,
        "overhead_one_s": one,
        "overhead_many_s": many,
    }
    made_from = provenance(stage="taps.cost", inputs=model_inputs(args), device=args.device)
    write_json(args.output, content, kind="cost", provenance=made_from)
    for row in content["target"]:
        print(f"target forward of {row['num_tokens']:4d} tokens  {1000 * row['median_s']:8.1f} ms")
    for row in content["draft"]:
        print(f"draft tree of     {row['num_nodes']:4d} nodes   {1000 * row['median_s']:8.1f} ms")
    print(f"plain decoding, per token         {1000 * plain:8.1f} ms")
    print(f"outside the models, per cycle     {1000 * one:8.1f} ms with one drafter, {1000 * many:.1f} ms with two")


if __name__ == "__main__":
    run(main)
