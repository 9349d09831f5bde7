"""Replays decoding strategies over recorded text and draft banks: every cycle of every answer, no model in memory.

    python -m taps.replay --trace results/laptop/traces/gsm8k/t0_s0.safetensors --method eagle2 --benchmark gsm8k \
        --bank math=results/laptop/banks/eagle2/math/gsm8k/t0_s0.safetensors \
        --bank chat=results/laptop/banks/eagle2/chat/gsm8k/t0_s0.safetensors --num-draft-tokens 40 \
        --strategies '[{"strategy": "single", "drafters": ["math"], "num_draft_tokens": [20, 40]},
                       {"strategy": "merged_matched", "drafters": ["math", "chat"]}]' \
        --output results/laptop/replays/eagle2/gsm8k/t0_s0.parquet

Two tables. The output has one row per cycle. Beside it, `.nodes.parquet` has the entropy and confidence of the nodes
that `single` verified at the default budget, one row per cycle, depth and kind of node (`taps.decoding.node_groups`).
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from taps.decoding.node_groups import NODE_KINDS, node_groups
from taps.decoding.recording import Recording, load_recording
from taps.decoding.registry import Options, Strategy
from taps.decoding.strategies import find
from taps.decoding.walk import Cycles, walk
from taps.plumbing.artefacts import read_json
from taps.plumbing.cli import NAMED_PATHS, run
from taps.plumbing.errors import TapsError
from taps.plumbing.parquet import categories, write_parquet
from taps.plumbing.progress import progress
from taps.plumbing.provenance import provenance


@dataclass(frozen=True, kw_only=True)
class Row:
    """One variant to replay: a line of the result tables."""

    strategy: Strategy
    drafters: tuple[str, ...]
    num_draft_tokens: int

    def __str__(self) -> str:
        return f"{self.strategy.name} of {'+'.join(self.drafters)} with {self.num_draft_tokens} nodes"


def build_parser() -> argparse.ArgumentParser:
    """Returns the command line of this stage."""
    parser = argparse.ArgumentParser(
        prog="python -m taps.replay", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", type=Path, required=True, help="recorded text")
    parser.add_argument(
        "--bank", **NAMED_PATHS, required=True, metavar="DRAFTER=PATH", help="draft bank along it; once per drafter"
    )
    parser.add_argument(
        "--strategies",
        required=True,
        help="JSON list of {strategy, drafters, num_draft_tokens}; the last may be a list, or absent for the default",
    )
    parser.add_argument("--num-draft-tokens", type=int, required=True, help="default nodes of one drafter's tree")
    parser.add_argument("--method", required=True, help="draft family, a label of the result")
    parser.add_argument("--benchmark", required=True, help="a label of the result")
    parser.add_argument("--calibration", type=Path, help="inverse temperatures for the _calibrated strategies")
    parser.add_argument(
        "--decay", type=float, default=Options.decay, help="history left per cycle (default: %(default)s)"
    )
    parser.add_argument(
        "--prior",
        type=float,
        default=Options.prior,
        help="accepted tokens credited first (default: %(default)s)",
    )
    parser.add_argument("--output", type=Path, required=True, help="cycles to write (.parquet)")
    parser.add_argument("--nodes", type=Path, help="node statistics (default: <output>.nodes.parquet)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the stage."""
    args = build_parser().parse_args(argv)
    banks = dict(args.bank)
    rows = parse_rows(args.strategies, banks, args.num_draft_tokens)
    factors = read_json(args.calibration, kind="calibration")["drafters"] if args.calibration else {}
    recording = load_recording(args.trace, banks)
    check_rows(rows, recording, factors)

    walks, nodes = [], []
    sequences_of = np.unique(recording.trace_meta["ids"], return_inverse=True)[1]
    for row in progress(rows, what="replaying", unit="row"):
        options = Options(
            num_draft_tokens=row.num_draft_tokens,
            decay=args.decay,
            prior=args.prior,
            seed=recording.trace_meta["seed"],
            inverse_temperatures=inverse_temperatures(row, factors),
        )
        chosen = [recording.banks[name] for name in row.drafters]
        walks.append(walk(row.strategy, chosen, recording.text, options, groups=sequences_of))
        if row.strategy.name == "single" and row.num_draft_tokens == args.num_draft_tokens:
            nodes.append((row, node_groups(chosen[0], recording.text, walks[-1], row.num_draft_tokens)))

    inputs = {"trace": args.trace, **{f"bank.{name}": path for name, path in banks.items()}}
    if args.calibration:
        inputs["calibration"] = args.calibration
    envelope: dict[str, Any] = {
        "provenance": provenance(stage="taps.replay", inputs=inputs),
        "meta": {
            "method": args.method,
            "benchmark": args.benchmark,
            "temperature": recording.trace_meta["sampling"]["temperature"],
            "seed": recording.trace_meta["seed"],
            "sampling": recording.trace_meta["sampling"],
            "num_draft_tokens": args.num_draft_tokens,
            "decay": args.decay,
            "prior": args.prior,
            **recording.drafting,
        },
    }
    write_parquet(args.output, cycle_columns(rows, walks, recording.trace_meta), kind="replay", **envelope)
    nodes_path = args.nodes or args.output.with_suffix(".nodes.parquet")
    write_parquet(nodes_path, node_columns(nodes), kind="replay_nodes", **envelope)
    num_cycles = sum(map(len, walks))
    print(f"{args.output}: {len(rows)} rows, {num_cycles} cycles over {len(recording.text.remaining)} positions")


# --- which rows ------------------------------------------------------------------------------------------------------


def parse_rows(text: str, drafters: Mapping[str, Any], default: int) -> list[Row]:
    """Returns the rows that a JSON list asks for, in its order.

    Raises:
        TapsError: not such a list, an unknown strategy or drafter, the wrong number of drafters, a row named twice.
    """
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise TapsError("--strategies", "not JSON", found=str(error)) from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise TapsError("--strategies", "wrong type", expected="a list of objects", found=text[:60])
    rows = [row for index, entry in enumerate(entries) for row in _rows_of(f"--strategies[{index}]", entry, default)]
    for row in rows:
        if unknown := [name for name in row.drafters if name not in drafters]:
            raise TapsError(str(row), f"no --bank for {', '.join(unknown)}", expected=f"among {', '.join(drafters)}")
        if row.strategy.one_drafter != (len(row.drafters) == 1) or len(set(row.drafters)) < len(row.drafters):
            expected = "one" if row.strategy.one_drafter else "two or more different ones"
            raise TapsError(str(row), "wrong number of drafters", expected=expected, found=len(row.drafters))
    for one, other in itertools.combinations(rows, 2):
        if one == other:
            raise TapsError("--strategies", f"names {one} twice")
    return rows


def _rows_of(where: str, entry: Mapping[str, Any], default: int) -> list[Row]:
    fields = {"strategy": str, "drafters": list, "num_draft_tokens": (int, list)}
    for key, value in entry.items():
        if key not in fields or not isinstance(value, fields[key]):  # type: ignore[arg-type]
            raise TapsError(f"{where}.{key}", "unknown key or wrong type", expected=", ".join(fields), found=value)
    if missing := [key for key in ("strategy", "drafters") if key not in entry]:
        raise TapsError(where, f"lacks {' and '.join(missing)}")
    budgets = entry.get("num_draft_tokens", default)
    return [
        Row(strategy=find(entry["strategy"]), drafters=tuple(entry["drafters"]), num_draft_tokens=budget)
        for budget in (budgets if isinstance(budgets, list) else [budgets])
    ]


def check_rows(rows: Sequence[Row], recording: Recording, factors: Mapping[str, Any]) -> None:
    """Raises TapsError if a row wants more nodes than the banks hold, or a calibration that is not there."""
    held = recording.drafting["num_nodes"]
    for row in rows:
        wanted = row.strategy.num_nodes(Options(num_draft_tokens=row.num_draft_tokens))
        if not 1 <= wanted <= held:
            remedy = "draft larger trees (--num-nodes of taps.bank) or ask for fewer nodes"
            raise TapsError(str(row), "not in the banks", expected=f"1 to {held} nodes", found=wanted, remedy=remedy)
        if row.strategy.calibrated and (missing := [name for name in row.drafters if name not in factors]):
            raise TapsError(str(row), f"no inverse temperature of {', '.join(missing)}", remedy="give --calibration")


def inverse_temperatures(row: Row, factors: Mapping[str, Any]) -> tuple[float, ...]:
    """Returns one factor per drafter for a calibrated row, else nothing."""
    return tuple(factors[name]["inverse_temperature"] for name in row.drafters) if row.strategy.calibrated else ()


# --- tables ----------------------------------------------------------------------------------------------------------


def cycle_columns(rows: Sequence[Row], walks: Sequence[Cycles], trace_meta: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the columns of the table of cycles, in the order of `rows`."""
    counts = [len(cycles) for cycles in walks]
    ids, question_of = np.unique(trace_meta["ids"], return_inverse=True)

    def stacked(name: str, dtype: type = np.int32) -> np.ndarray:
        return np.concatenate([getattr(cycles, name) for cycles in walks] or [np.empty(0)]).astype(dtype)

    sequence = stacked("sequence")
    return {
        **_row_columns(rows, counts),
        "sequence": sequence,
        "question": categories(question_of[sequence], ids.tolist()),
        "turn": np.asarray(trace_meta["turns"], dtype=np.int32)[sequence],
        **{name: stacked(name) for name in ("cycle", "start", "accepted", "emitted", "chosen", "num_nodes")},
        "num_drafted": stacked("num_drafted"),
        "score": stacked("score", np.float32),
    }


def node_columns(parts: Sequence[tuple[Row, dict[str, np.ndarray]]]) -> dict[str, Any]:
    """Returns the columns of the table of nodes."""

    def stacked(name: str, dtype: type = np.int32) -> np.ndarray:
        return np.concatenate([columns[name] for _, columns in parts] or [np.empty(0)]).astype(dtype)

    labels = _row_columns([row for row, _ in parts], [len(columns["kind"]) for _, columns in parts])
    return {
        "drafters": labels["drafters"],
        "num_draft_tokens": labels["num_draft_tokens"],
        **{name: stacked(name) for name in ("sequence", "cycle", "depth")},
        "kind": categories(stacked("kind"), list(NODE_KINDS)),
        **{name: stacked(name, np.float32) for name in ("entropy", "confidence", "conditional_confidence")},
        "count": stacked("count"),
    }


def _row_columns(rows: Sequence[Row], counts: Sequence[int]) -> dict[str, Any]:
    """Returns strategy, drafters and num_draft_tokens, each row's repeated `counts` times."""
    return {
        "strategy": _repeated([row.strategy.name for row in rows], counts),
        "drafters": _repeated(["+".join(row.drafters) for row in rows], counts),
        "num_draft_tokens": np.repeat(np.array([row.num_draft_tokens for row in rows], dtype=np.int32), counts),
    }


def _repeated(labels: Sequence[str], counts: Sequence[int]) -> Any:
    names = list(dict.fromkeys(labels))
    return categories(np.repeat([names.index(label) for label in labels], counts).astype(np.int32), names)


if __name__ == "__main__":
    run(main)
