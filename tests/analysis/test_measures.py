"""Tests of taps.analysis.measures on cycles written by hand, and properties of the definitions on random walks."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.analysis.measures import (
    DEFINITIONS,
    acceptance_by_depth,
    judged_nodes,
    question_sums,
    routing_shares,
    value,
)
from taps.decoding.node_groups import node_groups
from taps.decoding.strategy import Options, find
from taps.decoding.walk import Bank, read_text, walk
from tests.support.random_trees import Recorded, seeds


def _cycles(*answers: tuple[str, list[tuple[int, int]]], **columns: object) -> pd.DataFrame:
    """Returns the cycles of (question, [(accepted, emitted), ...]) answers."""
    rows = [
        {"question": question, "sequence": index, "cycle": number, "accepted": accepted, "emitted": emitted, **columns}
        for index, (question, pairs) in enumerate(answers)
        for number, (accepted, emitted) in enumerate(pairs, start=1)
    ]
    return pd.DataFrame(rows)


BY_HAND = _cycles(("a", [(1, 2), (3, 4), (0, 1)]), ("a", [(2, 3), (2, 2)]), ("b", [(0, 1)]))


def test_definitions_by_hand() -> None:
    sums = question_sums(BY_HAND)
    assert sums.loc["a"].to_dict() == {"tokens": 12, "cycles": 5, "accepted": 8, "answers": 2}
    assert value("tau", sums) == 13 / 6
    assert value("tau_macro", sums) == (12 / 5 + 1 / 1) / 2
    assert value("tau_published_eagle", sums) == 13 / ((3 - 1) + (2 - 1) + (1 - 1))
    assert value("tau_published_hass", sums) == ((8 / 5 + 1) + (0 / 1 + 1)) / 2


def test_one_cycle_answers_have_no_published_eagle_value() -> None:
    sums = question_sums(_cycles(("a", [(1, 2)])))
    assert math.isnan(value("tau_published_eagle", sums))
    assert value("tau", sums) == 2


def test_sums_by_variant_pool_the_rest() -> None:
    both = pd.concat([BY_HAND.assign(seed=0, strategy="x"), BY_HAND.assign(seed=1, strategy="x")])
    once = question_sums(BY_HAND).to_numpy()
    np.testing.assert_array_equal(question_sums(both, ["strategy"]), 2 * once)
    np.testing.assert_array_equal(question_sums(both, ["strategy", "seed"]), np.concatenate([once, once]))


def test_acceptance_by_depth_by_hand() -> None:
    table = acceptance_by_depth(BY_HAND).set_index("depth")
    # the cycle (2, 2) met the end of its answer behind depth 2: it says nothing about depth 3
    assert table["num_reached"].to_dict() == {1: 6, 2: 4, 3: 2}
    assert table["num_accepted"].to_dict() == {1: 4, 2: 3, 3: 1}
    np.testing.assert_allclose(table["conditional"], [4 / 6, 3 / 4, 1 / 2])
    np.testing.assert_allclose(table["joint"], [4 / 6, 4 / 6 * 3 / 4, 4 / 6 * 3 / 4 / 2])


def test_acceptance_by_depth_in_groups() -> None:
    both = pd.concat([BY_HAND.assign(strategy="x"), _cycles(("a", [(1, 2), (0, 1)])).assign(strategy="y")])
    table = acceptance_by_depth(both, ["strategy"])
    one, two = (table[table["strategy"] == name].drop(columns="strategy") for name in "xy")
    np.testing.assert_array_equal(two, [[1, 2, 1, 0.5, 0.5], [2, 1, 0, 0, 0], [3, 0, 0, np.nan, np.nan]])
    np.testing.assert_allclose(one, acceptance_by_depth(BY_HAND))
    assert acceptance_by_depth(BY_HAND.iloc[:0]).empty


def test_judged_nodes_weigh_nodes_and_keep_the_definitions_apart() -> None:
    nodes = pd.DataFrame(
        {
            "kind": pd.Categorical(["accepted", "accepted", "rejected_sibling", "unverified"]),
            "count": [1, 3, 2, 6],
            "entropy": [1.0, 2.0, 3.0, 5.0],
            "confidence": [0.8, 0.4, 0.2, 0.1],
            "conditional_confidence": [0.8, 0.8, 0.4, 0.4],
        }
    )
    ours, theirs = (judged_nodes(nodes, published=published).set_index("verdict") for published in (False, True))
    assert list(ours.index) == list(theirs.index) == ["accepted", "rejected"]
    np.testing.assert_allclose(ours, [[4, 1.75, 0.5, 0.8], [2, 3, 0.2, 0.4]])
    np.testing.assert_allclose(theirs, [[4, 1.75, 0.5, 0.8], [8, (2 * 3 + 6 * 5) / 8, 0.125, 0.4]])


def test_routing_shares_by_hand() -> None:
    chosen = pd.DataFrame(
        {
            "strategy": "routed",
            "drafters": "math+chat",
            "question": [*"aaa", *"bb", *"cc"],
            "chosen": [0, 0, 1, 0, 1, 1, 1],
        }
    )
    merged = pd.DataFrame({"strategy": "merged", "drafters": "math+chat", "question": ["a"], "chosen": [-1]})
    table = routing_shares(pd.concat([chosen, merged]), ["strategy"]).set_index("drafter")
    assert table["share_of_cycles"].to_dict() == pytest.approx({"math": 3 / 7, "chat": 4 / 7})
    assert table["share_of_questions"].to_dict() == pytest.approx({"math": 1.5 / 3, "chat": 1.5 / 3})
    assert set(table["strategy"]) == {"routed"}
    each = routing_shares(chosen, ["question"]).set_index(["question", "drafter"])["share_of_cycles"]
    assert each.loc["a"].to_dict() == pytest.approx({"math": 2 / 3, "chat": 1 / 3})


def test_routing_shares_list_drafters_never_chosen() -> None:
    chosen = pd.DataFrame({"drafters": ["math+chat", "a+b+c"], "question": ["q", "q"], "chosen": [0, 2]})
    table = routing_shares(chosen)
    assert table["drafter"].tolist() == ["a", "b", "c", "math", "chat"]
    assert table["share_of_cycles"].tolist() == [0, 0, 1, 1, 0]


@settings(deadline=None, max_examples=30)
@given(seed=seeds, lengths=st.lists(st.integers(2, 12), min_size=1, max_size=5))
def test_definitions_on_random_walks(seed: int, lengths: list[int]) -> None:
    recorded = Recorded(np.random.default_rng(seed), lengths=lengths, drafters=1)
    text = read_text(recorded.tokens, recorded.offsets, recorded.prompt_lengths, recorded.depth)
    bank = Bank.of("math", recorded.trees[0], text)
    walked = walk(find("single"), [bank], text, Options(num_draft_tokens=4))
    cycles = pd.DataFrame(vars(walked)).assign(question=[f"q{sequence // 2}" for sequence in walked.sequence])
    sums = question_sums(cycles)
    assert sums["tokens"].sum() == sum(length - 1 for length in lengths)
    assert sums["answers"].sum() == len(lengths)
    for name in ("tau", "tau_macro"):
        assert 1 <= value(name, sums) <= recorded.depth + 1
    assert value("tau_published_hass", sums) >= value("tau_macro", sums) - 1e-12
    published = value("tau_published_eagle", sums)
    assert math.isnan(published) or published > value("tau", sums)
    assert set(DEFINITIONS) == {"tau", "tau_macro", "tau_published_eagle", "tau_published_hass"}

    nodes = pd.DataFrame(node_groups(bank, text, walked, 4))
    table = acceptance_by_depth(cycles)
    accepted = nodes[nodes["kind"] == 0].groupby("depth")["count"].sum()
    assert accepted.to_dict() == table.set_index("depth")["num_accepted"].to_dict()
