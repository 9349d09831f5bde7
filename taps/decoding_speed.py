"""Measures how fast this machine drafts, replays and decodes live, on a finished study's own models and texts.

    python -m taps.decoding_speed --results results/laptop --output reports/laptop/decoding_speed.json

Drafting: the positions of one benchmark, trees of the study's depth, top-k and main budget, the second of two passes.
Replay: every replay of the study again, files read and written, one after the other. Live: two prompts under every
strategy that is named, with the share of the time that is spent outside the two models' forward passes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taps.plumbing.artefacts import read_envelope, read_json, read_tensors, write_json
from taps.plumbing.cli import run
from taps.plumbing.errors import TapsError
from taps.plumbing.provenance import provenance


def build_parser() -> argparse.ArgumentParser:
    """Returns the command line of this stage."""
    parser = argparse.ArgumentParser(
        prog="python -m taps.decoding_speed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, required=True, help="results folder of a finished study")
    parser.add_argument("--method", default="eagle2", help="draft family (default: %(default)s)")
    parser.add_argument("--drafters", nargs="+", default=["math", "chat"], help="to combine (default: math chat)")
    parser.add_argument("--benchmark", default="gsm8k", help="texts to work on (default: %(default)s)")
    parser.add_argument(
        "--strategies", nargs="+", default=["routed_confidence_step", "merged_concat", "merged_adaptive"],
        help="decoded live, beside the first drafter alone (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--num-prompts", type=int, default=2, help="decoded live (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="torch device (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="JSON to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the stage."""
    args = build_parser().parse_args(argv)
    from taps.analysis.results import find_replays

    replays = find_replays([args.results / "replays"])
    num_draft_tokens = replays[0].meta["num_draft_tokens"]
    lines = [
        measure_bank(args, num_draft_tokens),
        measure_replays(args, replays),
        *measure_live(args, num_draft_tokens),
    ]
    made_from = provenance(stage="taps.decoding_speed", device=args.device)
    write_json(args.output, lines, kind="decoding_speed", provenance=made_from)
    print(table(lines))


def bank_path(args: argparse.Namespace, name: str, *, method: str, benchmark: str, when: str = "t0_s0") -> Path:
    """Returns where the study has a drafter's bank."""
    return args.results / "banks" / method / name / benchmark / f"{when}.safetensors"


def measure_bank(args: argparse.Namespace, num_nodes: int) -> dict[str, Any]:
    """Returns the positions per second of drafting the benchmark's bank anew."""
    import torch

    from taps.bank import bank_of_trace
    from taps.decoding.drafting import DraftOptions
    from taps.model.checkpoint import load_drafter
    from taps.model.target_head import load_target_head

    name = args.drafters[0]
    made = read_envelope(bank_path(args, name, method=args.method, benchmark=args.benchmark), kind="bank")["meta"]
    vocabulary = args.results / "draft_vocab.safetensors" if made["draft_vocab_size"] else None
    head = load_target_head(args.results / "target", draft_vocab=vocabulary, device=args.device)
    model = load_drafter(
        args.results / "drafters" / args.method / name, target_config=head.config, dtype=torch.float32,
        device=args.device,
    )  # fmt: skip
    trace, _ = read_tensors(args.results / "traces" / args.benchmark / "t0_s0.safetensors", kind="trace")
    options = DraftOptions(depth=made["depth"], top_k=made["top_k"], num_nodes=num_nodes)
    for _ in range(2):  # the first pass warms up
        start = time.perf_counter()
        trees, _ = bank_of_trace(model, head, trace, options, show_progress=False)
        seconds = time.perf_counter() - start
    what = f"drafting, {num_nodes} nodes, depth {options.depth}, top-k {options.top_k}, {len(head.head)} tokens"
    return {"what": what, "value": len(trees) / seconds, "unit": "positions/s"}


def measure_replays(args: argparse.Namespace, replays: Sequence[Any]) -> dict[str, Any]:
    """Returns the seconds that all replays of the study take together."""
    from taps import replay

    num_cycles, seconds = 0, 0.0
    with tempfile.TemporaryDirectory(prefix="taps-speed-") as scratch:
        for file in replays:
            rows = rows_of(file.path)
            num_cycles += sum(row.pop("num_cycles") for row in rows)
            when = f"t{file.temperature:g}_s{file.seed}"
            words = ["--trace", str(args.results / "traces" / file.benchmark / f"{when}.safetensors")]
            for name in sorted({name for row in rows for name in row["drafters"]}):
                bank = bank_path(args, name, method=file.method, benchmark=file.benchmark, when=when)
                words += ["--bank", f"{name}={bank}"]
            words += ["--method", file.method, "--benchmark", file.benchmark, "--strategies", json.dumps(rows)]
            words += ["--num-draft-tokens", str(file.meta["num_draft_tokens"]), *calibration(args, file.method)]
            start = time.perf_counter()
            quietly(replay.main, [*words, "--output", f"{scratch}/replay.parquet"])
            seconds += time.perf_counter() - start
    return {"what": f"replay of {len(replays)} conditions, {num_cycles} cycles", "value": seconds, "unit": "s"}


def measure_live(args: argparse.Namespace, num_draft_tokens: int) -> list[dict[str, Any]]:
    """Returns tokens per second and the share of time outside the models, per strategy."""
    from taps import live_check

    rows = [{"strategy": "single", "drafters": args.drafters[:1]}]
    rows += [{"strategy": name, "drafters": args.drafters} for name in args.strategies]
    words = ["--target", str(args.results / "target"), "--device", args.device, "--strategies", json.dumps(rows)]
    words += ["--trace", str(args.results / "traces" / args.benchmark / "t0_s0.safetensors")]
    for name in args.drafters:
        words += ["--drafter", f"{name}={args.results / 'drafters' / args.method / name}"]
        words += ["--bank", f"{name}={bank_path(args, name, method=args.method, benchmark=args.benchmark)}"]
    if (vocabulary := args.results / "draft_vocab.safetensors").exists():
        words += ["--draft-vocab", str(vocabulary)]
    words += ["--num-draft-tokens", str(num_draft_tokens), "--num-prompts", str(args.num_prompts)]
    with tempfile.TemporaryDirectory(prefix="taps-speed-") as scratch:
        report = Path(scratch) / "live.json"
        quietly(live_check.main, [*words, *calibration(args, args.method), "--output", str(report)])
        found = read_json(report, kind="live_check")["rows"]
    return [
        line
        for row in found
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


def calibration(args: argparse.Namespace, method: str) -> list[str]:
    """Returns the flag that names a method's fitted temperatures, if it has some."""
    path = args.results / "calibration" / f"{method}.json"
    return ["--calibration", str(path)] if path.exists() else []


def quietly(stage: Any, words: list[str]) -> None:
    """Runs another stage in this process without its last line."""
    with contextlib.redirect_stdout(io.StringIO()):
        stage(words)


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Returns a Markdown table."""
    rows = [f"| {line['what']} | {line['value']:,.3g} {line['unit']} |" for line in lines]
    return "\n".join(["| | |", "|---|---:|", *rows])


if __name__ == "__main__":
    run(main)
