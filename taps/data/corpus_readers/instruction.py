"""Pairs of instruction and output: MathInstruct, Alpaca, MetaMath, prompt and completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taps.data.conversations import Conversation, from_pair
from taps.data.corpus_reader import corpus_reader
from taps.data.texts import Reason


@corpus_reader(title="pairs: instruction and output, question and answer, prompt and completion")
def instruction(record: Mapping[str, Any]) -> Conversation | Reason:
    """Returns the two turns of a pair."""
    return from_pair(record)
