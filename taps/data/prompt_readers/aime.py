"""AIME: competition problems whose answers are integers from 0 to 999."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taps.data.prompt_reader import Prompt, PromptReason, prompt_reader, question_and_reference
from taps.data.texts import Reason


@prompt_reader(title="AIME")
def aime(record: Mapping[str, Any]) -> Prompt | Reason | PromptReason:
    """Returns the problem; the reference is the answer as text."""
    return question_and_reference(record, question=("problem", "question"), reference=("answer",))
