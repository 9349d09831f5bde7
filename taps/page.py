"""Builds the report's page: one self-contained HTML file from the tables, figures and claims of a study.

    python -m taps.page --study laptop --tables reports/laptop/tables --figures reports/laptop/figures \
        --claims reports/laptop/claims --config config.yaml --output reports/laptop/index.html
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from taps.analysis.page import build_page, short_in_words
from taps.plumbing.artefacts import read_json
from taps.plumbing.atomic import write_text
from taps.plumbing.cli import run, stage_parser


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.page", __doc__)
    parser.add_argument("--study", required=True, help="name of the study")
    parser.add_argument("--tables", type=Path, required=True, help="folder that the tables stage wrote")
    parser.add_argument("--figures", type=Path, required=True, help="folder that the figures stage wrote")
    parser.add_argument("--claims", type=Path, required=True, help="folder that the claims stage wrote")
    parser.add_argument(
        "--config", type=Path, nargs="+", default=[], metavar="FILE", help="the study's settings, shown as they stand"
    )
    parser.add_argument(
        "--fact", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help="a line for its provenance"
    )
    parser.add_argument("--output", type=Path, required=True, help="HTML to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    facts = [(name, value) for name, value in args.fact]
    page = build_page(
        study=args.study,
        tables=args.tables,
        figures=args.figures,
        claims=args.claims,
        configs=args.config,
        facts=facts,
    )
    write_text(args.output, page)
    print(f"{args.output}: {len(page) / 1e6:.1f} MB")
    for answer in read_json(args.claims / "claims.json", kind="claims")["answers"]:
        print(f"{answer['question']} {short_in_words(answer['short'])}")  # a run ends with these lines


if __name__ == "__main__":
    run(main)
