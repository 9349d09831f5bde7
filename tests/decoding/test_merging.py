"""Tests of taps.decoding.merging against unions written with dictionaries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.decoding.merging import concatenate, merge
from taps.decoding.trees import ROOT, Trees, depths, num_accepted
from tests.support.random_trees import paths, random_trees, seeds

weights_2 = st.floats(0.01, 0.99).map(lambda first: (first, 1 - first))


def _batches(seed: int, count: int = 2, rows: int = 4) -> list[Trees]:
    rng = np.random.default_rng(seed)
    return [random_trees(rng, rows, int(rng.integers(1, 10))) for _ in range(count)]


def _assert_equal(one: Trees, two: Trees) -> None:
    for name in ("tokens", "parents", "scores", "entropies"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)


def _assert_tree(trees: Trees) -> None:
    """Parents in front, scores sorted, no child above its parent."""
    for row in range(len(trees)):
        count = int(trees.exists()[row].sum())
        assert trees.exists()[row, :count].all()
        assert (np.diff(trees.scores[row, :count]) <= 0).all()
        for node, parent in enumerate(trees.parents[row, :count].tolist()):
            assert parent < node
            assert parent == ROOT or trees.scores[row, parent] >= trees.scores[row, node]


def test_merge_of_the_docstring() -> None:
    cat, dog, sat, fox = range(4)
    first = Trees(
        tokens=np.array([[cat, sat, dog]], dtype=np.int32),
        parents=np.array([[ROOT, 0, ROOT]], dtype=np.int16),
        scores=np.log(np.array([[0.6, 0.5, 0.3]], dtype=np.float32)),
        entropies=np.array([[1, 2, 1]], dtype=np.float32),
    )
    second = Trees(
        tokens=np.array([[fox, cat]], dtype=np.int32),
        parents=np.array([[ROOT, ROOT]], dtype=np.int16),
        scores=np.log(np.array([[0.7, 0.2]], dtype=np.float32)),
        entropies=np.array([[3, 3]], dtype=np.float32),
    )
    merged = merge([first, second], (0.5, 0.5))
    assert merged.tokens.tolist() == [[cat, fox, sat, dog, -1]]
    assert merged.parents.tolist() == [[ROOT, ROOT, 0, ROOT, ROOT]]
    np.testing.assert_allclose(np.exp(merged.scores), [[0.4, 0.35, 0.25, 0.15, 0]], rtol=1e-6)
    assert merged.entropies.tolist() == [[1, 3, 2, 1, 0]]
    assert merge([first, second], (0.5, 0.5), 2).tokens.tolist() == [[cat, fox]]


@given(seed=seeds, count=st.integers(2, 4))
def test_all_weight_on_one_drafter_gives_its_tree(seed: int, count: int) -> None:
    batches = _batches(seed, count)
    for index, batch in enumerate(batches):
        weights = [float(other == index) for other in range(count)]
        _assert_equal(merge(batches, weights, batch.num_nodes), batch)
        merged = merge(batches, weights)
        assert merged.exists().sum() == batch.exists().sum()


@given(seed=seeds, count=st.integers(2, 4))
def test_merge_is_the_union_with_mixture_probabilities(seed: int, count: int) -> None:
    batches = _batches(seed, count)
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(count), size=4)
    merged = merge(batches, weights)
    _assert_tree(merged)
    for row in range(4):
        union: dict[tuple[int, ...], float] = {}
        for index, batch in enumerate(batches):
            for node, path in enumerate(paths(batch, row)):
                union[path] = union.get(path, 0.0) + weights[row, index] * math.exp(batch.scores[row, node])
        found = paths(merged, row)
        assert sorted(found) == sorted(union)
        for node, path in enumerate(found):
            assert math.exp(merged.scores[row, node]) == pytest.approx(union[path], rel=1e-4)


@given(seed=seeds, weights=weights_2)
def test_concatenate_keeps_every_node(seed: int, weights: tuple[float, float]) -> None:
    batches = _batches(seed)
    joined = concatenate(batches, weights)
    _assert_tree(joined)
    for row in range(4):
        assert sorted(paths(joined, row)) == sorted(paths(batches[0], row) + paths(batches[1], row))


@given(seed=seeds, weights=weights_2)
def test_union_accepts_the_longest_of_its_drafters(seed: int, weights: tuple[float, float]) -> None:
    batches = _batches(seed)
    future = np.random.default_rng(seed).integers(0, 4, (4, 3))
    best = np.maximum(*(num_accepted(batch, future) for batch in batches))
    np.testing.assert_array_equal(num_accepted(merge(batches, weights), future), best)
    np.testing.assert_array_equal(num_accepted(concatenate(batches, weights), future), best)


@given(seed=seeds, weights=weights_2, budget=st.integers(1, 8))
def test_small_merge_is_the_prefix_of_the_large_one(seed: int, weights: tuple[float, float], budget: int) -> None:
    batches = _batches(seed)
    _assert_equal(merge(batches, weights, budget), merge(batches, weights).prefix(budget))


@given(seed=seeds)
def test_rows_do_not_influence_each_other(seed: int) -> None:
    batches = _batches(seed)
    together = merge(batches, (0.3, 0.7))
    for row in range(4):
        alone = merge([batch.rows(np.array([row])) for batch in batches], (0.3, 0.7))
        _assert_equal(alone, together.rows(np.array([row])))
    assert depths(together.parents).max() <= 3
