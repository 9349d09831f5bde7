"""Texts out of the fields of other people's records, and why one cannot be used.

A key that is null is an absent key: tables with a union schema hold every key of every source. Text keeps every
character but outer blanks and carriage returns: markup, zero-width and right-to-left characters and special tokens are
what people really sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

REASONING_LEFT_OUT = "reasoning left out"
"""Note on a text whose reasoning stands in a field of its own, which is not part of the answer."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_TEXT_PARTS = (None, "text", "input_text", "output_text")
_REASONING_PARTS = ("reasoning", "thinking", "redacted_thinking", "reasoning_text")
_MEDIA = ("image", "images", "audio", "audios", "video", "videos")
_TOOL_PARTS = ("tool_call", "tool_use", "tool_result", "function_call", "function_call_output")


class Reason(StrEnum):
    """Why a record was dropped, or a turn of it ended the conversation. A reader may have codes of its own."""

    NOT_AN_OBJECT = "not_an_object"
    MISSING_CONVERSATION = "missing_conversation"
    CONVERSATION_NOT_A_LIST = "conversation_not_a_list"
    NO_TURNS = "no_turns"
    TURN_NOT_AN_OBJECT = "turn_not_an_object"
    MISSING_ROLE = "missing_role"
    UNKNOWN_ROLE = "unknown_role"
    MISSING_TEXT = "missing_text"
    TEXT_NOT_A_STRING = "text_not_a_string"
    NOT_ONLY_TEXT = "not_only_text"
    EMPTY_TEXT = "empty_text"
    NUL_CHARACTER = "nul_character"
    LONE_SURROGATE = "lone_surrogate"
    TOOL_USE = "tool_use"
    NO_USER_TURN = "no_user_turn"
    NO_ANSWER = "no_answer"
    SAME_ROLE_TWICE = "same_role_twice"
    EMPTY_INSTRUCTION = "empty_instruction"
    EMPTY_OUTPUT = "empty_output"
    DUPLICATE = "duplicate_conversation"


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text that can be used.

    Attributes:
        text: What was said, not empty.
        notes: What was done to it, in the audit's words.
    """

    text: str
    notes: tuple[str, ...] = ()


def first_present(record: Mapping[str, Any], keys: Iterable[str]) -> Any:
    """Returns the value of the first key that holds something, else one that is blank or empty, else None."""
    blank = None
    for key in keys:
        value = record.get(key)
        if value is None or value != value:  # NaN is what tables write for null
            continue
        if value.strip() if isinstance(value, str) else value or not isinstance(value, list | Mapping):
            return value
        blank = value
    return blank


def has_media(record: Mapping[str, Any]) -> bool:
    """Returns whether a picture, sound or film belongs to a record's text."""
    return bool(first_present(record, _MEDIA))


def clean_text(value: Any) -> str | Reason:
    """Returns a text without outer blanks and carriage returns, or why it cannot be used."""
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


def read_text(value: Any) -> Text | Reason:
    """Returns a text that is given as one string, or as parts [{"type": "text", "text": ...}, ...], joined by lines.

    Parts may be strings, too, and a lone one need not stand in a list.
    """
    parts = [value] if isinstance(value, Mapping) else value
    if not isinstance(parts, list) or not parts or not all(isinstance(part, Mapping | str) for part in parts):
        text = clean_text(value)
        return text if isinstance(text, Reason) else Text(text=text)
    texts: list[str] = []
    notes: tuple[str, ...] = ()
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        kind = first_present(part, ("type",))
        if kind in _REASONING_PARTS:
            notes = (REASONING_LEFT_OUT,)
        elif kind in _TOOL_PARTS:
            return Reason.TOOL_USE
        elif kind not in _TEXT_PARTS:
            return Reason.NOT_ONLY_TEXT
        elif (text := first_present(part, ("text", "content", "value"))) is not None:
            if not isinstance(text, str):
                return Reason.TEXT_NOT_A_STRING
            texts.append(text)
        elif kind is None and any(part.values()):
            return Reason.NOT_ONLY_TEXT
    joined = clean_text("\n".join(texts))
    return joined if isinstance(joined, Reason) else Text(text=joined, notes=notes)


def as_list(value: Any) -> list[Any] | None:
    """Returns the items of a list, of one written as JSON text, or of columns {"role": [...], "content": [...]}."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value, strict=False)
        except (ValueError, RecursionError):
            return None
    if isinstance(value, Mapping):
        columns = [column for column in value.values() if column is not None]
        if not columns or not all(isinstance(column, list) for column in columns):
            return None
        if len({len(column) for column in columns}) > 1:
            return None
        names = [name for name, column in value.items() if column is not None]
        return [dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True)]
    return value if isinstance(value, list) else None
