"""Draft trees as arrays, and what verification needs of them: masks, depths, paths, the accepted length.

A tree is stored without its root (the token the target already emitted). Nodes are sorted by cumulative
log-probability, a parent always before its children, so *every prefix of the node list is itself a tree*: the tree of a
smaller budget.

    root "The"            node    0      1      2      3
     ├─ " cat" (0)        token   cat    dog    sat    ran
     │   ├─ " sat" (2)    parent  -1     -1      0      0
     │   └─ " ran" (3)    depth    1      1      2      2
     └─ " dog" (1)

Shape letters: P trees (positions), N nodes, D depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ROOT = -1  # parent of the first level
PAD_TOKEN = -1  # token of a node that does not exist; its score is -inf
NO_FUTURE = -2  # "token" behind the end of a recorded text: no node ever equals it


@dataclass(frozen=True, kw_only=True)
class Trees:
    """A batch of draft trees.

    Attributes:
        tokens: int32 [P, N] token of each node, PAD_TOKEN where there is none.
        parents: int16 [P, N] index of each node's parent in the same row, ROOT for the first level.
        scores: float32 [P, N] cumulative log-probability of the path (nats), non-increasing along a row.
        entropies: float32 [P, N] entropy (nats) of the distribution the node was drawn from.
    """

    tokens: np.ndarray
    parents: np.ndarray
    scores: np.ndarray
    entropies: np.ndarray

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def num_nodes(self) -> int:
        """Columns of the arrays: the budget, root not counted."""
        return int(self.tokens.shape[1])

    def prefix(self, num_nodes: int) -> Trees:
        """Returns the trees of the smaller budget `num_nodes`."""
        return Trees(**{name: getattr(self, name)[:, :num_nodes] for name in _FIELDS})

    def rows(self, index: np.ndarray | slice) -> Trees:
        """Returns the trees at the positions `index`."""
        return Trees(**{name: getattr(self, name)[index] for name in _FIELDS})

    def exists(self) -> np.ndarray:
        """Returns bool [P, N]: True for nodes, False for padding."""
        return self.tokens != PAD_TOKEN


_FIELDS = ("tokens", "parents", "scores", "entropies")


def no_trees(num_rows: int) -> Trees:
    """Returns trees of no nodes: what a drafter that did not draft is passed as."""
    return _padding(num_rows, 0)


def select(trees: Sequence[Trees], chosen: np.ndarray) -> Trees:
    """Returns trees [P, largest N]: row p is row p of batch `chosen[p]`, padded.

    Args:
        trees: Batches of P trees each.
        chosen: int [P] index of a batch.
    """
    result = _padding(len(chosen), max(batch.num_nodes for batch in trees))
    for index, batch in enumerate(trees):
        rows = np.flatnonzero(chosen == index)
        for name in _FIELDS:
            getattr(result, name)[rows, : batch.num_nodes] = getattr(batch, name)[rows]
    return result


def _padding(num_rows: int, num_nodes: int) -> Trees:
    shape = (num_rows, num_nodes)
    return Trees(
        tokens=np.full(shape, PAD_TOKEN, dtype=np.int32),
        parents=np.full(shape, ROOT, dtype=np.int16),
        scores=np.full(shape, -np.inf, dtype=np.float32),
        entropies=np.zeros(shape, dtype=np.float32),
    )


def depths(parents: np.ndarray) -> np.ndarray:
    """Returns int16 [P, N]: 1 for children of the root, 2 for their children ...

    Args:
        parents: int [P, N], parents before children.
    """
    result = np.ones(parents.shape, dtype=np.int16)
    rows = np.arange(len(parents))
    for node in range(parents.shape[1]):
        parent = parents[:, node]
        result[:, node] = np.where(parent == ROOT, 1, result[rows, parent] + 1)
    return result


def tree_attention_mask(parents: np.ndarray) -> np.ndarray:
    """Returns bool [N + 1, N + 1], True = row may attend to column; row and column 0 are the root.

    A node sees the root, its ancestors and itself. For the tree of the module's docstring:

              root cat dog sat ran
        root    1   0   0   0   0
        cat     1   1   0   0   0
        dog     1   0   1   0   0
        sat     1   1   0   1   0
        ran     1   1   0   0   1

    Args:
        parents: int [N] of one tree.
    """
    num_nodes = len(parents)
    mask = np.eye(num_nodes + 1, dtype=bool)
    mask[:, 0] = True
    for node, parent in enumerate(parents):
        if parent != ROOT:
            mask[node + 1] |= mask[parent + 1]
    return mask


def match(trees: Trees, future: np.ndarray) -> np.ndarray:
    """Returns bool [P, N]: True where the path from the root to the node equals the recorded text.

    Args:
        future: int [P, D] tokens that follow each root, D >= the deepest node, NO_FUTURE behind the end.
    """
    matched = np.zeros(trees.tokens.shape, dtype=bool)
    if not matched.size:
        return matched
    depth = depths(trees.parents)
    rows = np.arange(len(trees))
    agrees = trees.tokens == np.take_along_axis(future, depth.astype(np.int64) - 1, axis=1)
    for node in range(trees.num_nodes):
        parent = trees.parents[:, node]
        matched[:, node] = agrees[:, node] & ((parent == ROOT) | matched[rows, parent])
    return matched


def num_accepted(trees: Trees, future: np.ndarray) -> np.ndarray:
    """Returns int16 [P]: length of the longest path of each tree that agrees with the recorded text.

    Args:
        future: as in `match`.
    """
    return np.where(match(trees, future), depths(trees.parents), 0).max(axis=1, initial=0)


def path_to(parents: np.ndarray, node: int) -> list[int]:
    """Returns the nodes from the first level to `node`, in order; [] for ROOT.

    Args:
        parents: int [N] of one tree.
    """
    path: list[int] = []
    while node != ROOT:
        path.append(node)
        node = int(parents[node])
    return path[::-1]
