"""What a reader of benchmark prompts is: a function of one record, registered under its name with its traits.

The readers themselves are in `taps.data.prompt_readers`; `PROMPT_READERS.find` gives one by name. All of them also take
the `question.jsonl` form (turns, category, reference) of the files that the field passes around. Prompts that occur
twice are kept: a benchmark's numbers are over all of its questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from taps.data.audit import Audit
from taps.data.conversations import ROLES
from taps.data.json_stream import Record
from taps.data.parts import OTHER_PART, Part
from taps.data.record_ids import UniqueIds, record_id
from taps.data.texts import Reason, as_list, clean_text, first_present, has_media, read_text
from taps.plumbing.catalogue import Catalogue

WITHOUT_REFERENCE = "without a reference answer"
ANSWERS_LEFT_OUT = "answers between the questions left out: the target gives its own"

_TURNS = ("turns", "prompt", "messages")


class PromptReason(StrEnum):
    """Why a benchmark record gives no prompt, beside the reasons of `taps.data.texts`."""

    MISSING_QUESTION = "missing_question"
    TURNS_NOT_A_LIST = "turns_not_a_list"
    ONE_TURN_ONLY = "one_turn_only"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """What a record gives.

    Attributes:
        turns: The user's, in order.
        category: The benchmark's own.
        reference: Answers known to be right.
        system: A system text, where the benchmark has one.
        notes: What was done to the record, in the audit's words.
    """

    turns: list[str]
    category: str | None = None
    reference: list[str] | None = None
    system: str | None = None
    notes: tuple[str, ...] = ()

    def row(self) -> dict[str, Any]:
        """Returns it as a prompts file holds it, but for its id."""
        row = {"category": self.category, "turns": self.turns, "reference": self.reference}
        return row | ({"system": self.system} if self.system else {})


Read = Callable[[Mapping[str, Any]], Prompt | StrEnum]


@dataclass(frozen=True, kw_only=True)
class PromptReader:
    """A registered reader.

    Attributes:
        name: As in the config.
        title: The benchmark's name in print; None for a reader of any benchmark.
        read: Record -> its prompt, or the code of why there is none.
        num_turns: Of a prompt, to plan with.
        generate: (task, rows, seed, templates) -> records, for a reader that makes them itself; None: it reads files.
    """

    name: str
    title: str | None
    read: Read
    num_turns: int = 1
    generate: Callable[..., Iterator[Record]] | None = None

    @property
    def is_generated(self) -> bool:
        """Whether it needs a task instead of assets."""
        return self.generate is not None


PROMPT_READERS: Catalogue[PromptReader] = Catalogue("taps.data.prompt_readers", what="prompt reader")


def prompt_reader(
    *, title: str | None = None, num_turns: int = 1, generate: Callable[..., Iterator[Record]] | None = None
) -> Callable[[Read], PromptReader]:
    """Makes a reader of a function and registers it under the function's name. Arguments as in PromptReader."""

    def register(read: Read) -> PromptReader:
        entry = PromptReader(name=read.__name__, title=title, read=read, num_turns=num_turns, generate=generate)
        PROMPT_READERS.register(entry.name, entry, module=read.__module__)
        return entry

    return register


# --- one record ------------------------------------------------------------------------------------------------------


def listed_turns(record: Mapping[str, Any]) -> Prompt | Reason | PromptReason:
    """Returns the prompt of a record with `turns` (or `prompt`, `messages`), `category` and `reference`.

    The turns are texts, one text, or messages with roles: then the user's are asked, behind the system's, and a last
    answer is the reference.
    """
    value = first_present(record, _TURNS)
    if value is None:
        return PromptReason.MISSING_QUESTION
    turns = as_list(value) or ([value] if isinstance(value, str) else value)
    if not isinstance(turns, list):
        return PromptReason.TURNS_NOT_A_LIST
    turns = [turn for turn in turns if turn is not None]
    if not turns:
        return Reason.NO_TURNS
    category = first_present(record, ("category",))
    facts: dict[str, Any] = {"category": category if isinstance(category, str) else None}
    reference = references(first_present(record, ("reference",)))
    if all(isinstance(turn, Mapping) for turn in turns):
        return _from_messages(turns, reference, facts)
    texts = [clean_text(turn) for turn in turns]
    if bad := next((text for text in texts if isinstance(text, Reason)), None):
        return bad
    return Prompt(turns=texts, reference=reference, **facts)


def _from_messages(
    messages: list[Mapping[str, Any]], reference: list[str] | None, facts: dict[str, Any]
) -> Prompt | Reason:
    said: dict[str, list[str]] = {"system": [], "user": [], "assistant": []}
    roles = []
    for message in messages:
        name = first_present(message, ("from", "role"))
        role = ROLES.get(name.strip().lower()) if isinstance(name, str) else None
        if role is None:
            return Reason.MISSING_ROLE if name is None else Reason.UNKNOWN_ROLE
        text = read_text(first_present(message, ("value", "content", "text")))
        if isinstance(text, Reason):
            return text
        said[role].append(text.text)
        roles.append(role)
    if not said["user"]:
        return Reason.NO_USER_TURN
    answered = roles[-1] == "assistant"
    between = len(said["assistant"]) > answered
    return Prompt(
        turns=said["user"],
        reference=reference or (said["assistant"][-1:] if answered else None),
        system="\n\n".join(said["system"]) or None,
        notes=(ANSWERS_LEFT_OUT,) if between else (),
        **facts,
    )


def question_and_reference(
    record: Mapping[str, Any], *, question: tuple[str, ...], reference: tuple[str, ...], category: str | None = None
) -> Prompt | Reason | PromptReason:
    """Returns a prompt of one turn, or that of a record in the `question.jsonl` form.

    Args:
        question: Keys it may stand under, the first one that holds something wins; likewise `reference`.
        category: Key of the benchmark's own category; `math` where there is none.
    """
    if first_present(record, ("turns",)) is not None:
        return listed_turns(record)
    value = first_present(record, question)
    if value is None:
        return PromptReason.MISSING_QUESTION
    text = read_text(value)
    if isinstance(text, Reason):
        return text
    own = record.get(category) if category else None
    answers = references(first_present(record, reference))
    return Prompt(
        turns=[text.text],
        category=own if isinstance(own, str) and own else "math",
        reference=answers,
        notes=() if answers else (WITHOUT_REFERENCE,),
    )


def references(value: Any) -> list[str] | None:
    """Returns reference answers as a list of texts, None if there are none that can be used."""
    values = value if isinstance(value, list) else [value]
    texts = [clean_text(str(item) if isinstance(item, int | float) else item) for item in values]
    usable = [str(text) for text in texts if not isinstance(text, Reason)]
    return usable or None


# --- many records ----------------------------------------------------------------------------------------------------


def read_prompts(
    records: Iterable[Record],
    audit: Audit,
    ids: UniqueIds,
    *,
    reader: PromptReader,
    prefix: str = "",
    part: Part | None = None,
) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """Yields ({"id", "category", "turns", "reference"} (and "system"), what was done to it), ids unique.

    Args:
        records: As `stream_records` yields them.
        audit: Counts records that give no prompt; the caller counts those that it keeps.
        ids: Given out so far, by earlier files of the same benchmark too.
        reader: The one for their format.
        prefix: Put before each id, so that several files of one benchmark stay apart.
        part: Of the files; all of them by default.
    """
    for record in records:
        name = prefix + record_id(record)
        found = _read(record, reader)
        if isinstance(found, str):
            audit.drop(found, name)
            audit.saw(record.value)
        elif part is not None and not part.holds(found.turns[0]):
            audit.drop(OTHER_PART, name)
        else:
            yield {"id": ids.unique(name), **found.row()}, found.notes


def _read(record: Record, reader: PromptReader) -> Prompt | str:
    if record.problem:
        return record.problem
    if not isinstance(record.value, Mapping):
        return Reason.NOT_AN_OBJECT
    return Reason.NOT_ONLY_TEXT if has_media(record.value) else reader.read(record.value)
