"""The form that the field passes around: turns, category, reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taps.data.prompt_reader import Prompt, PromptReason, listed_turns, prompt_reader
from taps.data.texts import Reason


@prompt_reader()
def question_jsonl(record: Mapping[str, Any]) -> Prompt | Reason | PromptReason:
    """Returns the prompt of a record with `turns` (or `prompt`, `messages`), `category` and `reference`."""
    return listed_turns(record)
