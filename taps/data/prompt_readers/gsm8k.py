"""GSM8K: grade-school problems with worked solutions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from taps.data.prompt_reader import WITHOUT_REFERENCE, Prompt, PromptReason, prompt_reader, question_and_reference
from taps.data.texts import Reason

WITHOUT_RESULT = "without #### before the result"


@prompt_reader(title="GSM8K")
def gsm8k(record: Mapping[str, Any]) -> Prompt | Reason | PromptReason:
    """Returns the question; the reference is the worked solution, `#### result` included where it is there."""
    prompt = question_and_reference(record, question=("question",), reference=("answer",))
    if not isinstance(prompt, Prompt) or WITHOUT_REFERENCE in prompt.notes:
        return prompt
    marked = any("####" in text for text in prompt.reference or ())
    return prompt if marked else replace(prompt, notes=(*prompt.notes, WITHOUT_RESULT))
