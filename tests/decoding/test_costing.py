"""Trees by cost: against enumeration of every prefix, and cases whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.decoding.costing import FLOOR, best_prefix, drafted_levels, goes_on
from taps.decoding.history import MERGED, History
from taps.decoding.strategy import Options, find
from taps.decoding.trees import ROOT, Trees
from taps.decoding.views import view
from tests.support.random_trees import paths, random_trees, seeds

# a token costs 1 alone; a node 0.1 more, a level of drafting 0.2
OPTIONS = Options(
    num_draft_tokens=8,
    inverse_temperatures=(1.0,),
    target_s=tuple(1 + 0.1 * nodes for nodes in range(9)),
    draft_s=(0.2, 0.4, 0.6, 0.8),
)
START = History.start(np.array([0]), 1)


def _chain(*probabilities: float) -> Trees:
    """Returns one chain whose nodes have these probabilities given their parents."""
    size = len(probabilities)
    return Trees(
        tokens=np.arange(size, dtype=np.int32)[None],
        parents=np.arange(-1, size - 1, dtype=np.int16)[None],
        scores=np.log(np.cumprod(probabilities, dtype=np.float64)).astype(np.float32)[None],
        entropies=np.ones((1, size), np.float32),
    )


@settings(deadline=None)
@given(seed=seeds, slope=st.floats(0.001, 1.0), drafting=st.floats(0.0, 2.0))
def test_the_best_prefix_is_the_best_of_all(seed: int, slope: float, drafting: float) -> None:
    trees = random_trees(np.random.default_rng(seed), 4, 7)
    options = replace(OPTIONS, target_s=tuple(1 + slope * nodes for nodes in range(8)), overhead_s=0.1)
    number, rate = best_prefix(trees, drafting, options)
    for row in range(4):
        likely = [float(np.exp(np.float64(score))) for score in trees.scores[row]]
        likely = [probability for probability in likely if probability >= FLOOR]
        rates = [
            (1 + sum(likely[:count])) / (options.target_s[count] + 0.1 + drafting) for count in range(len(likely) + 1)
        ]
        assert rate[row] == pytest.approx(max(rates))
        assert rates[number[row]] == pytest.approx(max(rates))


def test_sure_drafters_go_on_and_unsure_ones_stop() -> None:
    assert drafted_levels(_chain(0.95, 0.95, 0.95, 0.95), OPTIONS).tolist() == [4]
    assert drafted_levels(_chain(0.95, 0.1, 0.9, 0.9), OPTIONS).tolist() == [2]
    assert drafted_levels(_chain(0.2, 0.9, 0.9, 0.9), OPTIONS).tolist() == [1]


def test_free_drafting_never_stops_and_dear_drafting_does_at_once() -> None:
    chain = _chain(0.5, 0.5, 0.5, 0.5)
    free = replace(OPTIONS, draft_s=(0.2,) * 4, target_s=(1.0,) * 9)
    assert drafted_levels(chain, free).tolist() == [4]
    assert drafted_levels(chain, replace(OPTIONS, draft_s=(1.0, 2.0, 3.0, 4.0))).tolist() == [1]


def test_dear_nodes_are_not_verified() -> None:
    tree = Trees(
        tokens=np.array([[1, 2, 3]], np.int32),
        parents=np.full((1, 3), ROOT, np.int16),
        scores=np.log(np.array([[0.6, 0.25, 0.05]], np.float32)),
        entropies=np.ones((1, 3), np.float32),
    )
    assert best_prefix(tree, 0.2, OPTIONS)[0].tolist() == [2]
    dear = replace(OPTIONS, target_s=tuple(1 + nodes for nodes in range(9)))
    assert best_prefix(tree, 0.2, dear)[0].tolist() == [0]  # the root alone: a step of plain decoding
    assert find("single_costed")([tree], START, dear).trees.exists().sum() == 0


@settings(deadline=None)
@given(seed=seeds)
def test_a_drafter_that_stopped_looks_like_one_that_went_on(seed: int) -> None:
    """Live decoding sees the drafted levels alone, replay all of them: the proposal is the same."""
    trees = random_trees(np.random.default_rng(seed), 3, 24, depth=4)
    levels = drafted_levels(trees, OPTIONS)
    stopped = view(trees, levels, trees.num_nodes)
    history = History.start(np.arange(3), 1)
    whole, short = (find("single_costed")([batch], history, OPTIONS) for batch in (trees, stopped))
    np.testing.assert_array_equal(whole.num_levels, levels)
    np.testing.assert_array_equal(short.num_levels, levels)
    for row in range(3):
        assert paths(whole.trees, row) == paths(short.trees, row)
    for level in range(1, 4):
        asked = goes_on(view(trees, level, trees.num_nodes), level, OPTIONS)
        assert asked[levels > level].all()
        assert not asked[levels == level].any()


def test_calibration_moves_the_choice() -> None:
    chain = _chain(0.5, 0.5, 0.5, 0.5)
    bold, timid = (replace(OPTIONS, inverse_temperatures=(factor,)) for factor in (0.2, 3.0))
    sure, unsure = (find("single_costed")([chain], START, options) for options in (bold, timid))
    assert sure.trees.exists().sum() > unsure.trees.exists().sum()
    assert sure.num_levels is not None
    assert unsure.num_levels is not None
    assert sure.num_levels[0] > unsure.num_levels[0]


def test_merged_trees_pay_for_both_drafters_and_keep_within_the_budget() -> None:
    chains = [_chain(0.9, 0.9, 0.9, 0.9), _chain(0.8, 0.1, 0.9, 0.9)]
    options = replace(OPTIONS, inverse_temperatures=(1.0, 1.0), num_draft_tokens=3, target_s=OPTIONS.target_s[:4])
    found = find("merged_costed")(chains, History.start(np.array([0]), 2), options)
    assert found.num_levels is not None
    assert found.num_levels[0] == sum(int(drafted_levels(chain, options)[0]) for chain in chains)
    assert found.trees.exists().sum() <= 3
    assert found.chosen.tolist() == [MERGED]
