"""Fits one inverse temperature per drafter on held-out conversations, for the `_calibrated` strategies.

    python -m taps.calibrate --trace results/laptop/traces/heldout_math/t0_s0.safetensors \
        --bank results/laptop/banks/eagle2/seed0/math/heldout_math/t0_s0.safetensors \
        --bank results/laptop/banks/eagle2/seed0/chat/heldout_math/t0_s0.safetensors \
        --output results/laptop/calibration/eagle2/seed0.json

Every bank names its drafter and its trace. All positions of a bank count, and a drafter's banks are pooled. The output
holds per drafter: inverse_temperature, num_nodes, and `before` and `after`, the calibration error without and with it.
A drafter whose nodes were all accepted, or none of them, as happens after a first tiny training, has no most likely
temperature: it keeps 1, and `note` says why, here and in the report.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taps.decoding.calibration import NEUTRAL, bets, fit_inverse_temperature, reliability
from taps.decoding.recording import drafters_of_banks, load_recording
from taps.plumbing.artefacts import read_envelope, write_json
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.provenance import digest_of, provenance


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.calibrate", __doc__)
    parser.add_argument("--trace", type=Path, action="append", required=True, help="held-out text; may be repeated")
    parser.add_argument("--bank", type=Path, action="append", required=True, help="draft bank along one of the traces")
    parser.add_argument("--output", type=Path, required=True, help="calibration to write (.json)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    drafters = drafters_of_banks(args.bank)
    fitted = {}
    for drafter, (scores, accepted) in sorted(pooled_bets(args.trace, args.bank).items()):
        fitted[drafter] = calibrated(drafter, scores, accepted)
        print(f"{drafter}: {summary(fitted[drafter])}")
    inputs = {f"trace.{index}": path for index, path in enumerate(args.trace)}
    inputs |= {f"bank.{index}": path for index, path in enumerate(args.bank)}
    made_from = provenance(stage="taps.calibrate", inputs=inputs | drafters)
    write_json(args.output, {"drafters": fitted}, kind="calibration", provenance=made_from)
    factors = ", ".join(f"{name} {fit['inverse_temperature']:.3f}" for name, fit in fitted.items())
    print(f"{args.output}: inverse temperatures {factors}")


def calibrated(drafter: str, scores: np.ndarray, accepted: np.ndarray) -> dict[str, Any]:
    """Returns one drafter's entry of the output."""
    try:
        factor, noted = fit_inverse_temperature(scores, accepted), {}
    except ValueError as error:
        remedy = "train the drafter longer, or give more or longer held-out conversations"
        factor, noted = NEUTRAL, {"note": f"not calibrated, {error}: temperature 1 is kept; {remedy}"}
        print(f"warning: drafter {drafter}: {noted['note']}", file=sys.stderr)
    return {
        "inverse_temperature": factor,
        "num_nodes": len(scores),
        "before": reliability(scores, accepted).to_json(),
        "after": reliability(scores, accepted, factor).to_json(),
        **noted,
    }


def summary(fit: Mapping[str, Any]) -> str:
    """Returns one line about a drafter's entry."""
    before, after = (fit[when]["expected_calibration_error"] for when in ("before", "after"))
    errors = "no node was judged" if math.isnan(before) else f"calibration error {before:.3f} -> {after:.3f}"
    return f"inverse temperature {fit['inverse_temperature']:.3f}, {errors}"


def pooled_bets(traces: Sequence[Path], banks: Sequence[Path]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns drafter -> (log-probabilities, outcomes) over all its banks.

    Raises:
        TapsError: a bank follows none of the traces, a drafter lacks a trace that another has, or traces differ in
            sampling.
    """
    paths = {digest_of(trace): trace for trace in traces}
    banks_of: dict[str, dict[str, Path]] = {digest: {} for digest in paths}
    for path in banks:
        meta = read_envelope(path, kind="bank")["meta"]
        if meta["trace"] not in paths:
            raise TapsError(path, "drafted along none of the traces given", expected=", ".join(map(str, traces)))
        banks_of[meta["trace"]][meta["drafter"]] = path
    drafters = {name for group in banks_of.values() for name in group}
    samplings: dict[Path, Any] = {}
    scores: dict[str, list[np.ndarray]] = defaultdict(list)
    outcomes: dict[str, list[np.ndarray]] = defaultdict(list)
    for digest, group in banks_of.items():
        if missing := sorted(drafters - group.keys()):
            raise TapsError(paths[digest], f"no --bank of {', '.join(missing)} along it", remedy="add it")
        recording = load_recording(paths[digest], group)
        samplings[paths[digest]] = recording.trace_meta["sampling"]
        for name, bank in recording.banks.items():
            some_scores, some_outcomes = bets(bank, recording.text)
            scores[name].append(some_scores)
            outcomes[name].append(some_outcomes)
    if any(sampling != samplings[traces[0]] for sampling in samplings.values()):
        raise TapsError("--trace", "traces differ in sampling", found={str(t): s for t, s in samplings.items()})
    return {name: (np.concatenate(scores[name]), np.concatenate(outcomes[name])) for name in scores}


if __name__ == "__main__":
    run(main)
