"""Checks a study's config: says "ok", or names the first fault in one line.

python -m taps.config config.yaml
python -m taps.config workflow/studies/paper.yaml workflow/studies/scaling_qwen3_4b.yaml # later files override
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from taps.plumbing.cli import run, stage_parser
from taps.study.config import ROOT, read, validate


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.config", __doc__)
    parser.add_argument("files", type=Path, nargs="+", help="study to check; later files override keys of earlier ones")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    files = build_parser().parse_args(argv).files
    name = " + ".join(map(str, files))
    validate(read(files), file=name, root=ROOT)
    print(f"{name}: ok")


if __name__ == "__main__":
    run(main)
