"""Tests of taps.decoding.trees: the tree of the module's docstring, and properties of random ones."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taps.decoding.trees import (
    NO_FUTURE,
    PAD_TOKEN,
    ROOT,
    Trees,
    depths,
    match,
    no_trees,
    num_accepted,
    path_to,
    select,
    tree_attention_mask,
)
from tests.support.random_trees import longest, paths, random_trees, seeds

CAT, DOG, SAT, RAN = range(4)
DRAWN = Trees(
    tokens=np.array([[CAT, DOG, SAT, RAN]], dtype=np.int32),
    parents=np.array([[ROOT, ROOT, 0, 0]], dtype=np.int16),
    scores=np.log(np.array([[0.6, 0.3, 0.25, 0.2]], dtype=np.float32)),
    entropies=np.zeros((1, 4), dtype=np.float32),
)


def test_mask_of_the_drawn_tree() -> None:
    expected = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 0, 1]]
    assert tree_attention_mask(DRAWN.parents[0]).astype(int).tolist() == expected


def test_depths_and_paths_of_the_drawn_tree() -> None:
    assert depths(DRAWN.parents).tolist() == [[1, 1, 2, 2]]
    assert path_to(DRAWN.parents[0], 3) == [0, 3]
    assert path_to(DRAWN.parents[0], ROOT) == []


def test_accepted_path_of_the_drawn_tree() -> None:
    for future, length in (([CAT, RAN], 2), ([CAT, CAT], 1), ([DOG, SAT], 1), ([SAT, RAN], 0), ([CAT, NO_FUTURE], 1)):
        assert num_accepted(DRAWN, np.array([future])).tolist() == [length], future


def test_padding_matches_nothing() -> None:
    padded = Trees(
        tokens=np.full((1, 2), PAD_TOKEN, dtype=np.int32),
        parents=np.full((1, 2), ROOT, dtype=np.int16),
        scores=np.full((1, 2), -np.inf, dtype=np.float32),
        entropies=np.zeros((1, 2), dtype=np.float32),
    )
    assert not match(padded, np.full((1, 1), NO_FUTURE)).any()
    assert num_accepted(no_trees(3), np.zeros((3, 1), dtype=int)).tolist() == [0, 0, 0]


@given(seed=seeds, num_nodes=st.integers(1, 12))
def test_mask_row_is_the_ancestors(seed: int, num_nodes: int) -> None:
    trees = random_trees(np.random.default_rng(seed), 1, num_nodes)
    mask = tree_attention_mask(trees.parents[0])
    for node in range(num_nodes):
        seen = {0, *(ancestor + 1 for ancestor in path_to(trees.parents[0], node))}
        assert set(np.flatnonzero(mask[node + 1]).tolist()) == seen


@given(seed=seeds, num_nodes=st.integers(1, 12), budget=st.integers(1, 12))
def test_every_prefix_is_a_tree(seed: int, num_nodes: int, budget: int) -> None:
    trees = random_trees(np.random.default_rng(seed), 4, num_nodes)
    prefix = trees.prefix(budget)
    for row in range(4):
        assert (prefix.parents[row] < np.arange(prefix.num_nodes)).all()
        kept = paths(prefix, row)
        assert kept == paths(trees, row)[: prefix.num_nodes]
        assert all(path[:-1] in kept[:index] for index, path in enumerate(kept) if len(path) > 1)


@given(seed=seeds, num_nodes=st.integers(1, 12))
def test_num_accepted_is_the_longest_path(seed: int, num_nodes: int) -> None:
    rng = np.random.default_rng(seed)
    trees = random_trees(rng, 5, num_nodes)
    future = rng.integers(0, 4, (5, 3))
    future[4, 1:] = NO_FUTURE
    assert num_accepted(trees, future).tolist() == [longest(trees, row, future[row].tolist()) for row in range(5)]


@given(seed=seeds)
def test_select_takes_whole_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batches = [random_trees(rng, 4, 5), random_trees(rng, 4, 3), no_trees(4)]
    chosen = rng.integers(0, 3, 4)
    picked = select(batches, chosen)
    assert picked.num_nodes == 5
    for row, index in enumerate(chosen):
        width = batches[index].num_nodes
        for name in ("tokens", "parents", "scores", "entropies"):
            np.testing.assert_array_equal(getattr(picked, name)[row, :width], getattr(batches[index], name)[row])
        assert not picked.exists()[row, width:].any()
