"""GSM8K's questions with the solutions that people wrote, as text that a model could say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from taps.data.conversations import Conversation, from_pair
from taps.data.corpus_reader import corpus_reader
from taps.data.texts import Reason

_CALCULATOR = re.compile(r"<<[^<>]*=[^<>]*>>")
_RESULT = re.compile(r"\n?#### *(.+)\s*\Z")
WITHOUT_RESULT = "without #### before the result"


@corpus_reader(title="GSM8K with its human solutions: calculator marks removed, the result in words")
def gsm8k_solutions(record: Mapping[str, Any]) -> Conversation | Reason:
    """Returns question and solution; `48/2 = <<48/2=24>>24` becomes `48/2 = 24`, `#### 24` becomes a last sentence."""
    found = from_pair(record)
    if isinstance(found, Reason):
        return found
    *before, answer = found.turns
    text = _CALCULATOR.sub("", answer.text)
    said = _RESULT.sub(lambda match: f"\nThe answer is {match[1].rstrip('.')}.", text).strip()
    notes = () if said != text else (WITHOUT_RESULT,)
    return replace(found, turns=[*before, replace(answer, text=said)], notes=(*found.notes, *notes))
