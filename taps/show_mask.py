"""Prints a conversation in the target's chat template with its supervised tokens coloured.

    python -m taps.show_mask --target results/laptop/target --corpus results/laptop/corpora/chat.jsonl --row 3

Green is what the target would emit itself and what a draft model learns; dim is context. Special tokens are shown as
they are. Without a terminal (or with `--colour never`) supervised runs stand between the marks `>>` and `<<`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from taps.data.chat import ChatTokenizer, Reason, TokenRow
from taps.plumbing.artefacts import read_jsonl
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError

_COLOURED = {True: ("\x1b[1;32m", "\x1b[0m"), False: ("\x1b[2m", "\x1b[0m")}
_PLAIN = {True: (">>", "<<"), False: ("", "")}


def paint(row: TokenRow, tokenizer: Any, *, colour: bool) -> str:
    """Returns the row's text, its supervised runs in green (or between `>>` and `<<`)."""
    marks = _COLOURED if colour else _PLAIN
    pieces = []
    for supervised, run_of_tokens in groupby(
        zip(row.tokens, row.supervised, strict=True), key=lambda pair: bool(pair[1])
    ):
        before, after = marks[supervised]
        pieces.append(before + tokenizer.decode([int(token) for token, _ in run_of_tokens]) + after)
    return "".join(pieces)


def find(corpus: Path, *, row: int, id_: str | None) -> Mapping[str, Any]:
    """Returns one conversation of a corpus.

    Raises:
        TapsError: there is no such row or id.
    """
    conversations = read_jsonl(corpus, kind="corpus")
    if id_ is None:
        if not 0 <= row < len(conversations):
            raise TapsError(corpus, f"no row {row}", expected=f"0 to {len(conversations) - 1}")
        return conversations[row]
    for conversation in conversations:
        if conversation["id"] == id_:
            return conversation
    raise TapsError(corpus, f"no conversation {id_!r}", remedy="see the ids in the file, or use --row")


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.show_mask", __doc__)
    parser.add_argument("--target", type=Path, required=True, help="folder of the target; only its tokenizer is loaded")
    parser.add_argument("--corpus", type=Path, required=True, help="JSONL of taps.corpus")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--row", type="count", default=0, help="line of the corpus, from 0 (default: 0)")
    which.add_argument("--id", help="id of the conversation")
    parser.add_argument("--max-length", type="number", help="cut the conversation at this many tokens")
    parser.add_argument("--colour", choices=("auto", "always", "never"), default="auto")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    options = build_parser().parse_args(argv)
    conversation = find(options.corpus, row=options.row, id_=options.id)
    chat = ChatTokenizer.load(options.target)
    (row,) = chat.encode([conversation["turns"]], max_length=options.max_length)
    if isinstance(row, Reason):
        raise TapsError(options.corpus, f"conversation {conversation['id']!r} is dropped by taps.tokenise", found=row)
    colour = options.colour == "always" or (options.colour == "auto" and sys.stdout.isatty())
    print(paint(row, chat.tokenizer, colour=colour))
    print(f"{conversation['id']}: {len(row.tokens)} tokens, {int(row.supervised.sum())} supervised", file=sys.stderr)


if __name__ == "__main__":
    run(main)
