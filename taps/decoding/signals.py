"""What a draft tree says of itself: how confident its drafter is.

Shape letters: P trees (positions).
"""

from __future__ import annotations

import numpy as np

from taps.decoding.trees import Trees


def confidence(trees: Trees) -> np.ndarray:
    """Returns float64 [P]: mean over a tree's nodes of exp(cumulative log-probability); 0 for a tree without nodes."""
    return np.exp(trees.scores, dtype=np.float64).sum(axis=1) / np.maximum(trees.exists().sum(axis=1), 1)


def mean_entropy(trees: Trees) -> np.ndarray:
    """Returns float64 [P]: mean over a tree's nodes of their entropy (nats); inf for a tree without nodes."""
    exists = trees.exists()
    total = np.where(exists, trees.entropies, 0).sum(axis=1, dtype=np.float64)
    count = exists.sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.inf)
