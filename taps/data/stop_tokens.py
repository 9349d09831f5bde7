"""Special tokens of a target, and which of them end an answer: the one definition that every stage uses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_PROBE = [{"role": "user", "content": "ping"}, {"role": "assistant", "content": "pong"}]


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Returns the ids of all special tokens: those with a role of their own, and those that are merely declared."""
    added = {id_ for id_, token in tokenizer.added_tokens_decoder.items() if token.special}
    return frozenset(added | set(tokenizer.all_special_ids))


def stop_ids(folder: Path, tokenizer: Any) -> frozenset[int]:
    """Returns the ids that end an answer of the model in a folder; none if nothing names one.

    They are those of its config.json and generation_config.json, the tokenizer's own, and the special token that its
    chat template puts after an assistant turn: several released models list only the former, and then run on and on.
    """
    ids = {tokenizer.eos_token_id, end_of_turn(tokenizer)}
    for name in ("config.json", "generation_config.json"):
        path = Path(folder) / name
        value = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id") if path.exists() else None
        ids.update(value if isinstance(value, list) else [value])
    return frozenset(id_ for id_ in ids if isinstance(id_, int))


def end_of_turn(tokenizer: Any) -> int | None:
    """Returns the special token that the chat template puts right after an assistant's words, None if there is none."""
    ending = str(tokenizer.apply_chat_template(_PROBE, tokenize=False)).rpartition("pong")[2]
    ids = tokenizer(ending, add_special_tokens=False).input_ids
    return int(ids[0]) if ids and ids[0] in special_ids(tokenizer) else None
