"""Benchmark prompts out of the files that benchmarks are published in.

Each reader takes one record and returns {"category", "turns", "reference"}, or the reason why there is no prompt. All
of them also take the `question.jsonl` form (turns, category, reference) of the files that the field passes around.
Prompts that occur twice are kept: a benchmark's numbers are over all of its questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from taps.data.audit import Audit
from taps.data.conversations import Reason, UniqueIds, clean_text, record_id
from taps.data.json_stream import Record

Prompt = dict[str, Any]


class PromptReason(StrEnum):
    """Why a benchmark record gives no prompt, beside the reasons of `taps.data.conversations`."""

    MISSING_QUESTION = "missing_question"
    TURNS_NOT_A_LIST = "turns_not_a_list"
    ONE_TURN_ONLY = "one_turn_only"


# --- one record ------------------------------------------------------------------------------------------------------


def question_jsonl(record: Mapping[str, Any]) -> Prompt | str:
    """Returns the prompt of a record with `turns` (or `prompt`), `category` and `reference`."""
    turns = record.get("turns", record.get("prompt"))
    if turns is None:
        return PromptReason.MISSING_QUESTION
    if not isinstance(turns, list):
        return PromptReason.TURNS_NOT_A_LIST
    texts = [clean_text(turn) for turn in turns]
    if bad := next((text for text in texts if isinstance(text, Reason)), None):
        return bad
    if not texts:
        return Reason.NO_TURNS
    category = record.get("category")
    return {
        "category": category if isinstance(category, str) else None,
        "turns": texts,
        "reference": references(record.get("reference")),
    }


def mt_bench(record: Mapping[str, Any]) -> Prompt | str:
    """Returns a two-turn prompt: the second turn is what makes it MT-Bench."""
    prompt = question_jsonl(record)
    if not isinstance(prompt, str) and len(prompt["turns"]) < 2:
        return PromptReason.ONE_TURN_ONLY
    return prompt


def gsm8k(record: Mapping[str, Any]) -> Prompt | str:
    """Returns the question; the reference is the worked solution, `#### result` included where it is there."""
    return _single(record, question="question", category="math", reference=record.get("answer"))


def math_500(record: Mapping[str, Any]) -> Prompt | str:
    """Returns the problem; the reference is the worked solution, else the bare answer."""
    reference = record.get("solution") or record.get("answer")
    return _single(record, question="problem", category=record.get("subject"), reference=reference)


def svamp(record: Mapping[str, Any]) -> Prompt | str:
    """Returns the story followed by its question, as the data set itself joins them in `question_concat`."""
    if "question_concat" in record or "Body" not in record:
        return _single(record, question="question_concat", category=record.get("Type"), reference=record.get("Answer"))
    parts = [clean_text(record["Body"]), clean_text(record.get("Question"))]
    if bad := next((part for part in parts if isinstance(part, Reason)), None):
        return bad
    joined = {"question_concat": " ".join(parts)}
    return _single(joined, question="question_concat", category=record.get("Type"), reference=record.get("Answer"))


def aime(record: Mapping[str, Any]) -> Prompt | str:
    """Returns the problem; the reference is an integer from 0 to 999, as text."""
    question = "problem" if "problem" in record else "question"
    return _single(record, question=question, category="math", reference=record.get("answer"))


def generated(record: Mapping[str, Any]) -> Prompt | str:
    """Returns the question of a generated problem; the reference is its worked solution, else the bare result."""
    reference = record.get("output") or record.get("answer")
    return _single(record, question="question", category="math", reference=reference)


READERS: dict[str, Callable[[Mapping[str, Any]], Prompt | str]] = {
    "gsm8k": gsm8k,
    "mt_bench": mt_bench,
    "math_500": math_500,
    "svamp": svamp,
    "aime": aime,
    "question_jsonl": question_jsonl,
    "reasoning_gym": generated,
}


def references(value: Any) -> list[str] | None:
    """Returns reference answers as a list of texts, None if there are none that can be used."""
    values = value if isinstance(value, list) else [value]
    texts = [clean_text(str(item) if isinstance(item, int | float) else item) for item in values]
    usable = [str(text) for text in texts if not isinstance(text, Reason)]
    return usable or None


def _single(record: Mapping[str, Any], *, question: str, category: Any, reference: Any) -> Prompt | str:
    if question not in record:
        return PromptReason.MISSING_QUESTION
    text = clean_text(record[question])
    if isinstance(text, Reason):
        return text
    category = category if isinstance(category, str) and category else "math"
    return {"category": category, "turns": [text], "reference": references(reference)}


# --- many records ----------------------------------------------------------------------------------------------------


def read_prompts(
    records: Iterable[Record], audit: Audit, ids: UniqueIds, *, reader: str, prefix: str = ""
) -> Iterator[Prompt]:
    """Yields {"id", "category", "turns", "reference"} with unique ids and fills the audit.

    Args:
        records: As `stream_records` yields them.
        audit: Counts every record.
        ids: Given out so far, by earlier files of the same benchmark too.
        reader: Key of `READERS`.
        prefix: Put before each id, so that several files of one benchmark stay apart.
    """
    for record in records:
        name = prefix + record_id(record)
        prompt = _read(record, reader)
        if isinstance(prompt, str):
            audit.drop(prompt, name)
            continue
        audit.keep()
        if prompt["reference"] is None and "turns" not in record.value:
            audit.changed["without a reference answer"] += 1
        elif reader == "gsm8k" and not any("####" in text for text in prompt["reference"] or ()):
            audit.changed["without #### before the result"] += 1
        yield {"id": ids.unique(name), **prompt}


def _read(record: Record, reader: str) -> Prompt | str:
    if record.problem:
        return record.problem
    if not isinstance(record.value, Mapping):
        return Reason.NOT_AN_OBJECT
    read = mt_bench if reader == "mt_bench" else question_jsonl if "turns" in record.value else READERS[reader]
    return read(record.value)
