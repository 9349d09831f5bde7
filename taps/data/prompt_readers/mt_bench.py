"""MT-Bench: two turns each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taps.data.prompt_reader import Prompt, PromptReason, listed_turns, prompt_reader
from taps.data.texts import Reason


@prompt_reader(title="MT-Bench", num_turns=2)
def mt_bench(record: Mapping[str, Any]) -> Prompt | Reason | PromptReason:
    """Returns a two-turn prompt: the second turn is what makes it MT-Bench."""
    prompt = listed_turns(record)
    if isinstance(prompt, Prompt) and len(prompt.turns) < 2:
        return PromptReason.ONE_TURN_ONLY
    return prompt
