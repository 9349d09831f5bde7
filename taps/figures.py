"""Draws a study: every figure as PNG and PDF, from the tables (no model, no torch).

    python -m taps.figures --tables reports/laptop/tables --output reports/laptop/figures

A figure whose numbers the study lacks is left out, with a line that says why. The folder also gets `figures.json`:
captions and descriptions for the page, and these lines. Equal tables give equal bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from taps.plumbing.artefacts import write_json
from taps.plumbing.cli import NAMED_PATHS, run, stage_parser
from taps.plumbing.folder_records import check_folder
from taps.plumbing.hashes import sha256_of
from taps.plumbing.lineage import check_made_from
from taps.plumbing.provenance import provenance

if TYPE_CHECKING:
    from taps.analysis.figures.style import Picture
    from taps.analysis.labels import Labels


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.figures", __doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder that the tables stage wrote")
    trees = parser.add_argument_group("draft trees of one recorded answer, drawn if all three are given")
    trees.add_argument("--trace", type=Path, help="recorded text")
    trees.add_argument("--bank", **NAMED_PATHS, default=[], metavar="DRAFTER=PATH", help="draft bank along it")
    trees.add_argument("--tokenizer", type=Path, help="tokenizer.json of the target")
    trees.add_argument("--num-nodes", type="nodes", default=14, help="nodes drawn of each tree (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)

    from taps.analysis.figures.style import save, styled

    index, left_out = [], []
    with styled():
        for picture in pictures(args):
            if isinstance(picture, str):
                left_out.append(picture)
                print(f"left out: {picture}")
                continue
            save(picture, args.output)
            words = {name: getattr(picture, name) for name in ("name", "title", "caption", "alt")}
            index.append({**words, "sha256": sha256_of(args.output / f"{picture.name}.png")})
            print(f"{args.output / picture.name}.png, .pdf")
    print(f"{args.output}: {len(index)} figures")
    tables = args.tables / "tables.json"
    write_json(
        args.output / "figures.json",
        {"figures": index, "left_out": left_out},
        kind="figures",
        provenance=provenance(stage="taps.figures", inputs={"tables": tables}),
    )


def pictures(args: argparse.Namespace) -> Iterator[Picture | str]:
    """Yields every figure that the inputs allow, in the order of the report, and why another one is left out."""
    from taps.analysis.figures import catalogue
    from taps.analysis.findings import Findings

    found = Findings(args.tables)
    yield from catalogue.pictures(found)
    if args.trace and args.bank and args.tokenizer:
        yield recorded_trees(args, found.labels)
    else:
        yield "draft trees along an answer: no recorded answer was given"


def recorded_trees(args: argparse.Namespace, labels: Labels) -> Picture:
    """Returns the draft trees of the specialists along a trace."""
    from tokenizers import Tokenizer

    from taps.analysis.figures.trees import draft_trees
    from taps.decoding.recording import load_recording

    recording = load_recording(args.trace, dict(args.bank))
    if (args.tokenizer.parent / "provenance.json").exists():
        check_made_from(args.trace, {"target": args.tokenizer.parent}, kind="trace")
        check_folder(args.tokenizer.parent, kind="target", names=[args.tokenizer.name])
    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    return draft_trees(
        recording,
        lambda tokens: tokenizer.decode(tokens, skip_special_tokens=False),
        labels,
        num_nodes=args.num_nodes,
        benchmark=args.trace.parent.name,
    )


if __name__ == "__main__":
    run(main)
