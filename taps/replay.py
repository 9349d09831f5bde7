"""Replays decoding strategies over recorded text and draft banks: every cycle of every answer, no model in memory.

    python -m taps.replay --trace results/laptop/traces/gsm8k/t0_s0.safetensors --method eagle2 --benchmark gsm8k \
        --bank math=results/laptop/banks/eagle2/seed0/math/gsm8k/t0_s0.safetensors \
        --bank chat=results/laptop/banks/eagle2/seed0/chat/gsm8k/t0_s0.safetensors --num-draft-tokens 40 \
        --strategies '[{"strategy": "single", "drafters": ["math"], "num_draft_tokens": [20, 40]},
                       {"strategy": "merged_matched", "drafters": ["math", "chat"]}]' \
        --output results/laptop/replays/eagle2/seed0/gsm8k/t0_s0.parquet

Two tables. The output has one row per cycle. Beside it, `.nodes.parquet` has the entropy and confidence of the nodes
that `single` verified at the default budget, one row per cycle, depth and kind of node (`taps.decoding.node_groups`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from taps.decoding.calibration import read_factors
from taps.decoding.cost_model import CostModel
from taps.decoding.recording import load_recording
from taps.decoding.replaying import Labels, replay, write_replay
from taps.decoding.router import read_router
from taps.decoding.strategy import Options
from taps.decoding.variants import HELP, check_variants, parse_variants
from taps.plumbing.artefacts import read_json
from taps.plumbing.cli import NAMED_PATHS, by_name, run, stage_parser
from taps.plumbing.lineage import check_label, common_cause, inputs_of, labels_of
from taps.plumbing.provenance import provenance


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.replay", __doc__)
    parser.add_argument("--trace", type=Path, required=True, help="recorded text")
    parser.add_argument(
        "--bank", **NAMED_PATHS, required=True, metavar="DRAFTER=PATH", help="draft bank along it; once per drafter"
    )
    parser.add_argument("--strategies", required=True, help=HELP)
    parser.add_argument("--num-draft-tokens", type="nodes", required=True, help="default nodes of one drafter's tree")
    parser.add_argument("--method", required=True, help="draft family, a label of the result")
    parser.add_argument("--training-seed", type="seed", default=0, help="of the drafters, a label of the result")
    parser.add_argument("--benchmark", required=True, help="a label of the result")
    parser.add_argument("--calibration", type=Path, help="inverse temperatures for the _calibrated strategies")
    parser.add_argument("--cost", type=Path, help="times of taps.cost, for the _costed strategies")
    parser.add_argument("--router", type=Path, help="weights of taps.fit_router, for routed_prompt")
    parser.add_argument(
        "--decay", type="share0", default=Options.decay, help="history left per cycle (default: %(default)s)"
    )
    parser.add_argument(
        "--prior",
        type="weight",
        default=Options.prior,
        help="accepted tokens credited first (default: %(default)s)",
    )
    parser.add_argument("--output", type=Path, required=True, help="cycles to write (.parquet)")
    parser.add_argument("--nodes", type=Path, help="node statistics (default: <output>.nodes.parquet)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    banks = by_name(args.bank, "--bank")
    variants = parse_variants(args.strategies, banks, args.num_draft_tokens)
    drafters = check_labels(args, banks)
    recording = load_recording(args.trace, banks, with_prompts=any(v.strategy.uses_prompt for v in variants))
    target = common_cause([(args.trace, "trace"), *([(args.cost, "cost")] if args.cost else [])], "target")
    factors = read_factors(args.calibration, drafters) if args.calibration else {}
    cost = CostModel.from_json(read_json(args.cost, kind="cost")) if args.cost else None
    router = read_router(args.router, drafters) if args.router else None
    drafting = recording.drafting
    check_variants(
        variants, num_held=drafting["num_nodes"], factors=factors, depth=drafting["depth"], cost=cost, router=router
    )
    settings = {name: getattr(args, name) for name in ("num_draft_tokens", "decay", "prior")}
    found = replay(recording, variants, factors=factors, cost=cost, router=router, **settings)
    inputs = {"trace": args.trace, **{f"bank.{name}": path for name, path in banks.items()}}
    inputs |= {name: getattr(args, name) for name in ("calibration", "cost", "router") if getattr(args, name)}
    inputs |= target | {f"drafter.{name}": digest for name, digest in drafters.items() if digest}
    write_replay(
        found,
        Labels(method=args.method, benchmark=args.benchmark, training_seed=args.training_seed),
        settings=settings,
        provenance=provenance(stage="taps.replay", inputs=inputs),
        cycles=args.output,
        nodes=args.nodes or args.output.with_suffix(".nodes.parquet"),
    )
    num_positions = len(recording.text.remaining)
    print(f"{args.output}: {len(variants)} rows, {found.num_cycles} cycles over {num_positions} positions")


def check_labels(args: argparse.Namespace, banks: Mapping[str, Path]) -> dict[str, str | None]:
    """Returns drafter -> digest of the draft model behind its bank, None where the bank names none.

    Raises:
        ArtefactError: trace or banks say that they are of another benchmark or method than the flags do.
    """
    labelled = [(args.trace, "trace", "benchmark")]
    labelled += [(path, "bank", name) for path in banks.values() for name in ("method", "training_seed")]
    for path, kind, name in labelled:
        found = labels_of(path, name, kind=kind).get(name)
        check_label(path, name, found, getattr(args, name), flag=f"--{name.replace('_', '-')}")
    return {name: inputs_of(path, kind="bank").get("drafter") for name, path in banks.items()}


if __name__ == "__main__":
    run(main)
