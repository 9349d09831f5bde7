"""A shuffled order that grows: taking more never changes what was taken before."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def seeded_order(ids: Sequence[str], seed: int) -> list[int]:
    """Returns the indices of `ids` in the order of sha256("seed:id"), which no other id can change."""
    return sorted(range(len(ids)), key=lambda i: hashlib.sha256(f"{seed}:{ids[i]}".encode()).digest())
