"""Chooses, per strategy and drafters, the tree that brings most tokens per second on held-out prompts.

    python -m taps.tune --heldout results/laptop/traces/heldout_math/t0_s0.safetensors \
        --heldout results/laptop/traces/heldout_chat/t0_s0.safetensors \
        --benchmark gsm8k=results/laptop/traces/gsm8k/t0_s0.safetensors \
        --bank results/laptop/banks/eagle2/seed0/math/heldout_math/t0_s0.safetensors ... \
        --cost results/laptop/cost.json --calibration results/laptop/calibration/eagle2/seed0.json \
        --strategies '[{"strategy": "single", "drafters": ["math"]}]' --num-draft-tokens 40 \
        --output results/laptop/tuned/eagle2.json

Every bank names its drafter and its trace. The choice sees held-out prompts alone; what it brings on the benchmarks is
then reported beside the default tree and plain decoding, question by question, for intervals.

Output (kind `tuned`): {"drafting", "plain_s", "rows", "notes"}; `notes` says what could not be tuned, and of a router
that could not be fitted. A row has strategy, drafters, num_draft_tokens of the default tree, `best` {depth,
num_draft_tokens} or null (plain decoding is faster), `shapes` [{depth, num_draft_tokens, tau, tokens_per_s,
inexact_share}] on the held-out prompts, `servers` (settings of SGLang and vLLM), and per benchmark `benchmarks[name]`
with `questions` and, for each of `plain`, `default` and `tuned`, {num_tokens, seconds, num_cycles} per question and
their tokens_per_s, tau.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taps.decoding.calibration import read_factors
from taps.decoding.cost_model import CostModel
from taps.decoding.recording import Recording, drafters_of_banks, load_recording
from taps.decoding.router import read_router
from taps.decoding.tuning import Setting, Value, evaluate, plain_value, server_settings, tune
from taps.decoding.variants import HELP, check_variants, parse_variants
from taps.plumbing.artefacts import read_envelope, read_json, write_json
from taps.plumbing.cli import NAMED_PATHS, run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.lineage import common_cause
from taps.plumbing.progress import progress
from taps.plumbing.provenance import digest_of, provenance


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.tune", __doc__)
    parser.add_argument("--heldout", type=Path, action="append", required=True, help="held-out text; may be repeated")
    parser.add_argument(
        "--benchmark", **NAMED_PATHS, metavar="NAME=TRACE", default=[], help="text to value the choice on"
    )
    parser.add_argument("--bank", type=Path, action="append", required=True, help="draft bank along one of the traces")
    parser.add_argument("--strategies", required=True, help=HELP)
    parser.add_argument("--num-draft-tokens", type="nodes", required=True, help="nodes of the default tree")
    parser.add_argument("--cost", type=Path, required=True, help="times of taps.cost")
    parser.add_argument("--calibration", type=Path, help="inverse temperatures for the _calibrated strategies")
    parser.add_argument("--router", type=Path, help="weights of taps.fit_router, for routed_prompt")
    parser.add_argument("--output", type=Path, required=True, help="choices to write (.json)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    benchmarks = dict(args.benchmark)
    banks = banks_by_trace([*args.heldout, *benchmarks.values()], args.bank)
    names = sorted(set.intersection(*(set(own) for own in banks.values())))
    variants = parse_variants(args.strategies, dict.fromkeys(names), args.num_draft_tokens)
    with_prompts = any(variant.strategy.uses_prompt for variant in variants)
    recordings = {path: load_recording(path, own, with_prompts=with_prompts) for path, own in banks.items()}
    at_hand = {name: found.get(f"drafter.{name}") for found in [drafters_of_banks(args.bank)] for name in names}
    target = common_cause([*((path, "bank") for path in args.bank), (args.cost, "cost")], "target")
    setting = Setting(
        factors=read_factors(args.calibration, at_hand) if args.calibration else {},
        cost=CostModel.from_json(read_json(args.cost, kind="cost")),
        router=read_router(args.router, at_hand) if args.router else None,
    )
    heldout = [recordings[path] for path in args.heldout]
    drafting = heldout[0].drafting
    check_variants(
        variants,
        num_held=drafting["num_nodes"],
        factors=setting.factors,
        depth=drafting["depth"],
        cost=setting.cost,
        router=setting.router,
    )
    rows = []
    for variant in progress(variants, what="tuning", unit="row"):
        best, shapes = tune(variant, heldout, setting)
        rows.append(
            {
                "strategy": variant.strategy.name,
                "drafters": list(variant.drafters),
                "num_draft_tokens": variant.num_draft_tokens,
                "best": best and {"depth": best.depth, "num_draft_tokens": best.num_draft_tokens},
                "shapes": shapes,
                "servers": server_settings(best, drafting["top_k"]),
                "benchmarks": {
                    name: on_benchmark(variant, best, recordings[path], setting) for name, path in benchmarks.items()
                },
            }
        )
    content = {
        "drafting": drafting,
        "plain_s": setting.cost.plain_s,
        "rows": rows,
        "notes": notes_of(rows, args.router),
    }
    inputs: dict[str, Path | str] = {f"heldout.{index}": path for index, path in enumerate(args.heldout)}
    inputs |= target | drafters_of_banks(args.bank)
    inputs |= {f"benchmark.{name}": path for name, path in benchmarks.items()}
    inputs |= {f"bank.{index}": path for index, path in enumerate(args.bank)}
    inputs |= {name: getattr(args, name) for name in ("cost", "calibration", "router") if getattr(args, name)}
    write_json(args.output, content, kind="tuned", provenance=provenance(stage="taps.tune", inputs=inputs))
    for row in rows:
        print(summary(row))
    num_drafting = sum(row["best"] is not None for row in rows)
    print(f"{args.output}: {len(rows)} rows, {num_drafting} with a tree that is faster than plain decoding")


def notes_of(rows: Sequence[Mapping[str, Any]], router: Path | None) -> list[str]:
    """Returns what a reader of the choices must know."""
    notes = [] if rows else ["no strategy had drafters to combine: nothing was tuned"]
    if router is not None and (note := read_json(router, kind="router").get("note")):
        notes.append(note)
    return notes


def banks_by_trace(traces: Sequence[Path], banks: Sequence[Path]) -> dict[Path, dict[str, Path]]:
    """Returns trace -> drafter -> bank.

    Raises:
        TapsError: a bank follows none of the traces, or a trace has no bank.
    """
    paths = {digest_of(trace): trace for trace in traces}
    found: dict[Path, dict[str, Path]] = {trace: {} for trace in traces}
    for path in banks:
        meta = read_envelope(path, kind="bank")["meta"]
        if meta["trace"] not in paths:
            raise TapsError(path, "drafted along none of the traces given", expected=", ".join(map(str, traces)))
        found[paths[meta["trace"]]][meta["drafter"]] = path
    for trace, own in found.items():
        if not own:
            raise TapsError(trace, "no --bank along it", remedy="add one per drafter")
    return found


def on_benchmark(variant: Any, best: Any, recording: Recording, setting: Setting) -> dict[str, Any]:
    """Returns the questions and what plain decoding, the default and the tuned tree bring on each."""
    plain, default = plain_value([recording], setting), evaluate(variant, [recording], setting)
    tuned = plain if best is None else evaluate(best, [recording], setting)
    values: Mapping[str, Value] = {"plain": plain, "default": default, "tuned": tuned}
    return {
        "questions": plain.questions,
        **{
            name: {
                "num_tokens": value.num_tokens.tolist(),
                "seconds": value.seconds.tolist(),
                "num_cycles": value.num_cycles.tolist(),
                "tokens_per_s": value.tokens_per_s,
                "tau": value.tau,
                "inexact_share": value.inexact_share,
            }
            for name, value in values.items()
        },
    }


def summary(row: Mapping[str, Any]) -> str:
    """Returns one line: what to serve and what it brings, over plain decoding."""
    best = row["best"]
    tree = "plain decoding" if best is None else f"depth {best['depth']}, {best['num_draft_tokens']} nodes"
    gains = ", ".join(
        f"{name} {own['tuned']['tokens_per_s'] / own['plain']['tokens_per_s']:.2f}"
        f" (default {own['default']['tokens_per_s'] / own['plain']['tokens_per_s']:.2f})"
        for name, own in row["benchmarks"].items()
    )
    return f"{row['strategy']} of {'+'.join(row['drafters'])}: {tree}" + (f"; of plain speed: {gains}" if gains else "")


if __name__ == "__main__":
    run(main)
