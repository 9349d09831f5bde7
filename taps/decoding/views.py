"""Smaller trees seen in a bank's: what would have been drafted with fewer levels and fewer nodes.

Drafting chooses a level's beam from that level alone, so the candidates of the first levels do not depend on how many
levels follow; the tree of (depth, num_nodes) is the best `num_nodes` of the candidates of its levels. The bank keeps
the best N of all levels. Its nodes of these levels, in their order, are therefore a beginning of that smaller tree: all
of it if they are enough, or if the bank left out no candidate that matters. `is_exact` says where.

    bank, N = 6             depth 1 (two levels)     num_nodes 3: exact          num_nodes 5: the bank dropped
    cat 0.6 - sat 0.5 - on 0.4   cat 0.6 - sat 0.5   cat 0.6 - sat 0.5           what is fifth best: not exact
            - ran 0.1            cat     - ran 0.1   dog 0.3
    dog 0.3 - sat 0.2            dog 0.3 - sat 0.2

Shape letters: P trees (positions), N nodes of the bank's trees, n nodes of the view.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taps.decoding.trees import PAD_TOKEN, ROOT, Trees, depths
from taps.decoding.walk import Bank, Text


@dataclass(frozen=True, kw_only=True, order=True)
class Shape:
    """How large a tree is drafted.

    Attributes:
        depth: Expansions after the first level; the longest path has depth + 1 nodes.
        num_nodes: Nodes of one drafter's tree, root not counted.
    """

    depth: int
    num_nodes: int


def view(trees: Trees, max_depth: int | np.ndarray, num_nodes: int, *, depth: np.ndarray | None = None) -> Trees:
    """Returns trees [P, n] of the best `num_nodes` nodes that lie no deeper than `max_depth`, padded.

    Args:
        trees: P trees, as drafted.
        max_depth: Deepest node kept (first level: 1), for all trees or int [P]; `Shape.depth` + 1.
        num_nodes: n, at most N.
        depth: int [P, N] of each node, if it is known.
    """
    depth = depths(trees.parents) if depth is None else depth
    kept = trees.exists() & (depth <= np.asarray(max_depth).reshape(-1, 1))
    place = np.where(kept, np.cumsum(kept, axis=1) - 1, num_nodes)
    inside = place < num_nodes
    rows, columns = np.nonzero(inside)
    to = place[rows, columns]
    parents = trees.parents[rows, columns].astype(np.int64)

    def laid(values: np.ndarray, fill: float) -> np.ndarray:
        result = np.full((len(trees), num_nodes), fill, dtype=values.dtype)
        result[rows, to] = values[rows, columns]
        return result

    new_parents = np.full((len(trees), num_nodes), ROOT, dtype=trees.parents.dtype)
    new_parents[rows, to] = np.where(parents == ROOT, ROOT, place[rows, np.maximum(parents, 0)])
    return Trees(
        tokens=laid(trees.tokens, PAD_TOKEN),
        parents=new_parents,
        scores=laid(trees.scores, -np.inf),
        entropies=laid(trees.entropies, 0.0),
    )


def is_exact(trees: Trees, shape: Shape, *, top_k: int, bank_depth: int) -> np.ndarray:
    """Returns bool [P]: whether `view(trees, shape.depth + 1, shape.num_nodes)` is the tree drafted with that shape.

    Args:
        trees: P trees of a bank.
        shape: How large the view is.
        top_k: `DraftOptions.top_k` of the bank.
        bank_depth: `DraftOptions.depth` of the bank.
    """
    if shape.depth > bank_depth:
        return np.zeros(len(trees), dtype=bool)
    exists = trees.exists()
    if shape.depth == bank_depth:
        return np.full(len(trees), shape.num_nodes <= trees.num_nodes) | ~exists.all(axis=1)
    held = (exists & (depths(trees.parents) <= shape.depth + 1)).sum(axis=1)
    num_candidates = top_k + shape.depth * top_k**2
    return (held >= min(shape.num_nodes, num_candidates)) | ~exists.all(axis=1)  # a tree with room left nothing out


def view_bank(bank: Bank, text: Text, shape: Shape) -> Bank:
    """Returns the bank of the views of that shape, scored against the text."""
    trees = view(bank.trees, shape.depth + 1, shape.num_nodes, depth=bank.depth)
    return Bank.of(bank.name, trees, text)


def keep_first(trees: Trees, num_nodes: np.ndarray) -> Trees:
    """Returns the trees with only the first `num_nodes` [P] nodes of each, padded."""
    kept = np.arange(trees.num_nodes) < num_nodes[:, None]
    return Trees(
        tokens=np.where(kept, trees.tokens, PAD_TOKEN).astype(trees.tokens.dtype),
        parents=np.where(kept, trees.parents, ROOT).astype(trees.parents.dtype),
        scores=np.where(kept, trees.scores, -np.inf).astype(trees.scores.dtype),
        entropies=np.where(kept, trees.entropies, 0).astype(trees.entropies.dtype),
    )
