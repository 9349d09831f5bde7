"""Names of records: their own, else their position, and each only once."""

from __future__ import annotations

from collections.abc import Mapping

from taps.data.json_stream import Record
from taps.data.texts import clean_text

_KEYS = ("id", "question_id", "prompt_id", "unique_id", "ID", "task_id")


def record_id(record: Record) -> str:
    """Returns the record's own id as text, or its position for records that have none."""
    if isinstance(record.value, Mapping):
        for key in _KEYS:
            value = record.value.get(key)
            if isinstance(value, int) or (isinstance(value, str) and value.strip() and clean_text(value) == value):
                return str(value)
    return str(record.index)


class UniqueIds:
    """Makes ids unique: the second `x` becomes `x#2`."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def unique(self, name: str) -> str:
        """Returns `name`, with a number behind it if it was given out before."""
        candidate, number = name, 1
        while candidate in self._seen:
            number += 1
            candidate = f"{name}#{number}"
        self._seen.add(candidate)
        return candidate
