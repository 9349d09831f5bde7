"""Merging the draft trees of several drafters under one root.

Two nodes are the same node when the tokens on their paths from the root are equal; paths are compared token by token,
never by a hash. Merged trees are `Trees` again: sorted by score, a parent before its children, every prefix a tree.

Shape letters: P trees (positions), K drafters, N nodes of one drafter, M = sum of the drafters' N.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taps.decoding.trees import PAD_TOKEN, ROOT, Trees, depths


def merge(trees: Sequence[Trees], weights: np.ndarray | Sequence[float], num_nodes: int | None = None) -> Trees:
    """Returns the union of the drafters' trees, same paths counted once, the best `num_nodes` of it (all by default).

    The score of a path is its log-probability under the mixture of the drafters, sum_k weight_k * prob_k(path), where
    prob_k is 0 for a path that drafter k did not propose. Every drafter that proposes a child proposes its parent, with
    at least the child's probability, so scores never rise along a path and any weights give a valid tree. (The largest
    of the drafters' scores would do so, too, but would not favour a path that all of them propose.)
    A drafter of weight 0 is left out: weights (1, 0) give the first tree back, bit for bit.

        first                     second                 merge, weights (0.5, 0.5)
        cat 0.6 - sat 0.5         cat 0.2                cat 0.4 - sat 0.25
        dog 0.3                   fox 0.7                fox 0.35
                                                         dog 0.15

    Args:
        trees: One batch [P, N] per drafter; the paths of one drafter's tree are distinct.
        weights: float [K] or [P, K] merge weights, not negative, each row summing to 1.
        num_nodes: Columns of the result; M by default.

    The entropy of a node is that of the first drafter with a weight that proposed it.
    """
    joined = _join(trees, weights)
    first = _first_of_same_path(joined)
    scores = _mixture_scores(joined, first, [batch.num_nodes for batch in trees])
    is_first = first == np.arange(first.shape[1])
    parents = np.where(joined.parents == ROOT, ROOT, np.take_along_axis(first, np.maximum(joined.parents, 0), axis=1))
    union = Trees(
        tokens=joined.tokens,
        parents=parents,
        scores=np.where(is_first, scores, -np.inf).astype(np.float32),
        entropies=joined.entropies,
    )
    return _sorted_by_score(union, num_nodes or first.shape[1])


def concatenate(trees: Sequence[Trees], weights: np.ndarray | Sequence[float]) -> Trees:
    """Returns all nodes of the drafters' trees under one root, nothing removed: [P, M]. Arguments as in `merge`."""
    joined = _join(trees, weights)
    return _sorted_by_score(joined, joined.num_nodes)


def _join(trees: Sequence[Trees], weights: np.ndarray | Sequence[float]) -> Trees:
    """Returns the drafters' nodes side by side [P, M], scores shifted by log weight; weight 0: padding."""
    shares = np.broadcast_to(np.asarray(weights, dtype=np.float64), (len(trees[0]), len(trees)))
    with np.errstate(divide="ignore"):
        shifts = np.log(shares)
    parents, scores, start = [], [], 0
    for index, batch in enumerate(trees):
        parents.append(np.where(batch.parents == ROOT, ROOT, batch.parents.astype(np.int64) + start))
        scores.append(np.where(batch.exists(), batch.scores.astype(np.float64) + shifts[:, index : index + 1], -np.inf))
        start += batch.num_nodes
    score = np.concatenate(scores, axis=1)
    return Trees(
        tokens=np.where(np.isfinite(score), np.concatenate([batch.tokens for batch in trees], axis=1), PAD_TOKEN),
        parents=np.concatenate(parents, axis=1),
        scores=score,
        entropies=np.concatenate([batch.entropies for batch in trees], axis=1),
    )


def _first_of_same_path(joined: Trees) -> np.ndarray:
    """Returns int64 [P, M]: the first column that holds the same path as this one, -1 for padding.

    Level by level: two nodes share a path when their parents do and their tokens are equal.
    """
    num_rows, num_columns = joined.tokens.shape
    level = np.where(joined.exists(), depths(joined.parents), 0).ravel()
    tokens = joined.tokens.ravel().astype(np.int64)
    num_tokens = int(tokens.max(initial=0)) + 1
    row = np.repeat(np.arange(num_rows), num_columns)
    parent = np.where(joined.parents.ravel() == ROOT, 0, row * num_columns + joined.parents.ravel())
    first = np.full(num_rows * num_columns, -1)
    for depth in range(1, int(level.max(initial=0)) + 1):
        nodes = np.flatnonzero(level == depth)
        group = row[nodes] if depth == 1 else first[parent[nodes]]
        _, where, inverse = np.unique(group * num_tokens + tokens[nodes], return_index=True, return_inverse=True)
        first[nodes] = nodes[where[inverse]]
    return np.where(first < 0, -1, first - row * num_columns).reshape(num_rows, num_columns)


def _mixture_scores(joined: Trees, first: np.ndarray, num_nodes: Sequence[int]) -> np.ndarray:
    """Returns float64 [P, M]: log of the summed probabilities of all nodes with the same path, kept at its first one.

    Rounding could lift a child above its parent by one unit; the last step takes that back.
    """
    scores = np.full(first.shape, -np.inf)
    start = 0
    for count in num_nodes:
        rows, columns = np.nonzero(first[:, start : start + count] >= 0)
        target = first[rows, columns + start]
        scores[rows, target] = np.logaddexp(scores[rows, target], joined.scores[rows, columns + start])
        start += count
    every = np.arange(len(first))
    for column in range(first.shape[1]):
        parent = joined.parents[:, column]
        limit = np.where(parent == ROOT, np.inf, scores[every, first[every, np.maximum(parent, 0)]])
        scores[:, column] = np.minimum(scores[:, column], limit)
    return scores


def _sorted_by_score(nodes: Trees, num_nodes: int) -> Trees:
    """Returns the best `num_nodes` nodes in order of score, equal scores in order of column; score -inf = padding.

    Columns hold parents before children and no child above its parent, so this keeps parents in front.
    """
    order = np.argsort(-nodes.scores, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(order.shape[1])[None], axis=1)
    order = order[:, :num_nodes]
    parents, scores = (np.take_along_axis(values, order, axis=1) for values in (nodes.parents, nodes.scores))
    real = np.isfinite(scores)
    new_parents = np.take_along_axis(rank, np.maximum(parents, 0), axis=1)
    return Trees(
        tokens=np.where(real, np.take_along_axis(nodes.tokens, order, axis=1), PAD_TOKEN).astype(np.int32),
        parents=np.where(real & (parents != ROOT), new_parents, ROOT).astype(np.int16),
        scores=scores.astype(np.float32),
        entropies=np.where(real, np.take_along_axis(nodes.entropies, order, axis=1), 0).astype(np.float32),
    )
