"""Measures how fast this machine drafts, replays and decodes live, on a finished study's own models and texts.

    python -m taps.decoding_speed --results results/laptop --output reports/laptop/decoding_speed.json

Drafting: the positions of one benchmark, trees of the study's depth, top-k and main budget, the second of two passes.
Replay: every replay of the study again, files read and written, one after the other. Live: two prompts under every
strategy that is named, with the share of the time that is spent outside the two models' forward passes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taps.plumbing.artefacts import read_envelope, write_json
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.progress import progress
from taps.plumbing.provenance import provenance


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.decoding_speed", __doc__)
    parser.add_argument("--results", type=Path, required=True, help="results folder of a finished study")
    parser.add_argument("--run", default="eagle2/seed0", help="method and training seed (default: %(default)s)")
    parser.add_argument("--drafters", nargs="+", default=["math", "chat"], help="to combine (default: math chat)")
    parser.add_argument("--benchmark", default="gsm8k", help="texts to work on (default: %(default)s)")
    parser.add_argument(
        "--strategies", nargs="+", default=["routed_confidence_step", "merged_concat", "merged_adaptive"],
        help="decoded live, beside the first drafter alone (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--num-prompts", type="number", default=2, help="decoded live (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="torch device (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="JSON to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    from taps.analysis.results import find_replays

    replays = find_replays([args.results / "replays"])
    num_draft_tokens = replays[0].meta["num_draft_tokens"]
    measures = (
        lambda: [measure_bank(args, num_draft_tokens)],
        lambda: [measure_replays(args, replays)],
        lambda: measure_live(args, num_draft_tokens),
    )
    lines = [line for measure in progress(measures, what="measuring", unit="part") for line in measure()]
    made_from = provenance(stage="taps.decoding_speed", device=args.device)
    write_json(args.output, lines, kind="decoding_speed", provenance=made_from)
    print(table(lines))


def bank_path(args: argparse.Namespace, name: str, *, run: str, benchmark: str, when: str = "t0_s0") -> Path:
    """Returns where the study has a drafter's bank."""
    return args.results / "banks" / run / name / benchmark / f"{when}.safetensors"


def measure_bank(args: argparse.Namespace, num_nodes: int) -> dict[str, Any]:
    """Returns the positions per second of drafting the benchmark's bank anew."""
    import torch

    from taps.decoding.banks import bank_of_trace, read_trace
    from taps.decoding.drafting import DraftOptions
    from taps.model.checkpoint import load_drafter
    from taps.model.family import features_read_by
    from taps.model.target_head import load_target_head

    name = args.drafters[0]
    made = read_envelope(bank_path(args, name, run=args.run, benchmark=args.benchmark), kind="bank")["meta"]
    vocabulary = args.results / "draft_vocab.safetensors" if made["draft_vocab_size"] else None
    head = load_target_head(args.results / "target", draft_vocab=vocabulary, device=args.device)
    model = load_drafter(
        args.results / "drafters" / args.run / name, target_config=head.config, dtype=torch.float32,
        device=args.device,
    )  # fmt: skip
    path = args.results / "traces" / args.benchmark / "t0_s0.safetensors"
    trace = read_trace(path, reads=features_read_by(model.config))
    options = DraftOptions(depth=made["depth"], top_k=made["top_k"], num_nodes=num_nodes)
    for _ in range(2):  # the first pass warms up
        start = time.perf_counter()
        trees, _ = bank_of_trace(model, head, trace, options, show_progress=False)
        seconds = time.perf_counter() - start
    what = f"drafting, {num_nodes} nodes, depth {options.depth}, top-k {options.top_k}, {len(head.head)} tokens"
    return {"what": what, "value": len(trees) / seconds, "unit": "positions/s"}


def measure_replays(args: argparse.Namespace, replays: Sequence[Any]) -> dict[str, Any]:
    """Returns the seconds that all replays of the study take together, files read and written."""
    from taps.decoding.recording import load_recording
    from taps.decoding.replaying import Labels, replay, write_replay
    from taps.decoding.variants import parse_variants

    num_cycles, seconds = 0, 0.0
    with tempfile.TemporaryDirectory(prefix="taps-speed-") as scratch:
        for file in replays:
            rows = rows_of(file.path)
            num_cycles += sum(row.pop("num_cycles") for row in rows)
            when = f"t{file.temperature:g}_s{file.seed}"
            drafters = sorted({name for row in rows for name in row["drafters"]})
            banks = {
                name: bank_path(args, name, run=file.run, benchmark=file.benchmark, when=when) for name in drafters
            }
            settings = {name: file.meta[name] for name in ("num_draft_tokens", "decay", "prior")}
            start = time.perf_counter()
            recording = load_recording(args.results / "traces" / file.benchmark / f"{when}.safetensors", banks)
            variants = parse_variants(json.dumps(rows), banks, settings["num_draft_tokens"])
            found = replay(recording, variants, factors=factors(args, file.run), **settings)
            write_replay(
                found,
                Labels(method=file.method, benchmark=file.benchmark, training_seed=file.training_seed),
                settings=settings,
                provenance={},
                cycles=Path(scratch) / "replay.parquet",
                nodes=Path(scratch) / "replay.nodes.parquet",
            )
            seconds += time.perf_counter() - start
    return {"what": f"replay of {len(replays)} conditions, {num_cycles} cycles", "value": seconds, "unit": "s"}


def measure_live(args: argparse.Namespace, num_draft_tokens: int) -> list[dict[str, Any]]:
    """Returns tokens per second and the share of time outside the models, per strategy."""
    from taps.decoding.comparison import read_texts
    from taps.decoding.live_checking import check_live
    from taps.decoding.live_models import load_models
    from taps.decoding.recording import load_recording
    from taps.decoding.variants import parse_variants

    trace = args.results / "traces" / args.benchmark / "t0_s0.safetensors"
    banks = {name: bank_path(args, name, run=args.run, benchmark=args.benchmark) for name in args.drafters}
    recording = load_recording(trace, banks)
    rows = [{"strategy": "single", "drafters": args.drafters[:1]}]
    rows += [{"strategy": name, "drafters": args.drafters} for name in args.strategies]
    variants = parse_variants(json.dumps(rows), banks, num_draft_tokens)
    vocabulary = args.results / "draft_vocab.safetensors"
    target, drafters = load_models(
        argparse.Namespace(
            target=args.results / "target",
            drafter=[(name, args.results / "drafters" / args.run / name) for name in args.drafters],
            draft_vocab=vocabulary if recording.drafting["draft_vocab_size"] else None,
            depth=recording.drafting["depth"],
            top_k=recording.drafting["top_k"],
            dtype="float32",
            device=args.device,
            trust_remote_code=False,
        )
    )
    texts = read_texts(trace, args.num_prompts)
    found = check_live(target, drafters, recording, variants, texts, factors=factors(args, args.run))
    return [
        line
        for row in found["rows"]
        for line in (
            {"what": f"live {row['strategy']} {row['drafters']}", "value": row["tokens_per_s"], "unit": "tokens/s"},
            {"what": "of it outside the models", "value": 100 * row["outside_share"], "unit": "%"},
        )
    ]


def rows_of(replay: Path) -> list[dict[str, Any]]:
    """Returns what a replay file holds, as `taps.replay --strategies` takes it, with the number of cycles."""
    import pandas as pd

    keys = ["strategy", "drafters", "num_draft_tokens"]
    held: dict[Any, int] = pd.read_parquet(replay, columns=keys).value_counts(sort=False).to_dict()
    if not held:
        raise TapsError(replay, "holds no cycles")
    return [
        {"strategy": strategy, "drafters": drafters.split("+"), "num_draft_tokens": budget, "num_cycles": count}
        for (strategy, drafters, budget), count in held.items()
        if count
    ]


def factors(args: argparse.Namespace, run: str) -> dict[str, float]:
    """Returns drafter -> inverse temperature of a method and training seed, as far as the study has fitted them."""
    from taps.decoding.calibration import read_factors

    path = args.results / "calibration" / f"{run}.json"
    return read_factors(path, {}) if path.exists() else {}


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Returns a Markdown table."""
    rows = [f"| {line['what']} | {line['value']:,.3g} {line['unit']} |" for line in lines]
    return "\n".join(["| | |", "|---|---:|", *rows])


if __name__ == "__main__":
    run(main)
