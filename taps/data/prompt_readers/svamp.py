"""SVAMP: a short story and a question about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taps.data.prompt_reader import Prompt, PromptReason, prompt_reader, question_and_reference
from taps.data.texts import Reason, clean_text, first_present


@prompt_reader(title="SVAMP")
def svamp(record: Mapping[str, Any]) -> Prompt | Reason | PromptReason:
    """Returns the story followed by its question, as the data set itself joins them in `question_concat`."""
    joined = record
    if first_present(record, ("question_concat", "turns")) is None and record.get("Body") is not None:
        parts = [first_present(record, (key,)) for key in ("Body", "Question")]
        if parts[1] is None:
            return PromptReason.MISSING_QUESTION
        texts = [clean_text(part) for part in parts]
        if bad := next((text for text in texts if isinstance(text, Reason)), None):
            return bad
        joined = {**record, "question_concat": " ".join(texts)}
    return question_and_reference(joined, question=("question_concat",), reference=("Answer",), category="Type")
