"""One drafter: its own tree, of one budget or of two.

Shape letters: P trees (positions).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taps.decoding.history import History
from taps.decoding.signals import confidence
from taps.decoding.strategy import Kind, Options, Proposal, strategy
from taps.decoding.trees import Trees


@strategy(title="one drafter", kind=Kind.SINGLE, swept=True)
def single(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the only drafter's trees; the score is their confidence."""
    return Proposal(trees=trees[0], chosen=np.zeros(len(trees[0]), dtype=np.int64), score=confidence(trees[0]))


@strategy(title="one drafter, double budget", kind=Kind.SINGLE, look=("#222222", "d"), node_factor=2)
def single_double(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the only drafter's trees of twice the nodes: what merging two trees must beat."""
    return single(trees, history, options)
