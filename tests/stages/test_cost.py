"""Tests of taps.cost and taps.decoding.cost_model: hand-computed predictions, and a measurement of tiny models."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from taps import trace
from taps.cost import main
from taps.decoding.cost_model import CostModel, DraftTimes, interpolate, non_decreasing
from taps.decoding.strategy import find
from taps.measuring.costs import Answer, _Place, at_one_pace, spread
from taps.plumbing.artefacts import (
    read_envelope,
    read_json,
    read_json_envelope,
    read_tensors,
    write_jsonl,
    write_tensors,
)
from taps.plumbing.errors import TapsError
from taps.plumbing.provenance import digest_of
from tests.support.live_fixtures import drafters_of, save_drafters, save_tiny_target, tiny_target

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
    seconds = (2 * 0.014 + 0.06 + 0.003) + (0.014 + 0.07 + 0.001)  # one drafter alone leaves nothing to merge
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


def test_a_slow_round_counts_at_the_usual_pace():
    """Rounds of three works at paces 1, 3, 1, 1 and 1/2; a hiccup of one work stays; the last round is cut short."""
    usual = np.array([1.0, 10.0, 4.0])
    seconds = np.stack([usual, 3 * usual, usual * [1, 1, 7], usual, usual / 2])
    seconds[4, 0] = np.nan
    even, pace = at_one_pace(seconds)
    np.testing.assert_allclose(pace, [1, 3, 1, 1, 0.5])
    np.testing.assert_allclose(even, np.stack([usual, usual, usual * [1, 1, 7], usual, usual * [np.nan, 1, 1]]))


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=12))
def test_more_work_never_costs_less(values):
    found = np.array(non_decreasing(values))
    assert (np.diff(found) >= -1e-12).all()
    assert found.sum() == pytest.approx(sum(values))
    if (np.diff(values) >= 0).all():
        np.testing.assert_allclose(found, values)


def test_noise_is_spread_over_its_neighbours():
    assert non_decreasing([1, 3, 2, 4]) == [1, 2.5, 2.5, 4]
    assert non_decreasing([3, 2, 1, 6]) == [2, 2, 2, 6]


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
    assert shapes == [(levels, nodes) for levels in (1, 2, 3) for nodes in (4, 8, 16)]
    assert content["mean_prompt_length"] == 40
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
    seconds = cost.draft_tree_s(3, 8) * 2 + float(cost.target_forward_s(12)) + content["overhead_many_s"]
    assert rate == pytest.approx(3 / seconds)
    assert "target forward of 13 tokens" in capsys.readouterr().out


def test_time_that_is_up_stops_it(tmp_path):
    """Every work is measured in one round, however short the time; none that was measured once decides anything."""
    content = _measure(tmp_path, "--limit-s", "0")
    rows = [*content["target"], *content["draft"], content["plain"]]
    assert [row["num_measured"] for row in rows] == [1] * (len(rows) - 1) + [3]
    assert not any(row["decides"] for row in rows[:-1])


# --- what is timed on ------------------------------------------------------------------------------------------------


def test_a_prompt_leaves_tokens_to_draft():
    assert Answer.cut(range(9), 5, 20) == Answer(tokens=range(9), prompt_length=5)
    assert Answer.cut(range(9), 5, 6) == Answer(tokens=range(6), prompt_length=4)
    assert Answer.cut(range(9), 1, 20) == Answer(tokens=range(9), prompt_length=2)


def test_rounds_move_through_answers():
    """A drafter at a place has read the target's features up to there, as live: its trees are those of a fresh one."""
    target = tiny_target()
    (drafter,) = drafters_of(target, 1)
    answers = [
        Answer(tokens=[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9], prompt_length=3),
        Answer(tokens=[2, 7, 1, 8], prompt_length=2),
    ]
    place = _Place(target, drafter, answers)
    ends = []
    for _ in range(6):
        ends.append((len(place.tokens), place.end))
        place.draft(2, 6)
        place.verify(3)
        place.say_one()
        assert place.text.length == len(drafter.keys) == place.end
        (fresh,) = drafters_of(target, 1)
        with torch.inference_mode():
            features = target.features(torch.tensor([place.tokens[: place.end]]))[0]
        fresh.read(torch.tensor(place.tokens[1 : place.end + 1]), features)
        fresh.catch_up()
        torch.testing.assert_close(drafter.keys, fresh.keys, atol=1e-5, rtol=1e-5)
        place.move()
    assert ends == [(13, 3), (13, 11), (4, 2), (13, 3), (13, 11), (4, 2)]


def test_a_recorded_text_is_timed_on(tmp_path):
    target = save_tiny_target(tmp_path / "target", positions=256)
    prompts = [{"id": "q", "category": None, "turns": ["Tom has 3 apples."], "reference": None}]
    write_jsonl(tmp_path / "prompts.jsonl", prompts, kind="prompts", provenance={})
    path = tmp_path / "trace.safetensors"
    files = ["--prompts", str(tmp_path / "prompts.jsonl"), "--output", str(path)]
    trace.main(["--target", str(target), *files, "--max-new-tokens", "12"])
    lengths = read_tensors(path, kind="trace")[0]["prompt_lengths"].tolist()
    content = _measure(tmp_path, "--limit-s", "0", "--trace", str(path))
    assert [content["mean_prompt_length"]] == lengths
    assert read_json_envelope(tmp_path / "cost.json", kind="cost")["provenance"]["inputs"]["trace"] == digest_of(path)
    short = {"tokens": np.arange(3), "offsets": np.array([0, 3]), "prompt_lengths": np.array([2])}
    made_from = read_envelope(path, kind="trace")["provenance"]
    write_tensors(path, short, kind="trace", provenance=made_from)
    with pytest.raises(TapsError, match="too short to time anything on"):
        _measure(tmp_path, "--limit-s", "0", "--trace", str(path))
