"""Draft vocabulary: the tokens that a draft model may propose, the most frequent ones of the training corpora.

    python -m taps.draft_vocab --tokens results/laptop/tokens/math.safetensors \\
        --tokens results/laptop/tokens/chat.safetensors --size 8192 --output results/laptop/draft_vocab.safetensors

Tokens are ranked by how often they are supervised in training rows (a draft model proposes nothing else), then by how
often they occur there at all, then by id; the target's special tokens are always in. The checkpoint of the draft model
stays valid for the full vocabulary: only the rows of the target's lm_head are sliced.

Output (safetensors, kind `draft_vocab`): token_ids int64 [size], ascending; meta: vocab_size, coverage (share of the
supervised training tokens that the draft vocabulary has).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taps.data.mixtures import training_rows
from taps.plumbing.artefacts import read_tensors, write_tensors
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.lineage import common_cause
from taps.plumbing.provenance import provenance


def count(tensors: Mapping[str, np.ndarray], vocab_size: int) -> np.ndarray:
    """Returns int64 [2, vocab_size]: how often each token is supervised, and occurs, in the training rows.

    Args:
        tensors: tokens, supervised and offsets of `taps.tokenise`.
        vocab_size: Tokens that the target knows.
    """
    lengths = np.diff(tensors["offsets"])
    trains = np.zeros(len(lengths), dtype=bool)
    trains[training_rows(len(lengths))] = True
    tokens, supervised = tensors["tokens"], tensors["supervised"].astype(bool)
    kept = np.repeat(trains, lengths)
    return np.stack([np.bincount(tokens[kept & mask], minlength=vocab_size) for mask in (supervised, True)])


def choose(counts: np.ndarray, size: int, always: Sequence[int]) -> np.ndarray:
    """Returns int64 [size]: ascending ids of the tokens in the draft vocabulary.

    Args:
        counts: int [2, vocab_size] as `count` returns them, summed over corpora.
        size: Tokens wanted, at most vocab_size.
        always: Tokens that are in whatever their frequency.
    """
    supervised, occurring = counts
    first = np.zeros(len(supervised), dtype=bool)
    first[list(always)] = True
    ranked = np.lexsort((np.arange(len(supervised)), -occurring, -supervised, ~first))
    return np.sort(ranked[:size]).astype(np.int64)


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.draft_vocab", __doc__)
    parser.add_argument("--tokens", type=Path, action="append", required=True, help="of taps.tokenise; repeatable")
    parser.add_argument("--size", type="number", required=True, help="tokens in the draft vocabulary")
    parser.add_argument("--output", type=Path, required=True, help="safetensors to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    files = [read_tensors(path, kind="tokens", framework="np") for path in arguments.tokens]
    meta = _common_meta(arguments.tokens, [meta for _, meta in files])
    always = sorted({*meta["special_ids"], *meta["eos_ids"]})
    if not len(always) <= arguments.size <= meta["vocab_size"]:
        raise TapsError(
            "--size", "no possible size", expected=f"{len(always)} to {meta['vocab_size']}", found=arguments.size
        )
    counts = np.sum([count(tensors, meta["vocab_size"]) for tensors, _ in files], axis=0)
    token_ids = choose(counts, arguments.size, always)
    coverage = float(counts[0, token_ids].sum() / counts[0].sum())
    target = common_cause([(path, "tokens") for path in arguments.tokens], "target")
    inputs = {f"tokens.{number}": path for number, path in enumerate(arguments.tokens)}
    origin = provenance(stage="taps.draft_vocab", inputs=inputs | target)
    write_tensors(
        arguments.output,
        {"token_ids": token_ids},
        kind="draft_vocab",
        provenance=origin,
        meta={"vocab_size": meta["vocab_size"], "coverage": coverage},
    )
    print(f"{arguments.output}: {arguments.size} of {meta['vocab_size']} tokens, {coverage:.2%} of the supervised ones")


def _common_meta(paths: Sequence[Path], metas: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns what all token files agree on.

    Raises:
        TapsError: they were tokenised for different targets.
    """
    for path, meta in zip(paths, metas, strict=True):
        for name in ("vocab_size", "template_digest", "special_ids", "eos_ids"):
            if meta[name] != metas[0][name]:
                raise TapsError(
                    path, f"tokenised for another target: {name}", expected=metas[0][name], found=meta[name]
                )
    return metas[0]


if __name__ == "__main__":
    run(main)
