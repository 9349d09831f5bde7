"""Problems with worked solutions, generated: as many as wanted, from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taps.data.conversations import Conversation, from_pair
from taps.data.corpus_reader import corpus_reader
from taps.data.generated import stream_generated
from taps.data.texts import Reason


@corpus_reader(title="generated problems of a reasoning-gym task", generate=stream_generated)
def reasoning_gym(record: Mapping[str, Any]) -> Conversation | Reason:
    """Returns question and worked solution."""
    return from_pair(record)
