"""Conversations in the making: each question is answered after the answers before it, many conversations at a time.

The one loop over turns: `taps.trace` records with it, `taps.regenerate` rewrites a corpus with it, `taps.decode` talks.
So the same conversation gives the same prompt in all three, system turn and earlier answers included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PROMPT_TOO_LONG = "prompt_too_long"

Turn = dict[str, Any]  # {"role": "system" | "user" | "assistant", "text": str}


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Why a conversation ended before all its questions were answered.

    Attributes:
        reason: A code, e.g. PROMPT_TOO_LONG.
        turn: The question at which it ended, from 0.
        num_tokens: Of that question's prompt; None if it could not be rendered.
    """

    reason: str
    turn: int
    num_tokens: int | None = None


@dataclass(kw_only=True)
class Dialogue:
    """One conversation.

    Attributes:
        id: Its name, which seeds the draws.
        questions: User turns, to be asked one after the other.
        said: Turns so far: a system turn, if there is one, then questions and answers.
        ended: Why not all questions were asked, if so.
    """

    id: str
    questions: list[Turn]
    said: list[Turn] = field(default_factory=list)
    ended: Ending | None = None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question that waits for its answer.

    Attributes:
        dialogue: Where it is asked.
        turn: Its number among the questions, from 0.
        tokens: The conversation up to here, ready for the assistant's words.
    """

    dialogue: Dialogue
    turn: int
    tokens: list[int]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What was answered.

    Attributes:
        turn: The assistant's turn; None leaves the question out, too.
        ends: Why the conversation goes no further, if so.
    """

    turn: Turn | None
    ends: str | None = None

    @staticmethod
    def of(text: str) -> Reply:
        """Returns an answer after which the conversation goes on."""
        return Reply(turn={"role": "assistant", "text": text})


Encode = Callable[[Sequence[Sequence[Turn]]], Sequence[list[int] | str]]
"""Conversations that end with the user's turn -> their tokens, or a reason why there are none."""


def from_prompt(row: Mapping[str, Any]) -> Dialogue:
    """Returns the conversation of a benchmark's prompt {"id", "turns": [text, ...], "system" if it has one}."""
    system = [{"role": "system", "text": row["system"]}] if row.get("system") else []
    return Dialogue(id=row["id"], questions=[{"role": "user", "text": text} for text in row["turns"]], said=system)


def from_conversation(row: Mapping[str, Any]) -> Dialogue:
    """Returns the conversation of a corpus row {"id", "turns": [{"role", "text"}, ...]} without its answers."""
    system = [dict(turn) for turn in row["turns"][:1] if turn["role"] == "system"]
    questions = [dict(turn) for turn in row["turns"] if turn["role"] == "user"]
    return Dialogue(id=row["id"], questions=questions, said=system)


def converse(
    dialogues: Sequence[Dialogue],
    *,
    encode: Encode,
    reply: Callable[[Sequence[Asked]], Sequence[Reply]],
    max_length: int,
    batch_size: int,
) -> None:
    """Asks all questions, turn by turn; prompts of like length share a batch. Fills `said` and `ended`.

    Args:
        dialogues: That have said nothing yet but their system turn.
        encode: Turns conversations into tokens, or says why it cannot.
        reply: Answers a batch of at most `batch_size` questions, in their order.
        max_length: Tokens of the context; a prompt that leaves no room in it ends its conversation.
        batch_size: Most questions that are answered together.
    """
    for number in range(max((len(dialogue.questions) for dialogue in dialogues), default=0)):
        due = [one for one in dialogues if one.ended is None and number < len(one.questions)]
        ready: list[Asked] = []
        for dialogue, tokens in zip(due, encode([[*one.said, one.questions[number]] for one in due]), strict=True):
            if isinstance(tokens, str):
                dialogue.ended = Ending(reason=tokens, turn=number)
            elif len(tokens) >= max_length:
                dialogue.ended = Ending(reason=PROMPT_TOO_LONG, turn=number, num_tokens=len(tokens))
            else:
                ready.append(Asked(dialogue=dialogue, turn=number, tokens=tokens))
        ready.sort(key=lambda asked: len(asked.tokens))  # neighbours of like length: little padding
        for batch in batches(ready, batch_size):
            for asked, answer in zip(batch, reply(batch), strict=True):
                if answer.turn is not None:
                    asked.dialogue.said += [asked.dialogue.questions[number], answer.turn]
                if answer.ends is not None:
                    asked.dialogue.ended = Ending(reason=answer.ends, turn=number, num_tokens=len(asked.tokens))


def batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Returns the items in groups of `size`, the last one perhaps smaller."""
    return (items[start : start + size] for start in range(0, len(items), size))
