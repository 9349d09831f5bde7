"""All stages under one command: `taps decode ...` is `python -m taps.decode ...`; `taps` lists them by purpose."""

from __future__ import annotations

import ast
import difflib
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from taps import __version__
from taps.plumbing.cli import run
from taps.plumbing.errors import TapsError

PURPOSES = {
    "Before a study": ("config", "plan"),
    "The study's stages, in the order in which the workflow calls them": (
        "fetch", "prepare_target", "tiny_target", "corpus", "regenerate", "prompts", "overlap", "tokenise", "heldout",
        "mixture", "draft_vocab", "features", "join_features", "train", "import_draft", "average", "trace", "bank",
        "join_texts", "calibrate", "fit_router", "replay", "cost", "tune", "live_check",
    ),
    "The report": ("tables", "figures", "claims", "page"),
    "By hand": ("decode", "export_draft", "audit", "show_mask", "speed", "decoding_speed"),
    "Proofs on a finished study, and on this machine": ("lossless", "vllm_check", "check_views", "faults"),
}  # fmt: skip
"""Purpose -> stages."""

STAGES = tuple(stage for stages in PURPOSES.values() for stage in stages)


def overview() -> str:
    """Returns the list of stages, one line each."""
    lines = ["usage: taps STAGE [FLAGS]    taps STAGE --help    taps --version"]
    for purpose, stages in PURPOSES.items():
        lines += ["", f"{purpose}:", *(f"  {stage:<16}{_first_sentence(stage)}" for stage in stages)]
    lines += ["", "The whole study: `snakemake --cores 8 all`, from a checkout of the repository."]
    return "\n".join(lines)


def _first_sentence(stage: str) -> str:
    """Returns the first line of a stage's docstring, read without importing it."""
    source = (Path(__file__).parent / f"{stage}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0].rstrip(".")


def main(argv: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
    elif words[0] == "--version":
        print(f"taps {__version__}")
    else:
        importlib.import_module(f"taps.{_stage(words[0])}").main(words[1:])


def _stage(word: str) -> str:
    """Returns the stage that a word names; hyphens are as good as underscores.

    Raises:
        TapsError: there is no such stage.
    """
    name = word.replace("-", "_")
    if name not in STAGES:
        close = difflib.get_close_matches(name, STAGES, n=1)
        remedy = f"did you mean {close[0]}?" if close else "see taps --help"
        raise TapsError(f"taps {word}", "no such stage", remedy=remedy)
    return name


def script() -> None:
    """The `taps` on the PATH."""
    run(main)


if __name__ == "__main__":
    run(main)
