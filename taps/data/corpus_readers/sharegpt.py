"""Conversations as lists of turns: ShareGPT's `conversations`, chat `messages`, and this project's own `turns`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taps.data.conversations import Conversation, from_turns
from taps.data.corpus_reader import corpus_reader
from taps.data.texts import Reason


@corpus_reader(title="lists of turns: ShareGPT, messages")
def sharegpt(record: Mapping[str, Any]) -> Conversation | Reason:
    """Returns the conversation of a record that lists its turns."""
    return from_turns(record)
