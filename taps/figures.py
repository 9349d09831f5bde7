"""Draws a study: every figure as PNG and PDF, from the tables (no model, no torch).

    python -m taps.figures --tables reports/laptop/tables --output reports/laptop/figures

A figure whose numbers the study lacks is left out and named. The folder also gets `figures.json`: captions and
descriptions for the page. Equal tables give equal bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from taps.plumbing.artefacts import provenance, write_json
from taps.plumbing.cli import run


def build_parser() -> argparse.ArgumentParser:
    """Returns the command line of this stage."""
    parser = argparse.ArgumentParser(
        prog="python -m taps.figures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=Path, required=True, help="folder that the tables stage wrote")
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the stage."""
    args = build_parser().parse_args(argv)

    from taps.analysis.figures import acceptance, costs, details
    from taps.analysis.figures.style import save, styled
    from taps.analysis.findings import Findings

    found = Findings(args.tables)
    index = []
    with styled():
        for module in (acceptance, details, costs):
            for picture in module.pictures(found):
                save(picture, args.output)
                words = {name: getattr(picture, name) for name in ("name", "title", "caption", "alt")}
                index.append(words)
                print(f"{args.output / picture.name}.png, .pdf")
    tables = args.tables / "tables.json"
    write_json(
        args.output / "figures.json",
        index,
        kind="figures",
        provenance=provenance(stage="taps.figures", inputs={"tables": tables}),
    )


if __name__ == "__main__":
    run(main)
