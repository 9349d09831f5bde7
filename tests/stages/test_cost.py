"""Tests of taps.cost and taps.decoding.cost_model: hand-computed predictions, and a measurement of tiny models."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.cost import main
from taps.decoding.cost_model import CostModel, DraftTimes, interpolate
from taps.decoding.strategy import find
from taps.measuring.costs import spread
from taps.plumbing.artefacts import read_json
from tests.support.live_fixtures import save_drafters, save_tiny_target

COST = CostModel(
    target_tokens=[1, 21, 41],
    target_s=[0.04, 0.06, 0.07],
    draft=[
        DraftTimes(num_levels=1, num_nodes=[20, 40], seconds=[0.002, 0.002]),
        DraftTimes(num_levels=5, num_nodes=[20, 40], seconds=[0.010, 0.014]),
    ],
    overhead_one_s=[0.001],
    overhead_many_s=[0.003],
    plain_s=0.05,
)


def _rate(name: str, budget: int, *cycles: tuple[int, int, int]) -> float:
    emitted, num_nodes, num_drafted = np.array(cycles).T
    return COST.tokens_per_s(find(name), budget, emitted=emitted, num_nodes=num_nodes, num_drafted=num_drafted)


def test_a_cycle_costs_its_drafts_its_forward_and_the_overhead():
    assert _rate("single", 20, (2, 20, 1)) == pytest.approx(2 / (0.010 + 0.06 + 0.001))
    assert _rate("merged_matched", 20, (2, 20, 2)) == pytest.approx(2 / (2 * 0.010 + 0.06 + 0.003))
    assert _rate("single_double", 20, (3, 40, 1)) == pytest.approx(3 / (0.014 + 0.07 + 0.001))
    assert COST.plain_tokens_per_s == 20


def test_speed_is_all_tokens_over_all_time():
    once, twice = (1, 20, 2), (5, 40, 1)
    seconds = (2 * 0.014 + 0.06 + 0.003) + (0.014 + 0.07 + 0.003)
    assert _rate("routed_confidence_turn", 40, once, twice) == pytest.approx(6 / seconds)
    nothing = np.empty(0, dtype=int)
    assert math.isnan(COST.tokens_per_s(find("single"), 20, emitted=nothing, num_nodes=nothing, num_drafted=nothing))


def test_interpolation():
    at = [0, 1, 11, 21, 31, 41, 61]
    expected = [0.04, 0.04, 0.05, 0.06, 0.065, 0.07, 0.08]
    np.testing.assert_allclose(interpolate(at, COST.target_tokens, COST.target_s), expected)
    assert interpolate(90, [40], [0.1]) == pytest.approx(0.1)
    assert interpolate(90, [40, 80], [0.2, 0.1]) == pytest.approx(0.1)  # a noisy last point must not extrapolate down


@given(st.integers(0, 200), st.integers(1, 30))
def test_more_nodes_never_cost_less(num_nodes, more):
    assert interpolate(num_nodes, COST.target_tokens, COST.target_s) <= interpolate(
        num_nodes + more, COST.target_tokens, COST.target_s
    )


def test_levels_and_depth_decide_what_drafting_costs():
    def seconds(**more):
        own = {"num_nodes": np.array([20]), "num_drafted": np.array([1]), **more}
        return COST.cycle_s(find("single"), 20, **own)[0] - 0.06 - 0.001

    assert seconds() == pytest.approx(0.010)
    assert seconds(depth=0) == pytest.approx(0.002)
    assert seconds(depth=2) == pytest.approx(0.006)
    assert seconds(num_levels=np.array([3])) == pytest.approx(0.006)
    assert seconds(num_levels=np.array([0]), depth=4) == pytest.approx(0.010)
    nodes, drafted, levels = (np.array([number]) for number in (20, 2, 6))
    two = COST.cycle_s(find("merged_costed"), 20, num_nodes=nodes, num_drafted=drafted, num_levels=levels)
    assert two[0] == pytest.approx(2 * 0.008 + 0.06 + 0.003)


def test_what_a_costed_strategy_is_told():
    settings = COST.settings(find("single_costed"), 20, depth=4)
    assert len(settings["target_s"]) == 21
    assert settings["target_s"][20] == pytest.approx(0.06)
    assert settings["draft_s"] == pytest.approx((0.002, 0.005, 0.008, 0.011, 0.014))  # twice the nodes
    assert settings["overhead_s"] == 0.001
    assert COST.settings(find("single"), 20, depth=4) == {}


def test_files_that_know_one_depth_are_read():
    content = {
        "depth": 3,
        "target": [{"num_tokens": 1, "median_s": 0.1}],
        "draft": [{"num_nodes": 4, "median_s": 0.2}, {"num_nodes": 8, "median_s": 0.3}],
        **{"overhead_one_s": 0.0, "overhead_many_s": 0.0, "plain_s": 0.1},
    }
    cost = CostModel.from_json(content)
    assert [times.num_levels for times in cost.draft] == [4]
    assert cost.draft_tree_s(4, 6) == pytest.approx(0.25)


def test_larger_trees_cost_more_outside_the_models():
    cost = replace(COST, overhead_one_s=[0.001, 0.004], overhead_nodes=[4, 40])
    assert cost.overhead_s(find("single"), 4) == 0.001
    assert cost.overhead_s(find("single"), 22) == pytest.approx(0.0025)


def test_a_spread_too_wide_decides_nothing():
    assert spread([1.0, 1.05, 1.1, 1.0])["decides"]
    assert not spread([1.0, 2.0, 1.0, 2.0])["decides"]
    assert not spread([1.0, 1.0])["decides"]  # too few


def _measure(tmp_path, *flags):
    target = save_tiny_target(tmp_path / "target", positions=256)
    main(
        [
            *("--target", str(target), *save_drafters(tmp_path, target, ("math",))),
            *("--depth", "2", "--top-k", "3", "--num-draft-tokens", "8", "--nodes", "4", "12", *flags),
            *("--output", str(tmp_path / "cost.json")),
        ]
    )
    return read_json(tmp_path / "cost.json", kind="cost")


def test_measures_tiny_models(tmp_path, capsys):
    content = _measure(tmp_path, "--limit-s", "1.5", "--prefix-length", "40")
    assert [row["num_tokens"] for row in content["target"]] == [1, 5, 13]
    shapes = [(row["num_levels"], row["num_nodes"]) for row in content["draft"]]
    assert shapes == [(levels, nodes) for levels in (1, 2, 3) for nodes in (4, 16)]
    assert content["prefix_length"] == 40
    overheads = [*content["overhead"]["one"], *content["overhead"]["many"]]
    for row in [*content["target"], *content["draft"], content["plain"], *overheads]:
        assert 0 < row["low_s"] <= row["median_s"] <= row["high_s"]
        assert row["num_measured"] >= 1
    assert content["plain_s"] == content["plain"]["median_s"]
    assert 0 < content["load"]["own_cpu_share"] <= 1.1
    assert len(content["load"]["average_before"]) == 3
    cost = CostModel.from_json(content)
    one = np.ones(1, dtype=int)
    rate = cost.tokens_per_s(find("merged_dedup"), 8, emitted=3 * one, num_nodes=12 * one, num_drafted=2 * one)
    seconds = cost.draft_tree_s(3, 8) * 2 + content["target"][2]["median_s"] + content["overhead_many_s"]
    assert rate == pytest.approx(3 / seconds)
    assert "target forward of 13 tokens" in capsys.readouterr().out


def test_time_that_is_up_stops_it(tmp_path):
    """Every measurement is there once, however short the time; none decides anything then."""
    content = _measure(tmp_path, "--limit-s", "0")
    rows = [*content["target"], *content["draft"], content["plain"]]
    assert [row["num_measured"] for row in rows] == [1] * len(rows)
    assert not any(row["decides"] for row in rows)
