"""Choosing one of several drafters: what every router and every bound shares.

Shape letters: P trees (positions), K drafters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taps.decoding.history import History
from taps.decoding.strategy import Proposal
from taps.decoding.trees import Trees, select


def one_hot(choice: np.ndarray, history: History) -> np.ndarray:
    """Returns bool [P, K]: True for the drafter chosen in each row of int `choice` [P]."""
    return choice[:, None] == np.arange(history.num_accepted.shape[1])


def tree_of(chosen: np.ndarray, trees: Sequence[Trees], signals: np.ndarray | None) -> Proposal:
    """Returns the trees of the chosen drafters.

    Args:
        chosen: int [P] index of a drafter.
        trees: One batch of P trees per drafter.
        signals: float [P, K] what the choice was made by; None if by nothing that can be reported.
    """
    chosen = chosen.astype(np.int64)
    score = np.full(len(chosen), np.nan) if signals is None else signals[np.arange(len(chosen)), chosen]
    return Proposal(trees=select(trees, chosen), chosen=chosen, score=score.astype(np.float64))
