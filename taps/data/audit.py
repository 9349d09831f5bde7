"""What became of the records of a source: read = kept + dropped, always."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from taps.plumbing.errors import TapsError

_MOST_FIELDS = 12


@dataclass(kw_only=True)
class Audit:
    """Counts of one source, filled while its records stream by."""

    source: str
    """Name of the source, without folders: equal inputs give equal audits anywhere."""
    read: int = 0
    """Records seen, broken ones included."""
    kept: int = 0
    """Records that gave a row."""
    dropped: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Reason code -> {"count", "example": id of the first record so dropped} and, for some, "listed": all of them."""
    changed: Counter[str] = field(default_factory=Counter)
    """What was done to records that were kept, in words -> how many."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the reader of the report."""
    fields: list[str] = field(default_factory=list)
    """Keys of the first record that was dropped: what a reader of the wrong format would have needed to look at."""

    def keep(self, notes: Iterable[str] = ()) -> None:
        """Counts a record that gave a row, and what was done to it."""
        self.read += 1
        self.kept += 1
        self.changed.update(notes)

    def drop(self, reason: str, example: str, *, because: str | None = None) -> None:
        """Counts a record that gave none; with `because`, it is also listed."""
        self.read += 1
        entry = self.dropped.setdefault(reason, {"count": 0, "example": example})
        entry["count"] += 1
        if because is not None:
            entry.setdefault("listed", []).append(f"{example}: {because}")

    def saw(self, record: Any) -> None:
        """Remembers the keys of a dropped record, for the error that says that nothing could be used."""
        if not self.fields and isinstance(record, Mapping):
            self.fields = [str(key) for key in record][:_MOST_FIELDS]

    def nothing_usable(self, what: str) -> TapsError:
        """Returns the error that no record gave a row."""
        found = f"{self}; fields of the first one: {', '.join(self.fields)}" if self.fields else str(self)
        return TapsError(self.source, f"no usable {what}", found=found, remedy="check --reader and the file")

    def content(self) -> dict[str, Any]:
        """Returns the audit as JSON: source, read, kept, dropped, notes."""
        counts = [f"{count} of the kept: {what}" for what, count in sorted(self.changed.items())]
        return {
            "source": self.source,
            "read": self.read,
            "kept": self.kept,
            "dropped": dict(sorted(self.dropped.items())),
            "notes": self.notes + counts,
        }

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason} {entry['count']}" for reason, entry in sorted(self.dropped.items()))
        return f"{self.source}: read {self.read}, kept {self.kept}" + (f", dropped: {reasons}" if reasons else "")
