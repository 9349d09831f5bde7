"""Either shape, record by record, for files that mix them or whose shape one does not want to look up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taps.data.conversations import INSTRUCTIONS, TURN_LISTS, Conversation, from_pair, from_turns
from taps.data.corpus_reader import corpus_reader
from taps.data.texts import Reason, first_present


@corpus_reader(title="lists of turns or pairs, whichever a record is")
def hub(record: Mapping[str, Any]) -> Conversation | Reason:
    """Returns the conversation of a record that lists turns, else the two turns of a pair."""
    turns = first_present(record, TURN_LISTS)
    is_pair = not turns and (first_present(record, INSTRUCTIONS) is not None or not record.keys() & {*TURN_LISTS})
    return from_pair(record) if is_pair or isinstance(turns, int | float) else from_turns(record)
