"""Generated problems: as many as wanted, from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taps.data.generated import stream_generated
from taps.data.prompt_reader import Prompt, PromptReason, prompt_reader, question_and_reference
from taps.data.texts import Reason


@prompt_reader(generate=stream_generated)
def reasoning_gym(record: Mapping[str, Any]) -> Prompt | Reason | PromptReason:
    """Returns the question of a generated problem; the reference is its worked solution, else the bare result."""
    return question_and_reference(record, question=("question",), reference=("output", "answer"))
