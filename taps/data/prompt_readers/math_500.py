"""MATH-500: competition problems with worked solutions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taps.data.prompt_reader import Prompt, PromptReason, prompt_reader, question_and_reference
from taps.data.texts import Reason


@prompt_reader(title="MATH-500")
def math_500(record: Mapping[str, Any]) -> Prompt | Reason | PromptReason:
    """Returns the problem; the reference is the worked solution, else the bare answer."""
    return question_and_reference(record, question=("problem",), reference=("solution", "answer"), category="subject")
