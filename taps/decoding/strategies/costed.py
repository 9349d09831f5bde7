"""Trees that follow the machine: as many levels and nodes as are expected to bring most tokens per second.

Drafters draft with twice the budget in mind, so that what is chosen from is complete; at most the budget is verified.

Shape letters: P trees (positions), K drafters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taps.decoding.costing import best_prefix, drafted_levels, goes_on, likely
from taps.decoding.history import MERGED, History
from taps.decoding.merging import merge
from taps.decoding.strategy import Kind, Options, Proposal, strategy
from taps.decoding.trees import Trees
from taps.decoding.views import keep_first, view


@strategy(
    title="one drafter, tree by cost",
    kind=Kind.SINGLE,
    look=("#1B7837", "v"),
    goes_on=goes_on,
    node_factor=2,
    calibrated=True,
)
def single_costed(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the prefix of the only drafter's tree, of the levels it drafts, that maximises expected tokens/s."""
    drafted, levels = _as_drafted(trees[0], options)
    number, rate = best_prefix(drafted, _seconds(levels, options), options)
    chosen = np.zeros(len(drafted), dtype=np.int64)
    return Proposal(trees=keep_first(drafted, number), chosen=chosen, score=rate, num_levels=levels)


@strategy(
    title="merged, tree by cost",
    kind=Kind.MERGED,
    look=("#762A83", "^"),
    goes_on=goes_on,
    node_factor=2,
    calibrated=True,
)
def merged_costed(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the prefix of the merged tree that maximises expected tokens/s; each drafter stops by its own tree."""
    drafted, levels = zip(*(_as_drafted(batch, options) for batch in trees), strict=True)
    merged = merge(drafted, np.full(len(trees), 1 / len(trees)), len(options.target_s) - 1)
    number, rate = best_prefix(merged, sum(_seconds(own, options) for own in levels), options)
    chosen = np.full(len(merged), MERGED)
    return Proposal(trees=keep_first(merged, number), chosen=chosen, score=rate, num_levels=np.sum(levels, axis=0))


def _as_drafted(trees: Trees, options: Options) -> tuple[Trees, np.ndarray]:
    """Returns (the trees with no more levels than are drafted, int64 [P] these levels)."""
    trees = likely(trees)
    levels = drafted_levels(trees, options)
    return view(trees, levels, trees.num_nodes), levels


def _seconds(levels: np.ndarray, options: Options) -> np.ndarray:
    return np.asarray(options.draft_s)[levels - 1]
