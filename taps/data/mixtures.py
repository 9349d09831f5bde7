"""Mixtures as index lists over token files: which rows of each corpus train, and which validate.

Conversations are taken in a seeded order, which token files keep: a share is a prefix of their rows, and a larger share
extends a smaller one. A row validates iff its index % 20 == 19: the same 5 % for every mixture and every size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taps.plumbing.errors import TapsError

VALIDATION_EVERY = 20
BEYOND_SIZE = "beyond_size"
"""Reason code of conversations that come after the wanted size."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much of a corpus's training rows a mixture takes; exactly one field is set.

    Attributes:
        share: Between 0 (exclusive) and 1, counted in `unit`.
        rows: Number of conversations.
        tokens: Number of tokens; rows are taken until it is reached.
        unit: `rows` or `tokens`, for `share`.
    """

    share: float | None = None
    rows: int | None = None
    tokens: int | None = None
    unit: str = "tokens"


def seeded_order(ids: Sequence[str], seed: int) -> list[int]:
    """Returns the indices of `ids` in the order of sha256("seed:id"), which no other id can change."""
    return sorted(range(len(ids)), key=lambda i: hashlib.sha256(f"{seed}:{ids[i]}".encode()).digest())


def validation_rows(num_rows: int) -> np.ndarray:
    """Returns the ascending indices of a corpus's validation rows."""
    return np.arange(VALIDATION_EVERY - 1, num_rows, VALIDATION_EVERY)


def training_rows(num_rows: int) -> np.ndarray:
    """Returns the ascending indices of a corpus's training rows: all that do not validate."""
    return np.setdiff1d(np.arange(num_rows), validation_rows(num_rows))


def take(where: object, lengths: np.ndarray, size: Size) -> np.ndarray:
    """Returns the ascending indices of the training rows that a mixture takes of one corpus.

    Args:
        where: Names the corpus in errors.
        lengths: int [rows] tokens of each row, in the token file's order.
        size: How much of the corpus to take.

    Raises:
        TapsError: the corpus has fewer training rows or tokens than asked for, or the share is not within (0, 1].
    """
    rows = training_rows(len(lengths))
    reached = np.cumsum(lengths[rows])
    available = int(reached[-1]) if len(rows) else 0
    if size.share is not None and not 0 < size.share <= 1:
        raise TapsError(where, "not a share", expected="above 0, at most 1", found=size.share)
    if size.share is not None and size.unit == "rows":
        count = round(size.share * len(rows))
    elif size.rows is not None:
        count = size.rows
    else:
        wanted = size.tokens if size.share is None else round(size.share * available)
        assert wanted is not None, "a size without share, rows and tokens"
        if wanted > available:
            raise TapsError(where, "too few training tokens", expected=wanted, found=available, remedy=_REMEDY)
        count = int(np.searchsorted(reached, wanted)) + 1
    if not 0 < count <= len(rows):
        raise TapsError(where, "too few training rows", expected=max(count, 1), found=len(rows), remedy=_REMEDY)
    return rows[:count]


_REMEDY = "lower the size, or raise --max-tokens or --max-rows of taps.tokenise"
