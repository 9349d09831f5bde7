"""Conversations that nothing trains on -> prompts: what drafters are judged on before they see a benchmark.

    python -m taps.heldout --corpus results/laptop/corpora/math.jsonl --tokens results/laptop/tokens/math.safetensors \\
        --num-prompts 16 --output results/laptop/prompts/heldout_math.jsonl

Takes the first user turn (with the system turn, if there is one) of the first validation rows and, where these are too
few, of the conversations that follow in the seeded order beyond the size that was tokenised. The target answers them
like any benchmark (`taps.trace`); the traces give tau during training and the calibration of drafters.

Output (JSONL, kind `prompts`): {"id", "category": null, "turns": [question], "reference": null} and, for conversations
that have one, "system".
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taps.data.mixtures import seeded_order, validation_rows
from taps.plumbing.artefacts import read_envelope, read_jsonl, write_jsonl
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.lineage import check_made_from, inputs_of
from taps.plumbing.provenance import provenance

_CHARACTERS_PER_TOKEN = 3  # a question longer than this for each token of max_length might not fit


def to_prompt(conversation: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the prompt that a conversation opens with."""
    texts: dict[str, str] = {}
    for turn in conversation["turns"]:
        texts.setdefault(turn["role"], turn["text"])
    prompt = {"id": conversation["id"], "category": None, "turns": [texts["user"]], "reference": None}
    return prompt | ({"system": texts["system"]} if "system" in texts else {})


def choose(conversations: Mapping[str, Mapping[str, Any]], meta: Mapping[str, Any], num_prompts: int) -> list[str]:
    """Returns at most `num_prompts` ids that are in no mixture's training rows, validation rows first.

    Args:
        conversations: By id: the corpus.
        meta: Of the token file: ids, seed, max_length.
        num_prompts: How many ids are wanted.
    """
    ids = meta["ids"]
    chosen = [ids[row] for row in validation_rows(len(ids))[:num_prompts]]
    known = list(conversations)
    order = [known[i] for i in seeded_order(known, meta["seed"])]
    room = _CHARACTERS_PER_TOKEN * meta["max_length"]
    for id_ in order[order.index(ids[-1]) + 1 :]:
        if len(chosen) == num_prompts:
            break
        prompt = to_prompt(conversations[id_])
        if len(prompt["turns"][0]) + len(prompt.get("system", "")) <= room:
            chosen.append(id_)
    return chosen


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.heldout", __doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="JSONL that was tokenised")
    parser.add_argument(
        "--tokens", type=Path, required=True, help="safetensors of taps.tokenise: which rows, what order"
    )
    parser.add_argument("--num-prompts", type="number", required=True, help="prompts wanted")
    parser.add_argument("--output", type=Path, required=True, help="JSONL to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    cause = "collected" if "collected" in inputs_of(arguments.tokens, kind="tokens") else "corpus"
    check_made_from(arguments.tokens, {cause: arguments.corpus}, kind="tokens")
    meta = read_envelope(arguments.tokens, kind="tokens")["meta"]
    conversations = {row["id"]: row for row in read_jsonl(arguments.corpus, kind="corpus")}
    if missing := [id_ for id_ in meta["ids"] if id_ not in conversations]:
        raise TapsError(arguments.corpus, f"lacks the conversation {missing[0]!r}", expected=f"of {arguments.tokens}")
    chosen = choose(conversations, meta, arguments.num_prompts)
    if len(chosen) < arguments.num_prompts:
        raise TapsError(
            arguments.corpus,
            "too few conversations that nothing trains on",
            expected=arguments.num_prompts,
            found=len(chosen),
            remedy="lower --num-prompts or give the corpus more rows",
        )
    origin = provenance(stage="taps.heldout", inputs={"corpus": arguments.corpus, "tokens": arguments.tokens})
    rows = [to_prompt(conversations[id_]) for id_ in chosen]
    write_jsonl(arguments.output, rows, kind="prompts", provenance=origin)
    validating = len(set(chosen) & set(meta["ids"]))
    print(f"{arguments.output}: {validating} validation rows, {len(rows) - validating} conversations beyond the size")


if __name__ == "__main__":
    run(main)
