"""Tests of taps.decoding.strategies on trees written by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from taps.decoding.history import MERGED, Hindsight, History
from taps.decoding.signals import confidence, mean_entropy
from taps.decoding.strategy import STRATEGIES, Kind, Options, Proposal, find, strategy
from taps.decoding.trees import ROOT, Trees, no_trees
from taps.plumbing.errors import TapsError

OPTIONS = Options(num_draft_tokens=2)


def _chain(probability: float, entropy: float, token: int = 0) -> Trees:
    """Returns one tree of two nodes, a chain whose tokens each have the given probability."""
    return Trees(
        tokens=np.array([[token, token]], dtype=np.int32),
        parents=np.array([[ROOT, 0]], dtype=np.int16),
        scores=np.log(np.array([[probability, probability**2]], dtype=np.float32)),
        entropies=np.full((1, 2), entropy, dtype=np.float32),
    )


SURE, UNSURE = _chain(0.9, 2.0, token=1), _chain(0.4, 1.0, token=2)  # the sure one has the larger entropy
START = History.start(np.array([0]), 2)


def _after(*lengths: tuple[int, int], chosen: int = 0, decay: float = 0.9) -> History:
    history = START
    for pair in lengths:
        history = history.updated(
            num_accepted=np.array([pair]), num_emitted=np.array([9]), chosen=np.array([chosen]), decay=decay
        )
    return history


def _chosen(name: str, history: History = START, options: Options = OPTIONS) -> int:
    return int(find(name)([SURE, UNSURE], history, options).chosen[0])


def test_signals() -> None:
    assert confidence(SURE)[0] == pytest.approx((0.9 + 0.81) / 2)
    assert mean_entropy(SURE).tolist() == [2.0]
    assert confidence(no_trees(1)).tolist() == [0.0]
    assert mean_entropy(no_trees(1)).tolist() == [np.inf]


def test_confidence_and_entropy_may_disagree() -> None:
    assert _chosen("routed_confidence_step") == 0
    assert _chosen("routed_entropy_step") == 1


def test_score_is_the_signal_of_the_choice() -> None:
    proposal = find("routed_confidence_step")([SURE, UNSURE], START, OPTIONS)
    assert proposal.score[0] == pytest.approx(confidence(SURE)[0])
    np.testing.assert_array_equal(proposal.trees.tokens, SURE.tokens)


def test_turn_routing_keeps_its_first_choice() -> None:
    for name, first in (("routed_confidence_turn", 0), ("routed_entropy_turn", 1)):
        assert _chosen(name) == first
        assert _chosen(name, _after((0, 0), chosen=1 - first)) == 1 - first
        assert find(name).drafts(START, OPTIONS).tolist() == [[True, True]]
        assert find(name).drafts(_after((0, 0), chosen=1), OPTIONS).tolist() == [[False, True]]


def test_turn_routing_needs_no_other_tree_later() -> None:
    proposal = find("routed_entropy_turn")([no_trees(1), UNSURE], _after((1, 1), chosen=1), OPTIONS)
    assert proposal.trees.tokens.tolist() == UNSURE.tokens.tolist()


def test_history_follows_what_was_accepted() -> None:
    assert _chosen("routed_history") == 0, "nothing known: the more confident"
    assert _chosen("routed_history", _after((1, 2))) == 1
    assert _chosen("routed_history", _after((1, 2), (2, 1))) == 0, "the last cycle weighs more"
    assert _chosen("routed_history", _after((1, 2), (2, 1), decay=1.0)) == 0, "equal: the more confident"


def test_history_counts_only_emitted_tokens() -> None:
    history = START.updated(num_accepted=np.array([[5, 1]]), num_emitted=np.array([2]), chosen=np.array([1]), decay=0.5)
    assert history.num_accepted.tolist() == [[2.0, 1.0]]


def test_adaptive_leans_towards_the_winner() -> None:
    adaptive = find("merged_adaptive")
    even = adaptive([SURE, UNSURE], START, OPTIONS).trees
    matched = find("merged_matched")([SURE, UNSURE], START, OPTIONS).trees
    np.testing.assert_array_equal(even.tokens, matched.tokens)
    assert even.tokens.tolist() == [[1, 1]]
    leaning = adaptive([SURE, UNSURE], _after((0, 6), (0, 6)), OPTIONS)
    assert leaning.trees.tokens.tolist() == [[2, 2]]
    assert leaning.chosen.tolist() == [MERGED]
    assert np.isnan(leaning.score[0])


def test_calibration_changes_the_choice() -> None:
    options = replace(OPTIONS, inverse_temperatures=(20.0, 0.1))
    assert _chosen("routed_confidence_step", options=options) == 0
    assert _chosen("routed_confidence_step_calibrated", options=options) == 1
    assert _chosen("routed_entropy_step_calibrated", options=options) == 1
    merged = find("merged_matched_calibrated")([SURE, UNSURE], START, options)
    assert merged.trees.tokens.tolist() == [[2, 2]]


def test_neutral_calibration_changes_nothing() -> None:
    options = replace(OPTIONS, inverse_temperatures=(1.0, 1.0))
    for name in (name for name in STRATEGIES if name.endswith("_calibrated")):
        one = find(name)([SURE, UNSURE], START, options)
        two = find(name.removesuffix("_calibrated"))([SURE, UNSURE], START, options)
        np.testing.assert_array_equal(one.trees.tokens, two.trees.tokens)
        np.testing.assert_array_equal(one.trees.scores, two.trees.scores)


def test_random_depends_on_seed_answer_and_cycle_alone() -> None:
    history = History.start(np.arange(4000), 2)
    everyone = find("random").drafts(history, OPTIONS)
    assert everyone.sum(axis=1).tolist() == [1] * 4000
    # a fair coin leaves 2000 +- 200 with probability below 1e-9
    assert abs(int(everyone[:, 0].sum()) - 2000) < 200
    alone = find("random").drafts(History.start(np.array([77]), 2), OPTIONS)
    assert alone[0].tolist() == everyone[77].tolist()
    later = replace(history, num_cycles=history.num_cycles + 1)
    assert (find("random").drafts(later, OPTIONS) != everyone).any()
    assert (find("random").drafts(history, replace(OPTIONS, seed=1)) != everyone).any()


def test_oracle_posthoc_and_best_single_read_the_future() -> None:
    hindsight = Hindsight(
        num_accepted=np.array([[0, 2]]), confidence=np.array([[0.8, 0.3]]), tau=np.array([[1.2, 1.5]])
    )
    history = History.start(np.array([0]), 2, hindsight)
    assert [_chosen(name, history) for name in ("oracle", "posthoc", "best_single")] == [1, 0, 1]


def test_drafters_that_must_draft() -> None:
    known = {name: s for name, s in STRATEGIES.items() if not s.needs_future and not s.uses_prompt}
    everyone = {name for name, s in known.items() if s.drafts(START, OPTIONS).all()}
    assert "merged_adaptive" in everyone
    assert "routed_history" in everyone
    assert "random" not in everyone


def test_single_double_wants_twice_the_nodes() -> None:
    assert find("single_double").num_nodes(OPTIONS) == 4
    assert find("merged_matched").num_nodes(OPTIONS) == 2


def test_unknown_names_are_refused() -> None:
    with pytest.raises(TapsError, match=r"strategy 'best'.*unknown.*routed_history"):
        find("best")


@pytest.mark.parametrize("name", ["oracle", "posthoc", "best_single"])
def test_live_decoding_refuses_hindsight(name: str) -> None:
    with pytest.raises(TapsError, match="needs the recorded future"):
        find(name, live=True)


def test_a_new_strategy_is_one_function() -> None:
    before = set(STRATEGIES)

    @strategy(title="always the second", kind=Kind.ROUTED, calibratable=True)
    def always_second(trees, history, options):
        return Proposal(trees=trees[1], chosen=np.array([1]), score=np.array([np.nan]))

    try:
        assert set(STRATEGIES) - before == {"always_second", "always_second_calibrated"}
        assert find("always_second")([SURE, UNSURE], START, OPTIONS).trees is UNSURE
        assert always_second([SURE, UNSURE], START, OPTIONS).trees is UNSURE
        assert find("always_second_calibrated").title == "always the second, calibrated"
    finally:
        for name in set(STRATEGIES) - before:
            STRATEGIES.forget(name)
