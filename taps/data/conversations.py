"""Conversations out of other people's records: which turns can be used, and why not the others.

Two shapes of record are known: lists of turns (ShareGPT, `messages`) and pairs (MathInstruct: instruction and output).
A conversation is trimmed to its first user turn (leading system and developer turns stay, as one), cut where user and
assistant stop taking turns or a turn cannot be used, and ends with an assistant turn. An answer that calls a tool is no
answer in words: the conversation ends before it, so that no end of turn is taught in the call's place. Instructions
that cannot be used, and pictures, take their conversation with them: without them it would mean something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from taps.data.texts import REASONING_LEFT_OUT, Reason, Text, as_list, clean_text, first_present, has_media, read_text

TRIMMED = "trimmed to the first user turn or cut at a break"
TOOLS_LEFT_OUT = "descriptions of tools left out"
UNTAUGHT = "with answers that are marked as not to be learnt, and are not supervised"

ROLES = {
    **dict.fromkeys(("human", "user", "prompter"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bing", "bard", "model", "bot", "chatbot", "ai"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
}
"""Name of a speaker in lower case -> role."""

TURN_LISTS = ("conversations", "messages", "conversation", "turns", "contents")
"""Keys under which records hold a list of turns."""

INSTRUCTIONS = ("instruction", "question", "problem", "query", "prompt")
"""Keys under which records hold what was asked."""

_NAMES = ("from", "role")
_TEXTS = ("value", "content", "text", "parts")
_TOOL_ROLES = (
    *("tool", "tool_call", "tool_use", "tool_response", "tool_result", "tool_results", "tool_output"),
    *("function", "function_call", "function_response", "observation", "environment", "ipython"),
)
_TOOL_CALLS = ("tool_calls", "tool_call", "function_call")
_TOOLS = ("tools", "functions")
_REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking", "thought")
_REASONING_ROLES = ("reasoning", "thinking", "thought", "thoughts", "analysis")
_SYSTEM = ("system", "system_prompt", "system_message")
_UNTAUGHT = (("weight", 0), ("train", False), ("trainable", False))
_NOTHING_SAID = (Reason.TURN_NOT_AN_OBJECT, Reason.MISSING_ROLE, Reason.MISSING_TEXT, Reason.EMPTY_TEXT)
_OUTPUTS = ("output", "response", "answer", "solution", "completion")


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Something said.

    Attributes:
        role: `system`, `user` or `assistant`.
        text: What was said, not empty.
        notes: What was done to it, in the audit's words.
        taught: False for an answer that its authors do not want learnt.
    """

    role: str
    text: str
    notes: tuple[str, ...] = ()
    taught: bool = True

    def row(self) -> dict[str, Any]:
        """Returns the turn as a corpus file holds it."""
        return {"role": self.role, "text": self.text} | ({} if self.taught else {"taught": False})


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """What a record gives.

    Attributes:
        turns: A system turn if there is one, then user and assistant by turns, the assistant last.
        notes: What was done to the record, in the audit's words.
    """

    turns: list[Turn]
    notes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """Returns the turns as a corpus file holds them."""
        return [turn.row() for turn in self.turns]

    def all_notes(self) -> list[str]:
        """Returns each note once."""
        return list(dict.fromkeys([*self.notes, *(note for turn in self.turns for note in turn.notes)]))


# --- lists of turns --------------------------------------------------------------------------------------------------


def from_turns(record: Mapping[str, Any]) -> Conversation | Reason:
    """Returns the conversation that a record holds as a list of turns."""
    value = first_present(record, TURN_LISTS)
    if value is None:
        return Reason.MISSING_CONVERSATION
    listed = as_list(value)
    if listed is None:
        return Reason.CONVERSATION_NOT_A_LIST
    return usable_part(listed, record)


def usable_part(listed: Sequence[Any], record: Mapping[str, Any]) -> Conversation | Reason:
    """Returns the usable part of a list of turns; the record may hold a system text beside it."""
    if has_media(record):
        return Reason.NOT_ONLY_TEXT
    own_system = _own_system(record)
    if isinstance(own_system, Reason):
        return own_system
    spoken = [turn for turn in listed if not _is_reasoning(turn)]
    turns = [clean_turn(turn) for turn in spoken]
    if not turns:
        return Reason.NO_TURNS
    start = next((i for i, turn in enumerate(turns) if isinstance(turn, Turn) and turn.role == "user"), None)
    if start is None:
        return next((turn for turn in turns if isinstance(turn, Reason)), Reason.NO_USER_TURN)
    for turn, found in zip(spoken, turns[:start], strict=False):
        if isinstance(found, Reason) and found not in _NOTHING_SAID and ROLES.get(_speaker(turn)) != "assistant":
            return found
    exchange, ending = alternating(turns[start:])
    if not exchange:
        return ending
    lead = [turn for turn in turns[:start] if isinstance(turn, Turn) and turn.role == "system"]
    shortened = len(lead) + len(exchange) < len(turns)
    notes = {
        TRIMMED: shortened,
        TOOLS_LEFT_OUT: _holds(record, _TOOLS),
        REASONING_LEFT_OUT: len(spoken) < len(listed),
    }
    system = _system_turn([*own_system, *(turn.text for turn in lead)])
    return Conversation(turns=system + exchange, notes=tuple(note for note, holds in notes.items() if holds))


def clean_turn(turn: Any) -> Turn | Reason:
    """Returns a turn in our spelling, or why it cannot be used."""
    if not isinstance(turn, Mapping):
        return Reason.TURN_NOT_AN_OBJECT
    if first_present(turn, _NAMES) is None:
        return Reason.MISSING_ROLE
    name = _speaker(turn)
    if name in _TOOL_ROLES or _holds(turn, _TOOL_CALLS) or first_present(turn, ("recipient",)) not in (None, "", "all"):
        return Reason.TOOL_USE
    if name not in ROLES:
        return Reason.UNKNOWN_ROLE
    value = first_present(turn, _TEXTS)
    if value is None:
        return Reason.MISSING_TEXT
    text = Reason.NOT_ONLY_TEXT if has_media(turn) else read_text(value)
    if isinstance(text, Reason):
        return text
    notes = (REASONING_LEFT_OUT,) if first_present(turn, _REASONING) else text.notes
    taught = ROLES[name] != "assistant" or not any(turn.get(key) == value for key, value in _UNTAUGHT)
    return Turn(role=ROLES[name], text=text.text, notes=notes if taught else (*notes, UNTAUGHT), taught=taught)


def _speaker(turn: Any) -> str:
    """Returns who speaks, in our spelling of names; empty if nobody is named."""
    name = first_present(turn, _NAMES) if isinstance(turn, Mapping) else None
    return name.strip().lower().replace("-", "_").replace(" ", "_") if isinstance(name, str) else ""


def _is_reasoning(turn: Any) -> bool:
    """Returns whether a turn is what the assistant thought before its answer, as GPT-OSS's channel `analysis` is."""
    is_told = isinstance(turn, Mapping) and turn.get("channel") == "analysis"
    return is_told or _speaker(turn) in _REASONING_ROLES


def _holds(record: Mapping[str, Any], keys: Sequence[str]) -> bool:
    """Returns whether a key holds something, be it as JSON text."""
    found = first_present(record, keys)
    return bool(found) and not (isinstance(found, str) and found.strip() in ("", "[]", "{}", "null"))


def alternating(turns: Sequence[Turn | Reason]) -> tuple[list[Turn], Reason]:
    """Returns the longest beginning that alternates user, assistant, ..., assistant, and what ended it."""
    exchange: list[Turn] = []
    ending = Reason.NO_ANSWER
    for turn in turns:
        if isinstance(turn, Reason):
            ending = turn
            break
        if turn.role != ("user", "assistant")[len(exchange) % 2]:
            ending = Reason.SAME_ROLE_TWICE
            break
        exchange.append(turn)
    usable = len(exchange) // 2 * 2
    if ending is Reason.TOOL_USE and usable == len(exchange):  # the last answer went on with a call
        usable = max(0, usable - 2)
    return exchange[:usable], ending


def _own_system(record: Mapping[str, Any]) -> list[str] | Reason:
    """Returns the system text that stands beside the turns, if there is one."""
    text = read_text(first_present(record, _SYSTEM) or "")
    if isinstance(text, Reason):
        return [] if text is Reason.EMPTY_TEXT else text
    return [text.text]


def _system_turn(texts: Sequence[str]) -> list[Turn]:
    """Returns one system turn of all texts, each once; none of none."""
    return [Turn(role="system", text="\n\n".join(dict.fromkeys(texts)))] if texts else []


# --- pairs -----------------------------------------------------------------------------------------------------------


def from_pair(record: Mapping[str, Any]) -> Conversation | Reason:
    """Returns the two turns of a record of instruction and output, behind the system text and history beside them.

    An `input` is appended to the instruction. Both may be lists of turns (prompt and completion of a chat).
    """
    instruction, output = first_present(record, INSTRUCTIONS), first_present(record, _OUTPUTS)
    if isinstance(instruction, list) and isinstance(output, list):
        return usable_part([*instruction, *output], record)
    if has_media(record):
        return Reason.NOT_ONLY_TEXT
    question, answer = read_text(instruction), read_text(output)
    if isinstance(question, Reason):
        return Reason.EMPTY_INSTRUCTION if question in (Reason.EMPTY_TEXT, Reason.TEXT_NOT_A_STRING) else question
    if isinstance(answer, Reason):
        return Reason.EMPTY_OUTPUT if answer in (Reason.EMPTY_TEXT, Reason.TEXT_NOT_A_STRING) else answer
    asked = _with_input(question, first_present(record, ("input",)))
    history = _history(first_present(record, ("history",)))
    system = _own_system(record)
    for part in (asked, history, system):
        if isinstance(part, Reason):
            return part
    assert isinstance(asked, str)
    assert isinstance(history, list)
    assert isinstance(system, list)
    pair = [Turn(role="user", text=asked), Turn(role="assistant", text=answer.text, notes=answer.notes)]
    return Conversation(turns=_system_turn(system) + history + pair)


def _with_input(question: Text, value: Any) -> str | Reason:
    context = clean_text("" if value is None else value)
    if context is Reason.EMPTY_TEXT:
        return question.text
    return context if isinstance(context, Reason) else f"{question.text}\n\n{context}"


def _history(value: Any) -> list[Turn] | Reason:
    """Returns the turns of earlier pairs [[question, answer], ...]."""
    turns: list[Turn] = []
    for pair in as_list(value) or ():
        if not isinstance(pair, list) or len(pair) != 2:
            return Reason.CONVERSATION_NOT_A_LIST
        for role, said in zip(("user", "assistant"), pair, strict=True):
            text = clean_text(said)
            if isinstance(text, Reason):
                return text
            turns.append(Turn(role=role, text=text))
    return turns
