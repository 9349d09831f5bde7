"""What became of the records of a source: read = kept + dropped, always."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


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
    """Reason code -> {"count", "example": id of the first record so dropped}."""
    changed: Counter[str] = field(default_factory=Counter)
    """What was done to records that were kept, in words -> how many."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the reader of the report."""

    def keep(self) -> None:
        """Counts a record that gave a row."""
        self.read += 1
        self.kept += 1

    def drop(self, reason: str, example: str) -> None:
        """Counts a record that gave none."""
        self.read += 1
        self.dropped.setdefault(reason, {"count": 0, "example": example})["count"] += 1

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
