"""Special tokens of a target, and which of them end an answer: the one definition that every stage uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from taps.data.chat_template import PROBE, RefusedByTemplateError, render
from taps.plumbing.errors import TapsError
from taps.plumbing.strangers import read_object


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Returns the ids of all special tokens: those with a role of their own, and those that are merely declared."""
    added = {id_ for id_, token in tokenizer.added_tokens_decoder.items() if token.special}
    return frozenset(added | set(tokenizer.all_special_ids))


def stop_ids(folder: Path, tokenizer: Any, *, where: Path | None = None) -> frozenset[int]:
    """Returns the ids that end an answer of the model in a folder; none if nothing names one.

    They are those of its config.json and generation_config.json, the tokenizer's own, and the token that its chat
    template puts after an assistant turn: several released models list only the former, and then run on and on.

    Args:
        folder: Of the model.
        tokenizer: Its own.
        where: Names the folder in messages, where that is only its copy.

    Raises:
        TapsError: a file that is no JSON object or names no token, or a chat template that cannot render a
            conversation.
    """
    where = where or Path(folder)
    ids = {tokenizer.eos_token_id, end_of_turn(tokenizer, where=where)} - {None}
    for name in ("config.json", "generation_config.json"):
        path = Path(folder) / name
        value = read_object(path, remedy="fetch the model again").get("eos_token_id") if path.exists() else None
        declared = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(id_, int) and not isinstance(id_, bool) and id_ >= 0 for id_ in declared):
            problem, expected = "eos_token_id is no token", "a number from 0 on, or a list of them"
            raise TapsError(where / name, problem, expected=expected, found=repr(value), remedy="correct it there")
        ids.update(declared)
    return frozenset(ids)


def end_of_turn(tokenizer: Any, *, where: object = "chat template") -> int | None:
    """Returns the token that the chat template puts after an assistant's words, None if it puts text there.

    Blanks may stand between. The token is a special one or one that was added to the vocabulary as a whole: a template
    writes its marks as text, and how they were declared is not its concern.

    Raises:
        TapsError: the template cannot render a conversation.
    """
    try:
        ending = render(tokenizer, PROBE).rpartition(PROBE[-1]["content"])[2]
    except RefusedByTemplateError as error:
        remedy = "name a Jinja file that can in target.chat_template (--chat-template)"
        raise TapsError(where, "its chat template cannot render a conversation", found=error, remedy=remedy) from None
    marks = special_ids(tokenizer) | tokenizer.added_tokens_decoder.keys()
    for id_ in tokenizer(ending, add_special_tokens=False).input_ids:
        if id_ in marks:
            return int(id_)
        if tokenizer.decode([id_]).strip():
            return None
    return None
