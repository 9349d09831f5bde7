"""Conversations out of other people's files: which turns of a record can be used, and why not the others.

Two shapes of record are known: lists of turns (ShareGPT, `messages`) and instruction/output pairs (MathInstruct).
A conversation is trimmed to its first user turn (a leading system turn stays), cut where user and assistant stop
taking turns or a turn cannot be used, and ends with an assistant turn. Text keeps every character but outer blanks and
carriage returns: markup, zero-width and right-to-left characters and special tokens are what people really sent.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from taps.data.audit import Audit
from taps.data.json_stream import Record

Turn = dict[str, str]  # {"role": "system" | "user" | "assistant", "text": str}

ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bing", "bard"), "assistant"),
    "system": "system",
}
"""Name of a speaker in lower case -> role."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_TURN_LISTS = ("conversations", "messages", "conversation")
_INSTRUCTIONS = ("instruction", "question", "problem")
_OUTPUTS = ("output", "response", "answer", "solution")


class Reason(StrEnum):
    """Why a record was dropped."""

    NOT_AN_OBJECT = "not_an_object"
    MISSING_CONVERSATION = "missing_conversation"
    CONVERSATION_NOT_A_LIST = "conversation_not_a_list"
    NO_TURNS = "no_turns"
    TURN_NOT_AN_OBJECT = "turn_not_an_object"
    MISSING_ROLE = "missing_role"
    UNKNOWN_ROLE = "unknown_role"
    MISSING_TEXT = "missing_text"
    TEXT_NOT_A_STRING = "text_not_a_string"
    EMPTY_TEXT = "empty_text"
    NUL_CHARACTER = "nul_character"
    LONE_SURROGATE = "lone_surrogate"
    NO_USER_TURN = "no_user_turn"
    NO_ANSWER = "no_answer"
    SAME_ROLE_TWICE = "same_role_twice"
    EMPTY_INSTRUCTION = "empty_instruction"
    EMPTY_OUTPUT = "empty_output"
    DUPLICATE = "duplicate_conversation"


# --- one record ------------------------------------------------------------------------------------------------------


def clean_text(value: Any) -> str | Reason:
    """Returns a turn's text without outer blanks and carriage returns, or why it cannot be used."""
    if not isinstance(value, str):
        return Reason.TEXT_NOT_A_STRING
    text = value.replace("\r\n", "\n").replace("\r", "\n").strip()
    if not text:
        return Reason.EMPTY_TEXT
    if "\0" in text:
        return Reason.NUL_CHARACTER
    if _SURROGATE.search(text):
        return Reason.LONE_SURROGATE
    return text


def clean_turn(turn: Any) -> Turn | Reason:
    """Returns a turn in our spelling, or why it cannot be used."""
    if not isinstance(turn, Mapping):
        return Reason.TURN_NOT_AN_OBJECT
    name = turn.get("from", turn.get("role"))
    if name is None:
        return Reason.MISSING_ROLE
    role = ROLES.get(name.strip().lower()) if isinstance(name, str) else None
    if role is None:
        return Reason.UNKNOWN_ROLE
    if "value" not in turn and "content" not in turn:
        return Reason.MISSING_TEXT
    text = clean_text(turn.get("value", turn.get("content")))
    return text if isinstance(text, Reason) else {"role": role, "text": text}


def clean_conversation(record: Mapping[str, Any]) -> tuple[list[Turn] | Reason, bool]:
    """Returns (usable turns, whether any were trimmed or cut off), or (why there are none, False)."""
    key = next((key for key in _TURN_LISTS if key in record), None)
    if key is None:
        return Reason.MISSING_CONVERSATION, False
    if not isinstance(record[key], list):
        return Reason.CONVERSATION_NOT_A_LIST, False
    turns = [clean_turn(turn) for turn in record[key]]
    if not turns:
        return Reason.NO_TURNS, False
    lead = [turn for turn in turns[:1] if not isinstance(turn, Reason) and turn["role"] == "system"]
    start = next((i for i, turn in enumerate(turns) if not isinstance(turn, Reason) and turn["role"] == "user"), None)
    if start is None:
        return next((turn for turn in turns if isinstance(turn, Reason)), Reason.NO_USER_TURN), False
    exchange, ending = alternating(turns[start:])
    if not exchange:
        return ending, False
    return lead + exchange, len(lead) + len(exchange) < len(turns)


def alternating(turns: Sequence[Turn | Reason]) -> tuple[list[Turn], Reason]:
    """Returns the longest beginning that alternates user, assistant, ..., assistant, and what ended it."""
    exchange: list[Turn] = []
    ending = Reason.NO_ANSWER
    for turn in turns:
        if isinstance(turn, Reason):
            ending = turn
            break
        if turn["role"] != ("user", "assistant")[len(exchange) % 2]:
            ending = Reason.SAME_ROLE_TWICE
            break
        exchange.append(turn)
    return exchange[: len(exchange) // 2 * 2], ending


def clean_instruction(record: Mapping[str, Any]) -> list[Turn] | Reason:
    """Returns the two turns of an instruction/output record (an `input` is appended to the instruction)."""
    question = clean_text(next((record[key] for key in _INSTRUCTIONS if key in record), None))
    answer = clean_text(next((record[key] for key in _OUTPUTS if key in record), None))
    if isinstance(question, Reason):
        return Reason.EMPTY_INSTRUCTION if question in (Reason.EMPTY_TEXT, Reason.TEXT_NOT_A_STRING) else question
    if isinstance(answer, Reason):
        return Reason.EMPTY_OUTPUT if answer in (Reason.EMPTY_TEXT, Reason.TEXT_NOT_A_STRING) else answer
    context = clean_text(record.get("input"))
    if not isinstance(context, Reason):
        question = f"{question}\n\n{context}"
    return [{"role": "user", "text": question}, {"role": "assistant", "text": answer}]


# --- many records ----------------------------------------------------------------------------------------------------


def read_conversations(records: Iterable[Record], audit: Audit, *, reader: str) -> Iterator[dict[str, Any]]:
    """Yields corpus rows {"id", "turns"} with unique ids and fills the audit.

    Args:
        records: As `stream_json` yields them.
        audit: Counts every record.
        reader: `sharegpt` (lists of turns), `instruction` (pairs) or `hub` (whichever a record looks like).
    """
    ids, contents = UniqueIds(), set[bytes]()
    for record in records:
        name = record_id(record)
        turns, shortened = _clean(record, reader)
        if isinstance(turns, str):
            audit.drop(turns, name)
            continue
        content = hashlib.sha256(repr(turns).encode()).digest()
        if content in contents:
            audit.drop(Reason.DUPLICATE, name)
            continue
        contents.add(content)
        audit.keep()
        if shortened:
            audit.changed["trimmed to the first user turn or cut at a break"] += 1
        yield {"id": ids.unique(name), "turns": turns}


def _clean(record: Record, reader: str) -> tuple[list[Turn] | str, bool]:
    if record.problem:
        return record.problem, False
    if not isinstance(record.value, Mapping):
        return Reason.NOT_AN_OBJECT, False
    pair = reader == "instruction" or (reader == "hub" and not any(key in record.value for key in _TURN_LISTS))
    return (clean_instruction(record.value), False) if pair else clean_conversation(record.value)


def record_id(record: Record) -> str:
    """Returns the record's own id as text, or its position for records that have none."""
    if isinstance(record.value, Mapping):
        for key in ("id", "question_id", "prompt_id", "unique_id", "ID"):
            value = record.value.get(key)
            if isinstance(value, int) or (isinstance(value, str) and value.strip() and clean_text(value) == value):
                return str(value)
    return str(record.index)


class UniqueIds:
    """Makes ids unique: the second `x` becomes `x#2`."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def unique(self, name: str) -> str:
        """Returns `name`, with a number behind it if it was given out before."""
        candidate, number = name, 1
        while candidate in self._seen:
            number += 1
            candidate = f"{name}#{number}"
        self._seen.add(candidate)
        return candidate
