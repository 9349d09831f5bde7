"""Statistics of drafted nodes that the target judged: entropy and confidence of accepted and rejected ones.

Shape letters: P positions, N nodes, C cycles, R rows of the result.
"""

from __future__ import annotations

import numpy as np

from taps.decoding.trees import Trees
from taps.decoding.walk import Bank, Cycles, Text

NODE_KINDS = ("accepted", "rejected_sibling", "unverified")
_ACCEPTED, _REJECTED, _UNVERIFIED = range(3)


def node_groups(bank: Bank, text: Text, cycles: Cycles, num_nodes: int) -> dict[str, np.ndarray]:
    """Returns the node statistics of a `single` walk: one row per cycle, depth and kind of node, every array [R].

    Kinds: `accepted`, the accepted path; `rejected_sibling`, the children of its last node (of the root if nothing was
    accepted), whom the target's next token rejected; `unverified`, all other nodes. The published study calls the last
    two together rejected. Where the text ends behind the accepted path nobody judged its children: `unverified`.

    Columns: sequence, cycle, depth, kind (code of NODE_KINDS), count of nodes, and means over them: entropy (nats),
    confidence (exp of the cumulative log-probability), conditional_confidence (exp of that given the parent).
    """
    rows = text.offsets[cycles.sequence] + cycles.start
    trees = bank.trees.prefix(num_nodes).rows(rows)
    depth, matched = bank.depth[rows, :num_nodes].astype(np.int64), bank.matched[rows, :num_nodes]
    judged = judged_nodes(trees, matched, depth, text.remaining[rows])
    kind = np.where(matched, _ACCEPTED, np.where(judged & (depth > cycles.accepted[:, None]), _REJECTED, _UNVERIFIED))

    shape = (len(rows), int(depth.max(initial=0)) + 1, len(NODE_KINDS))
    real = trees.exists()
    cell = np.ravel_multi_index((np.nonzero(real)[0], depth[real], kind[real]), shape)
    groups, inverse, count = np.unique(cell, return_inverse=True, return_counts=True)
    cycle, level, code = np.unravel_index(groups, shape)

    def mean(values: np.ndarray) -> np.ndarray:
        return np.bincount(inverse, weights=values[real], minlength=len(groups)) / count

    return {
        "sequence": cycles.sequence[cycle],
        "cycle": cycles.cycle[cycle],
        "depth": level,
        "kind": code,
        "count": count,
        "entropy": mean(trees.entropies),
        "confidence": mean(np.exp(trees.scores)),
        "conditional_confidence": mean(np.exp(conditional_scores(trees))),
    }


def judged_nodes(trees: Trees, matched: np.ndarray, depth: np.ndarray, remaining: np.ndarray) -> np.ndarray:
    """Returns bool [P, N]: nodes that the target judged: the text is their parent's path and goes on behind it.

    Args:
        matched: bool [P, N] whether the text agrees with the node's own path.
        depth: int [P, N] depth of each node.
        remaining: int [P] tokens of text behind the root.
    """
    parent_matched = np.take_along_axis(matched, np.maximum(trees.parents, 0).astype(np.int64), axis=1)
    return ((trees.parents < 0) | parent_matched) & trees.exists() & (depth <= remaining[:, None])


def conditional_scores(trees: Trees) -> np.ndarray:
    """Returns float32 [P, N]: log-probability (nats) of each node given its parent; -inf for padding."""
    parents = np.maximum(trees.parents, 0).astype(np.int64)
    parent_scores = np.where(trees.parents < 0, 0, np.take_along_axis(trees.scores, parents, axis=1))
    return np.where(trees.exists(), trees.scores - np.where(trees.exists(), parent_scores, 0), -np.inf)
