"""Mixture -> index lists: which rows of which corpora a draft model is trained and validated on. Nothing is copied.

    python -m taps.mixture --tokens math=results/laptop/tokens/math.safetensors \\
        --tokens chat=results/laptop/tokens/chat.safetensors --share math=0.5 --share chat=0.5 \\
        --output results/laptop/mixtures/mixed_small.json

One size for each corpus: `--share c=0.5` (of its training rows, counted in `--unit`), `--rows c=35000` or
`--num-tokens c=30000`. Sizes are prefixes of the same seeded order: a larger one extends a smaller one, and
rows with index % 20 == 19 validate in every mixture.

Output (JSON, kind `mixture`): corpora [names], train {corpus: [row index ..]}, validation {corpus: [..]},
num_tokens {"train": {corpus: n}, "validation": {corpus: n}}.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from taps.data.mixtures import Size, take, validation_rows
from taps.plumbing import numbers
from taps.plumbing.artefacts import read_tensors, write_json
from taps.plumbing.cli import by_name, run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.lineage import common_cause
from taps.plumbing.provenance import provenance

T = TypeVar("T")


def named(parse: Callable[[str], T]) -> Callable[[str], tuple[str, T]]:
    """Returns an argparse type for `name=value`."""

    def pair(text: str) -> tuple[str, T]:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
        return name, parse(value)

    return pair


def mix(lengths: Mapping[str, np.ndarray], sizes: Mapping[str, Size]) -> dict[str, Any]:
    """Returns a mixture's content.

    Args:
        lengths: Corpus -> int [rows] tokens of each row.
        sizes: Corpus -> how much of it.

    Raises:
        TapsError: as `taps.data.mixtures.take`, or corpora and sizes do not correspond.
    """
    if set(lengths) != set(sizes):
        raise TapsError(
            "mixture",
            "each corpus needs one size",
            expected=f"--share, --rows or --num-tokens for {', '.join(sorted(lengths))}",
            found=", ".join(sorted(sizes)) or "none",
        )
    train = {name: take(name, lengths[name], sizes[name]) for name in sorted(lengths)}
    validation = {name: validation_rows(len(lengths[name])) for name in sorted(lengths)}
    parts = {"train": train, "validation": validation}
    return {
        "corpora": sorted(lengths),
        **{part: {name: rows.tolist() for name, rows in index.items()} for part, index in parts.items()},
        "num_tokens": {
            part: {name: int(lengths[name][rows].sum()) for name, rows in index.items()}
            for part, index in parts.items()
        },
    }


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.mixture", __doc__)
    add = parser.add_argument
    add("--tokens", type=named(Path), action="append", required=True, metavar="CORPUS=FILE", help="of taps.tokenise")
    each: dict[str, Any] = {"action": "append", "default": []}
    add("--share", type=named(numbers.share), **each, metavar="CORPUS=SHARE", help="of its training rows")
    add("--rows", type=named(numbers.number), **each, metavar="CORPUS=N", help="training conversations")
    add("--num-tokens", type=named(numbers.number), **each, metavar="CORPUS=N", help="training tokens")
    add("--unit", choices=("tokens", "rows"), default="tokens", help="what a share counts (default: tokens)")
    add("--output", type=Path, required=True, help="JSON to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    files = by_name(arguments.tokens, "--tokens")
    target = common_cause([(path, "tokens") for path in files.values()], "target")
    sizes = [(name, Size(share=share, unit=arguments.unit)) for name, share in arguments.share]
    sizes += [(name, Size(rows=rows)) for name, rows in arguments.rows]
    sizes += [(name, Size(tokens=tokens)) for name, tokens in arguments.num_tokens]
    if repeated := {name for name, _ in sizes if [other for other, _ in sizes].count(name) > 1}:
        raise TapsError("mixture", f"more than one size for {', '.join(sorted(repeated))}", expected="one")
    lengths = {}
    for name, path in files.items():
        tensors, _ = read_tensors(path, kind="tokens", names=["offsets"], framework="np")
        lengths[name] = np.diff(tensors["offsets"])
    content = mix(lengths, dict(sizes))
    made_from = {f"tokens.{name}": path for name, path in files.items()} | target
    write_json(arguments.output, content, kind="mixture", provenance=provenance(stage="taps.mixture", inputs=made_from))
    print(f"{arguments.output}: {content['num_tokens']['train']} training tokens")


if __name__ == "__main__":
    run(main)
