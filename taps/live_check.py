"""Checks live decoding against the recording: the same text, the same cycles, and the predicted speed.

    python -m taps.live_check --target results/laptop/target --trace results/laptop/traces/gsm8k/t0_s0.safetensors \
        --drafter math=results/laptop/drafters/eagle2/seed0/math \
        --drafter chat=results/laptop/drafters/eagle2/seed0/chat \
        --bank math=results/laptop/banks/eagle2/seed0/math/gsm8k/t0_s0.safetensors \
        --bank chat=results/laptop/banks/eagle2/seed0/chat/gsm8k/t0_s0.safetensors \
        --draft-vocab results/laptop/draft_vocab.safetensors --num-prompts 4 --num-draft-tokens 40 \
        --strategies '[{"strategy": "single", "drafters": ["math"]},
                       {"strategy": "merged_adaptive", "drafters": ["math", "chat"]}]' \
        --output results/laptop/live/eagle2/gsm8k.json

Every strategy decodes the first prompts of the trace. Its text is compared with the recorded one token by token, its
cycles with those of the replay (root, accepted, emitted, drafter), up to the first different token if there is one. A
forward over a tree rounds otherwise than one over a batch of texts, so a near-tie may go either way: not seen in
float32 at temperature 0; at temperature > 0 when a draw falls among tokens whose probability is no larger than the
rounding; in bfloat16 now and then. The law of the text is the target's all the same; the rate is reported. Strategies
that need the recorded future have no live form and are listed as such.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taps.decoding.calibration import read_factors
from taps.decoding.comparison import read_texts
from taps.decoding.cost_model import CostModel
from taps.decoding.live_models import add_model_flags, load_models, model_inputs
from taps.decoding.recording import load_recording
from taps.decoding.router import read_router
from taps.decoding.tuning import read_tuned, with_tuned
from taps.decoding.variants import HELP, check_variants, parse_variants
from taps.plumbing.artefacts import read_json, write_json
from taps.plumbing.cli import NAMED_PATHS, by_name, run, stage_parser
from taps.plumbing.lineage import check_made_from, common_labels, labels_of
from taps.plumbing.provenance import digests_of, provenance


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.live_check", __doc__)
    add_model_flags(parser, with_trees=False)
    parser.add_argument("--trace", type=Path, required=True, help="recorded text")
    parser.add_argument(
        "--bank", **NAMED_PATHS, required=True, metavar="DRAFTER=PATH", help="draft bank along it; once per --drafter"
    )
    parser.add_argument("--strategies", required=True, help=HELP)
    parser.add_argument("--calibration", type=Path, help="inverse temperatures for the _calibrated strategies")
    parser.add_argument(
        "--num-prompts", type="number", default=4, help="first prompts, with all turns (default: %(default)s)"
    )
    parser.add_argument("--cost", type=Path, help="times of taps.cost; adds the predicted speed and _costed strategies")
    parser.add_argument("--router", type=Path, help="weights of taps.fit_router, for routed_prompt")
    parser.add_argument("--tuned", type=Path, help="choices of taps.tune; adds the tuned tree of each of its rows")
    parser.add_argument("--output", type=Path, required=True, help="report to write (.json)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    banks, folders = by_name(args.bank, "--bank"), by_name(args.drafter, "--drafter")
    inputs = model_inputs(args) | {"trace": args.trace, **{f"bank.{name}": path for name, path in banks.items()}}
    inputs |= {name: getattr(args, name) for name in ("calibration", "cost", "router", "tuned") if getattr(args, name)}
    digests = digests_of(inputs)
    check_made_from(args.trace, {"target": args.target}, kind="trace")
    for name, path in banks.items():
        check_made_from(path, {"drafter": folders.get(name), "draft_vocab": args.draft_vocab}, kind="bank")
    at_hand = {name: digests[f"drafter.{name}"] for name in folders}
    variants = parse_variants(args.strategies, banks, args.num_draft_tokens)
    if args.tuned:
        variants = with_tuned(variants, read_tuned(args.tuned, at_hand))
    recording = load_recording(args.trace, banks, with_prompts=any(v.strategy.uses_prompt for v in variants))
    factors = read_factors(args.calibration, at_hand) if args.calibration else {}
    if args.cost:
        check_made_from(args.cost, {"target": args.target}, kind="cost")
    cost = CostModel.from_json(read_json(args.cost, kind="cost")) if args.cost else None
    router = read_router(args.router, at_hand) if args.router else None
    drafting = recording.drafting
    check_variants(
        variants, num_held=drafting["num_nodes"], factors=factors, depth=drafting["depth"], cost=cost, router=router
    )
    texts = read_texts(args.trace, args.num_prompts)

    from taps.decoding.live_checking import check_drafters, check_live

    args.depth, args.top_k = recording.drafting["depth"], recording.drafting["top_k"]
    target, drafters = load_models(args)
    check_drafters(recording, drafters, draft_vocab=args.draft_vocab)
    content = {
        "sampling": recording.trace_meta["sampling"],
        "seed": recording.trace_meta["seed"],
        "trace_dtype": recording.trace_meta["dtype"],
        "dtype": args.dtype,
        "device": args.device,
        "num_prompts": len({text.id for text in texts}),
        **check_live(target, drafters, recording, variants, texts, factors=factors, cost=cost, router=router),
    }
    labels = labels_of(args.trace, "benchmark", kind="trace")
    labels |= common_labels([(path, "bank") for path in banks.values()], "method", "training_seed")
    made_from = provenance(stage="taps.live_check", inputs=digests, device=args.device, **labels)
    write_json(args.output, content, kind="live_check", provenance=made_from)
    print(f"{args.output}: {summary(content)}")


def summary(content: dict[str, Any]) -> str:
    """Returns one line of totals."""
    rows = content["rows"]
    num_texts, num_equal = (sum(row[name] for row in rows) for name in ("num_texts", "num_equal_texts"))
    compared, different = (sum(row[name] for row in rows) for name in ("num_compared_cycles", "num_different_cycles"))
    outside = max((row["outside_share"] for row in rows), default=0.0)
    return (
        f"{num_equal} of {num_texts} texts as recorded, {compared - different} of {compared} cycles as replayed, "
        f"{len(rows)} strategies, at most {outside:.0%} of the time outside the models"
    )


if __name__ == "__main__":
    run(main)
