"""Corpus -> token lists: each conversation in the target's chat template, with the tokens to be supervised marked.

    python -m taps.tokenise --target results/laptop/target --corpus results/laptop/corpora/math.jsonl \\
        --max-length 512 --max-tokens 60000 --seed 0 \\
        --output results/laptop/tokens/math.safetensors --audit results/laptop/tokens/math.audit.json

Rows are taken in the order of sha256("seed:id") until the size is reached, so a larger size extends a smaller one and
the order does not depend on the corpus file's. Every conversation is in the audit: kept, dropped with a reason, or
beyond the size. A chat template that drops more than a share of them stops the run.

Output (safetensors, kind `tokens`), T tokens of R rows:
    tokens      int32 [T]      rows one after another
    supervised  uint8 [T]      1 for tokens that the target would emit itself
    offsets     int64 [R + 1]  row r is tokens[offsets[r]:offsets[r + 1]]
    meta        ids [R], max_length, template_digest, vocab_size, eos_ids, special_ids, seed
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from taps.data.audit import Audit
from taps.data.chat import ChatTokenizer, Reason, TokenRow
from taps.data.mixtures import BEYOND_SIZE, seeded_order
from taps.data.template_losses import ONLY_LAST_ANSWERS, add_template_drop_flag, check_template_losses
from taps.plumbing.artefacts import read_jsonl, write_json, write_tensors
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.lineage import check_made_from, inputs_of
from taps.plumbing.progress import progress
from taps.plumbing.provenance import provenance

_BATCH = 256  # conversations tokenised at once: the tokenizer's threads are busy, little is done beyond the size


@dataclass(kw_only=True)
class Selection:
    """What was taken of a corpus.

    Attributes:
        audit: What became of every conversation.
        ids: Of the kept conversations, in order.
        rows: Of the kept conversations, in order.
    """

    audit: Audit
    ids: list[str] = field(default_factory=list)
    rows: list[TokenRow] = field(default_factory=list)


def select(
    conversations: Sequence[Mapping[str, Any]],
    chat: ChatTokenizer,
    *,
    source: str = "corpus",
    seed: int,
    max_length: int,
    max_tokens: int | None = None,
    max_rows: int | None = None,
) -> Selection:
    """Returns the rows of a corpus up to a size: kept + dropped = all conversations.

    Args:
        conversations: {"id", "turns"} each, ids unique.
        chat: Renders conversations for the target.
        source: Names the corpus in the audit.
        seed: Decides the order in which they are taken.
        max_length: Tokens kept of each conversation.
        max_tokens: Conversations are taken until this many tokens are reached; the last one may exceed it.
        max_rows: Conversations are taken until there are this many.
    """
    selection, num_tokens = Selection(audit=Audit(source=source)), 0
    order = [conversations[i] for i in seeded_order([row["id"] for row in conversations], seed)]
    for conversation, row in _encoded(order, chat, max_length):
        full = (max_rows is not None and len(selection.rows) >= max_rows) or (
            max_tokens is not None and num_tokens >= max_tokens
        )
        if full:
            break
        if isinstance(row, Reason):
            selection.audit.drop(row, conversation["id"])
            continue
        selection.audit.keep()
        selection.audit.changed["cut at the maximal length"] += row.truncated
        if row.num_rewritten:
            selection.audit.changed[ONLY_LAST_ANSWERS] += 1
        selection.ids.append(conversation["id"])
        selection.rows.append(row)
        num_tokens += len(row.tokens)
    for conversation in order[selection.audit.read :]:
        selection.audit.drop(BEYOND_SIZE, conversation["id"])
    return selection


def _encoded(
    conversations: Sequence[Mapping[str, Any]], chat: ChatTokenizer, max_length: int
) -> Iterator[tuple[Mapping[str, Any], TokenRow | Reason]]:
    """Yields conversations with their rows, tokenising a batch ahead."""
    for start in progress(range(0, len(conversations), _BATCH), what="tokenise", unit="batch"):
        batch = conversations[start : start + _BATCH]
        yield from zip(batch, chat.encode((row["turns"] for row in batch), max_length=max_length), strict=True)


def to_tensors(rows: Iterable[TokenRow]) -> dict[str, np.ndarray]:
    """Returns tokens, supervised and offsets of rows laid end to end."""
    rows = list(rows)
    return {
        "tokens": np.concatenate([row.tokens for row in rows]).astype(np.int32),
        "supervised": np.concatenate([row.supervised for row in rows]).astype(np.uint8),
        "offsets": np.cumsum([0, *(len(row.tokens) for row in rows)], dtype=np.int64),
    }


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.tokenise", __doc__)
    parser.add_argument("--target", type=Path, required=True, help="folder of the target; only its tokenizer is loaded")
    parser.add_argument("--corpus", type=Path, required=True, help="JSONL of taps.corpus or taps.regenerate")
    parser.add_argument("--max-length", type="number", required=True, help="tokens kept of each conversation")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--max-tokens", type="number", help="take conversations until this many tokens are reached")
    size.add_argument("--max-rows", type="number", help="take this many conversations")
    parser.add_argument("--seed", type="seed", required=True, help="seed of the order of rows")
    add_template_drop_flag(parser)
    parser.add_argument("--output", type=Path, required=True, help="safetensors to write")
    parser.add_argument("--audit", type=Path, required=True, help="JSON to write: read = kept + dropped, with reasons")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    options = build_parser().parse_args(argv)
    check_made_from(options.corpus, {"target": options.target}, kind="corpus")  # if a target answered it
    chat = ChatTokenizer.load(options.target)
    conversations = read_jsonl(options.corpus, kind="corpus")
    selection = select(
        conversations,
        chat,
        source=options.corpus.name,
        seed=options.seed,
        max_length=options.max_length,
        max_tokens=options.max_tokens,
        max_rows=options.max_rows,
    )
    if not selection.rows:
        raise TapsError(options.corpus, f"no conversation can be used ({selection.audit})")
    check_template_losses(selection.audit, most=options.max_template_drop, where=options.corpus)
    tensors = to_tensors(selection.rows)
    inputs: dict[str, Path | str] = {"target": options.target, "corpus": options.corpus}
    if collected := inputs_of(options.corpus, kind="corpus").get("corpus"):
        inputs["collected"] = collected  # the conversations that a target answered anew; `taps.heldout` reads them
    origin = provenance(stage="taps.tokenise", inputs=inputs, seed=options.seed)
    write_tensors(
        options.output,
        tensors,
        kind="tokens",
        provenance=origin,
        meta={
            "ids": selection.ids,
            "max_length": options.max_length,
            "template_digest": chat.template_digest,
            "vocab_size": _vocab_size(options.target),
            "eos_ids": chat.eos_ids,
            "special_ids": chat.special_ids,
            "seed": options.seed,
        },
    )
    size = f"{len(tensors['tokens'])} tokens, {int(tensors['supervised'].sum())} of them supervised"
    selection.audit.notes.append(size)
    write_json(options.audit, selection.audit.content(), kind="audit", provenance=origin)
    print(f"{selection.audit}; {size}")


def _vocab_size(target: Path) -> int:
    """Returns the rows of the target's embedding, which may exceed the tokenizer's entries."""
    return int(json.loads((target / "config.json").read_text(encoding="utf-8"))["vocab_size"])


if __name__ == "__main__":
    run(main)
