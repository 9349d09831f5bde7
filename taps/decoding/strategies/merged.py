"""Merging: one tree made of the trees of several drafters.

Shape letters: P trees (positions), K drafters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taps.decoding.history import MERGED, History
from taps.decoding.merging import concatenate, merge
from taps.decoding.strategy import Kind, Options, Proposal, strategy
from taps.decoding.trees import Trees


@strategy(title="merged, all nodes", kind=Kind.MERGED, look=("#A65628", "*"), swept=True)
def merged_concat(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns all drafters' nodes under one root, duplicates kept: the published form, k times the nodes."""
    return _proposal(concatenate(trees, _equal_weights(trees)))


@strategy(title="merged, duplicates once", kind=Kind.MERGED, look=("#E69F00", "p"), swept=True)
def merged_dedup(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the union of the drafters' trees; accepts what merged_concat accepts, with fewer nodes."""
    return _proposal(merge(trees, _equal_weights(trees)))


@strategy(title="merged, matched budget", kind=Kind.MERGED, look=("#4B6A00", "8"), swept=True, calibratable=True)
def merged_matched(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the best nodes of the union, as many as one drafter's tree has."""
    return _proposal(merge(trees, _equal_weights(trees), options.num_draft_tokens))


@strategy(
    title="merged, matched and adaptive", kind=Kind.MERGED, look=("#B2182B", "<"), calibratable=True, uses_history=True
)
def merged_adaptive(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns merged_matched with each drafter weighted by its share of the accepted tokens so far (plus the prior)."""
    credit = history.num_accepted + options.prior
    return _proposal(merge(trees, credit / credit.sum(axis=1, keepdims=True), options.num_draft_tokens))


def _proposal(trees: Trees) -> Proposal:
    return Proposal(trees=trees, chosen=np.full(len(trees), MERGED), score=np.full(len(trees), np.nan))


def _equal_weights(trees: Sequence[Trees]) -> np.ndarray:
    return np.full(len(trees), 1 / len(trees))
