"""Tests of taps.cost and taps.decoding.cost_model: hand-computed predictions, and a measurement of tiny models."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.cost import main
from taps.decoding.cost_model import CostModel, interpolate
from taps.decoding.strategy import find
from taps.plumbing.artefacts import read_json
from tests.live_fixtures import save_drafters, save_tiny_target

COST = CostModel(
    target_tokens=[1, 21, 41],
    target_s=[0.04, 0.06, 0.07],
    draft_nodes=[20, 40],
    draft_s=[0.010, 0.014],
    overhead_one_s=0.001,
    overhead_many_s=0.003,
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


def test_measures_tiny_models(tmp_path, capsys):
    target = save_tiny_target(tmp_path / "target", positions=64)
    main(
        [
            *("--target", str(target), *save_drafters(tmp_path, target, ("math",))),
            *("--depth", "2", "--top-k", "3", "--num-draft-tokens", "8"),
            *("--nodes", "4", "12", "--repeats", "2", "--output", str(tmp_path / "cost.json")),
        ]
    )
    content = read_json(tmp_path / "cost.json", kind="cost")
    assert [row["num_tokens"] for row in content["target"]] == [1, 5, 13]
    assert [row["num_nodes"] for row in content["draft"]] == [2, 4, 8, 16]
    assert content["prefix_length"] <= 64 - 12
    for row in content["target"] + content["draft"]:
        assert 0 < row["low_s"] <= row["median_s"] <= row["high_s"]
    cost = CostModel.from_json(content)
    one = np.ones(1, dtype=int)
    rate = cost.tokens_per_s(find("merged_dedup"), 8, emitted=3 * one, num_nodes=12 * one, num_drafted=2 * one)
    seconds = 2 * content["draft"][2]["median_s"] + content["target"][2]["median_s"] + content["overhead_many_s"]
    assert rate == pytest.approx(3 / seconds)
    assert "target forward of   13 tokens" in capsys.readouterr().out
