"""HumanEval: the head of a Python function and its docstring, to be continued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from taps.data.prompt_reader import Prompt, PromptReason, prompt_reader, question_and_reference
from taps.data.texts import Reason


@prompt_reader(title="HumanEval")
def humaneval(record: Mapping[str, Any]) -> Prompt | Reason | PromptReason:
    """Returns the function's head as the prompt; the reference is its body."""
    prompt = question_and_reference(record, question=("prompt",), reference=("canonical_solution",))
    return replace(prompt, category="coding") if isinstance(prompt, Prompt) else prompt
