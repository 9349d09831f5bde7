"""Fits the router that chooses a drafter by the prompt alone, for the strategy routed_prompt.

    python -m taps.fit_router --trace results/laptop/traces/heldout_math/t0_s0.safetensors \
        --trace results/laptop/traces/heldout_chat/t0_s0.safetensors \
        --bank results/laptop/banks/eagle2/seed0/math/heldout_math/t0_s0.safetensors ... \
        --drafters math chat --num-draft-tokens 40 --output results/laptop/routers/eagle2.json

Each held-out answer votes for the drafter with the larger acceptance length of its own on it (equal: the answer is
left out and counted). The regression reads the target's feature of the prompt's last token (`taps.decoding.router`).

Output (kind `router`): {"weights": drafter -> [bias, w_1 ... w_h], "penalty", "num_prompts", "num_equal", "labels":
drafter -> count, "train_accuracy", "left_out_accuracy", "majority_share"}. Where no answer tells the drafters apart, or
all speak for one, the router always names one drafter, and `note` says why, here and in the report.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taps.decoding.recording import Recording, drafters_of_banks, load_recording
from taps.decoding.router import choose, fit_router, left_out_accuracy
from taps.decoding.strategies.single import single
from taps.decoding.strategy import Options
from taps.decoding.walk import walk
from taps.plumbing.artefacts import read_envelope, write_json
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.provenance import digest_of, provenance


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.fit_router", __doc__)
    parser.add_argument("--trace", type=Path, action="append", required=True, help="held-out text; may be repeated")
    parser.add_argument("--bank", type=Path, action="append", required=True, help="draft bank along one of the traces")
    parser.add_argument("--drafters", nargs="+", required=True, help="those to choose from, by name")
    parser.add_argument("--num-draft-tokens", type="nodes", required=True, help="nodes of their trees")
    parser.add_argument("--penalty", type="weight", default=0.1, help="on squared weights (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="router to write (.json)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    banks: dict[str, dict[str, Path]] = defaultdict(dict)
    for path in args.bank:
        meta = read_envelope(path, kind="bank")["meta"]
        banks[meta["trace"]][meta["drafter"]] = path
    features, lengths = [], []
    for trace in args.trace:
        own = banks.get(digest_of(trace), {})
        if missing := [name for name in args.drafters if name not in own]:
            raise TapsError(trace, f"no --bank of {', '.join(missing)} along it", remedy="add it")
        recording = load_recording(trace, {name: own[name] for name in args.drafters}, with_prompts=True)
        some_features, some_lengths = examples(recording, args.num_draft_tokens)
        features.append(some_features)
        lengths.append(some_lengths)
    content = fitted(np.concatenate(features), np.concatenate(lengths), args.drafters, args.penalty)
    inputs: dict[str, Path | str] = {f"trace.{index}": path for index, path in enumerate(args.trace)}
    inputs |= {f"bank.{index}": path for index, path in enumerate(args.bank)}
    inputs |= drafters_of_banks(args.bank)
    write_json(args.output, content, kind="router", provenance=provenance(stage="taps.fit_router", inputs=inputs))
    if "note" in content:
        print(f"warning: {content['note']}", file=sys.stderr)
    found = ", ".join(f"{name} {count}" for name, count in content["labels"].items())
    print(
        f"{args.output}: {content['num_prompts']} answers ({found}; {content['num_equal']} equal), left-out accuracy "
        f"{content['left_out_accuracy']:.2f}, the majority's share {content['majority_share']:.2f}"
    )


def examples(recording: Recording, num_draft_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (float32 [S, h] features of the prompts, float64 [S, K] each drafter's own tau), answers with cycles."""
    features = recording.text.prompt_features
    assert features is not None
    options, size = Options(num_draft_tokens=num_draft_tokens), len(recording.text.offsets) - 1
    taus = []
    for bank in recording.banks.values():
        cycles = walk(single, [bank], recording.text, options)
        count = np.bincount(cycles.sequence, minlength=size)
        taus.append(np.bincount(cycles.sequence, weights=cycles.emitted, minlength=size) / np.maximum(count, 1))
    walked = np.diff(recording.text.offsets) > 0
    return features[walked], np.stack(taus, axis=1)[walked]


def fitted(features: np.ndarray, taus: np.ndarray, names: Sequence[str], penalty: float) -> dict[str, Any]:
    """Returns the content of the output."""
    best = taus.max(axis=1, keepdims=True)
    decided = (taus == best).sum(axis=1) == 1
    labels, known = taus[decided].argmax(axis=1), features[decided]
    size = len(names)
    counts = np.bincount(labels, minlength=size)
    if np.count_nonzero(counts) < 2:
        return _constant(names, counts, features.shape[1], penalty, num_equal=int((~decided).sum()))
    router = fit_router(known, labels, num_drafters=size, penalty=penalty)
    return {
        "weights": dict(zip(names, router.tolist(), strict=True)),
        "penalty": penalty,
        "num_prompts": len(labels),
        "num_equal": int((~decided).sum()),
        "labels": dict(zip(names, counts.tolist(), strict=True)),
        "train_accuracy": float((choose(known, router) == labels).mean()),
        "left_out_accuracy": left_out_accuracy(known, labels, num_drafters=size, penalty=penalty),
        "majority_share": float(counts.max() / len(labels)),
    }


def _constant(
    names: Sequence[str], counts: np.ndarray, width: int, penalty: float, *, num_equal: int
) -> dict[str, Any]:
    """Returns the content for a router that always names the drafter of all labels, the first without any."""
    best = int(counts.argmax())
    weights = {name: [float(place == best), *[0.0] * width] for place, name in enumerate(names)}
    found = f"all {counts.sum()} speak for {names[best]}" if counts.sum() else "none tells the drafters apart"
    return {
        "weights": weights,
        "penalty": penalty,
        "num_prompts": int(counts.sum()),
        "num_equal": num_equal,
        "labels": dict(zip(names, counts.tolist(), strict=True)),
        "train_accuracy": 1.0,
        "left_out_accuracy": 1.0 if counts.sum() > 1 else float("nan"),
        "majority_share": 1.0,
        "note": f"the prompt cannot route here: of the held-out answers, {found}; {names[best]} is always chosen",
    }


if __name__ == "__main__":
    run(main)
