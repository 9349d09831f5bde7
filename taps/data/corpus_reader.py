"""What a reader of training conversations is: a function of one record, registered under its name with its traits.

The readers themselves are in `taps.data.corpus_readers`; `CORPUS_READERS.find` gives one by name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from taps.data.audit import Audit
from taps.data.conversations import Conversation
from taps.data.json_stream import Record
from taps.data.parts import OTHER_PART, Part
from taps.data.record_ids import UniqueIds, record_id
from taps.data.texts import Reason
from taps.plumbing.catalogue import Catalogue

Read = Callable[[Mapping[str, Any]], Conversation | StrEnum]


@dataclass(frozen=True, kw_only=True)
class CorpusReader:
    """A registered reader.

    Attributes:
        name: As in the config.
        title: What it reads, in a few words.
        read: Record -> its conversation, or the code of why there is none.
        generate: (task, rows, seed, templates) -> records, for a reader that makes them itself; None: it reads files.
    """

    name: str
    title: str
    read: Read
    generate: Callable[..., Iterator[Record]] | None = None

    @property
    def is_generated(self) -> bool:
        """Whether it needs a task and a number of rows instead of an asset."""
        return self.generate is not None


CORPUS_READERS: Catalogue[CorpusReader] = Catalogue("taps.data.corpus_readers", what="corpus reader")


def corpus_reader(
    *, title: str, generate: Callable[..., Iterator[Record]] | None = None
) -> Callable[[Read], CorpusReader]:
    """Makes a reader of a function and registers it under the function's name. Arguments as in CorpusReader."""

    def register(read: Read) -> CorpusReader:
        entry = CorpusReader(name=read.__name__, title=title, read=read, generate=generate)
        CORPUS_READERS.register(entry.name, entry, module=read.__module__)
        return entry

    return register


def read_conversations(
    records: Iterable[Record], audit: Audit, *, reader: CorpusReader, part: Part | None = None
) -> Iterator[dict[str, Any]]:
    """Yields corpus rows {"id", "turns"} with unique ids and fills the audit.

    Args:
        records: As `stream_records` yields them.
        audit: Counts every record and what became of it.
        reader: The one for their format.
        part: Which part of the file is read; all of it by default.
    """
    ids, contents = UniqueIds(), set[bytes]()
    for record in records:
        name = record_id(record)
        found = _read(record, reader)
        if isinstance(found, str):
            audit.drop(found, name)
            audit.saw(record.value)
            continue
        turns = found.rows()
        if part is not None and not part.holds(next(turn.text for turn in found.turns if turn.role == "user")):
            audit.drop(OTHER_PART, name)
            continue
        content = hashlib.sha256(repr(turns).encode()).digest()
        if content in contents:
            audit.drop(Reason.DUPLICATE, name)
            continue
        contents.add(content)
        audit.keep(found.all_notes())
        yield {"id": ids.unique(name), "turns": turns}


def _read(record: Record, reader: CorpusReader) -> Conversation | str:
    if record.problem:
        return record.problem
    return reader.read(record.value) if isinstance(record.value, Mapping) else Reason.NOT_AN_OBJECT
