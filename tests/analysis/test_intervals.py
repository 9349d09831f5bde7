"""Tests of taps.analysis.intervals: variances by leaving questions out, pairing, means, seeds, honest refusals."""

from __future__ import annotations

import math
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.analysis import contrasts
from taps.analysis.distributions import t_quantile
from taps.analysis.intervals import Quantities
from taps.analysis.ratios import balanced_weights, ratios, with_means

KEYS = ["temperature", "method", "benchmark", "row"]
Table = list[list[float]]


def _sums(
    tokens: list[list[float]], cycles: list[list[float]], benchmark: str = "gsm8k", seed: int = 0
) -> pd.DataFrame:
    """Returns sums of R rows by Q questions."""
    return pd.DataFrame(
        [
            {"temperature": 0.0, "method": "m", "benchmark": benchmark, "row": row, "question": f"q{question}"}
            | {"tokens": tokens[row][question], "cycles": cycles[row][question], "training_seed": seed}
            for row in range(len(tokens))
            for question in range(len(tokens[row]))
        ]
    )


def _ratios(*parts: pd.DataFrame) -> Quantities:
    return ratios(pd.concat(parts), KEYS, "tokens", "cycles", training_seed="training_seed")


def _random(seed: int, questions: int, benchmark: str = "gsm8k", rows: int = 2, training_seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng([seed, training_seed])
    cycles = rng.integers(8, 40, (rows, questions))
    tokens = np.round(cycles * rng.uniform(1.2, 2.5, (rows, questions)))
    return _sums(tokens.tolist(), cycles.tolist(), benchmark, training_seed)


# --- one ratio -------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.integers(2, 12))
def test_variance_is_that_of_leaving_each_question_out(seed: int, questions: int) -> None:
    sums = _random(seed, questions, rows=1)
    found = _ratios(sums)
    tokens, cycles = sums["tokens"].to_numpy(), sums["cycles"].to_numpy()
    left_out = (tokens.sum() - tokens) / (cycles.sum() - cycles)
    variance = (questions - 1) / questions * ((left_out - left_out.mean()) ** 2).sum()
    assert found.estimates[0] == pytest.approx(tokens.sum() / cycles.sum())
    effective = cycles.sum() ** 2 / (cycles**2).sum()
    half = float(t_quantile(max(effective - 1, 1))) * math.sqrt(variance)
    assert found.intervals.highs[0] - found.estimates[0] == pytest.approx(half, rel=1e-4)
    assert found.estimates[0] - found.intervals.lows[0] == pytest.approx(half, rel=1e-4)


def test_equal_cycles_give_the_textbook_interval_of_a_mean() -> None:
    tau = np.array([1.2, 1.9, 1.4, 1.6, 2.2, 1.5, 1.1])
    found = _ratios(_sums([(10 * tau).tolist()], [[10.0] * 7])).frame("tau", p_value="p").iloc[0]
    half = 2.4469 * tau.std(ddof=1) / math.sqrt(7)
    assert found["high"] - found["tau"] == pytest.approx(half, rel=1e-4)
    assert found["low"] == pytest.approx(tau.mean() - half, rel=1e-4)
    assert found["num_questions"] == 7
    assert found["num_training_seeds"] == 1
    assert 0 < found["p"] < 1e-4


def test_rows_of_a_question_are_summed_and_their_order_is_nothing() -> None:
    whole = _random(1, 6)
    halves = pd.concat(
        [whole.assign(tokens=whole["tokens"] - 3, cycles=whole["cycles"] - 2), whole.assign(tokens=3, cycles=2)]
    )
    one, other = _ratios(whole), _ratios(halves.sample(frac=1, random_state=0))
    pd.testing.assert_frame_equal(one.frame("tau"), other.frame("tau"))


def test_a_question_without_cycles_does_not_count() -> None:
    one, other = _ratios(_sums([[30, 10, 20]], [[10, 9, 12]])), _ratios(_sums([[30, 0, 10, 20]], [[10, 0, 9, 12]]))
    pd.testing.assert_frame_equal(one.frame("tau"), other.frame("tau"))


# --- where there is no interval --------------------------------------------------------------------------------------


def test_one_question_has_no_interval() -> None:
    found = _ratios(_sums([[30]], [[10]])).frame("tau", p_value="p").iloc[0]
    assert found["tau"] == 3
    assert found[["low", "high", "p"]].isna().all()


def test_no_question_has_no_estimate() -> None:
    found = _ratios(_sums([[0, 0, 0]], [[0, 0, 0]])).frame("tau").iloc[0]
    assert found[["tau", "low", "high"]].isna().all()
    assert found["num_questions"] == 0


def test_an_unknown_sum_is_an_unknown_ratio() -> None:
    found = _ratios(_sums([[30, math.nan, 10]], [[10, 10, 10]])).frame("tau").iloc[0]
    assert found[["tau", "low", "high"]].isna().all()


def test_no_spread_is_no_certainty() -> None:
    """Every question has tau 1: that is no proof that the next one has."""
    found = _ratios(_sums([[12, 20, 31]], [[12, 20, 31]])).frame("tau").iloc[0]
    assert found["tau"] == 1
    assert found[["low", "high"]].isna().all()


def test_a_constant_difference_has_no_interval() -> None:
    found = _ratios(_sums([[20, 30, 25], [10, 20, 15]], [[10] * 3] * 2))
    difference = found.minus([0], [1], found.keys.iloc[[0]]).frame("difference").iloc[0]
    assert difference["difference"] == pytest.approx(1)
    assert difference[["low", "high"]].isna().all()


def test_rows_that_do_the_same_differ_by_exactly_nothing() -> None:
    sums = _random(3, 9, rows=1)
    found = _ratios(sums, sums.assign(row=1), _random(4, 9, rows=1).assign(row=2))
    difference = found.minus([0, 0], [1, 2], found.keys.iloc[[0, 0]])
    intervals = difference.intervals
    assert (intervals.estimates[0], intervals.lows[0], intervals.highs[0], intervals.p_values[0]) == (0, 0, 0, 1)
    assert intervals.p_values[1] < 1
    single = _ratios(_sums([[20]] * 2, [[10]] * 2))
    assert np.isnan(single.minus([0], [1], single.keys.iloc[[0]]).intervals.p_values).all()  # one question


def test_nothing_gives_nothing() -> None:
    empty = _random(0, 3).iloc[:0]
    found = with_means(ratios(empty, KEYS, "tokens", "cycles"))
    assert found.frame("tau").empty
    assert list(found.frame("tau").columns) == [*KEYS, "tau", "low", "high", "num_questions", "num_training_seeds"]


# --- differences and combinations ------------------------------------------------------------------------------------


def test_differences_are_paired() -> None:
    rng = np.random.default_rng(0)
    base = rng.uniform(10, 60, 12)
    found = _ratios(_sums([base.tolist(), (base + 5 + rng.normal(0, 0.1, 12)).tolist()], [[10.0] * 12] * 2))
    difference = found.minus([1], [0], found.keys.iloc[[1]]).frame("difference").iloc[0]
    single = found.frame("tau").iloc[0]
    assert difference["difference"] == pytest.approx(0.5, abs=0.02)
    assert difference["high"] - difference["low"] < 0.03 < 1 < single["high"] - single["low"]


def test_a_difference_is_a_combination() -> None:
    found = _ratios(_random(1, 9, rows=4), _random(2, 5, "mt_bench", rows=4))
    keys = found.keys.iloc[[0, 3]]
    weights = [contrasts.difference({0: 1.0}, {1: 1.0}), {3: 1.0, 2: -1.0, 0: 0.0}]
    pd.testing.assert_frame_equal(
        found.minus([0, 3], [1, 2], keys).frame("x", p_value="p"), found.combined(weights, keys).frame("x", p_value="p")
    )


def test_benchmarks_are_independent() -> None:
    """Variances of a difference across benchmarks add; Welch's degrees of freedom."""
    found = _ratios(_sums([[12.0, 17, 14, 22, 19]], [[10.0] * 5]), _sums([[11.0, 18, 9]], [[10.0] * 3], "mt_bench"))
    one, two = (np.array(values) / 10 for values in ([12, 17, 14, 22, 19], [11, 18, 9]))
    errors = [part.var(ddof=1) / len(part) for part in (one, two)]
    degrees = sum(errors) ** 2 / (errors[0] ** 2 / 4 + errors[1] ** 2 / 2)
    difference = found.minus([0], [1], found.keys.iloc[[0]]).frame("difference").iloc[0]
    assert difference["difference"] == pytest.approx(one.mean() - two.mean())
    half = float(t_quantile(degrees)) * math.sqrt(sum(errors))
    assert difference["high"] - difference["difference"] == pytest.approx(half, rel=1e-4)
    assert difference["num_questions"] == 8


def test_a_difference_has_the_fewest_questions_of_its_parts() -> None:
    found = _ratios(_sums([[30, 10, 20, 14], [25, 12, 0, 0]], [[10, 9, 12, 8], [10, 9, 0, 0]]))
    difference = found.minus([0], [1], found.keys.iloc[[0]])
    assert difference.num_questions.sum() == 2
    assert np.isfinite(difference.intervals.lows).all()


def test_units() -> None:
    found = _ratios(_random(5, 8))
    percent = found.scaled(100).frame("x", p_value="p")
    plain = found.frame("x", p_value="p")
    for column in ("x", "low", "high"):
        np.testing.assert_allclose(percent[column], 100 * plain[column], rtol=1e-5)
    np.testing.assert_allclose(percent["p"], plain["p"], rtol=1e-3)


def test_taking_rows() -> None:
    found = _ratios(_random(5, 8, rows=4))
    taken = found.take(found.keys["row"].ge(2).to_numpy())
    pd.testing.assert_frame_equal(taken.frame("x"), found.frame("x").iloc[2:].reset_index(drop=True))


# --- means -----------------------------------------------------------------------------------------------------------


def test_means_weigh_benchmarks_alike() -> None:
    found = with_means(_ratios(_random(1, 9), _random(2, 5, "mt_bench")))
    assert found.keys["benchmark"].tolist() == ["gsm8k", "gsm8k", "mt_bench", "mt_bench", "mean", "mean"]
    assert found.estimates[4] == pytest.approx((found.estimates[0] + found.estimates[2]) / 2)
    assert found.num_questions[4].tolist() == [9, 5]
    errors = np.square(found.residuals).sum(axis=(1, 2))
    assert errors[4] == pytest.approx((errors[0] + errors[2]) / 4)


def test_means_exist_for_what_every_benchmark_has() -> None:
    found = with_means(_ratios(_random(1, 9, rows=3), _random(2, 5, "mt_bench", rows=2)))
    means = found.keys[found.keys["benchmark"] == "mean"]
    assert means["row"].tolist() == [0, 1]
    alone = with_means(_ratios(_random(1, 9)))
    assert "mean" not in set(alone.keys["benchmark"])


def test_means_balanced_by_domain() -> None:
    domains = {"gsm8k": "math", "aime": "math", "mt_bench": "chat"}
    weights = balanced_weights(domains)
    assert weights == {"gsm8k": 0.25, "aime": 0.25, "mt_bench": 0.5}
    parts = [_random(seed, 6, name) for seed, name in enumerate(("aime", "gsm8k", "mt_bench", "other"))]
    found = with_means(_ratios(*parts), domains=domains, label="balanced")
    means = found.keys.index[found.keys["benchmark"] == "balanced"]
    assert len(means) == 2
    by_name = found.keys["benchmark"] + found.keys["row"].astype(str)
    estimate = dict(zip(by_name, found.estimates, strict=True))
    assert estimate["balanced0"] == pytest.approx(
        0.25 * estimate["aime0"] + 0.25 * estimate["gsm8k0"] + 0.5 * estimate["mt_bench0"]
    )


def test_a_method_of_fewer_benchmarks_has_weights_of_its_own() -> None:
    domains = {"gsm8k": "math", "aime": "math", "mt_bench": "chat"}
    parts = [_random(seed, 6, name) for seed, name in enumerate(domains)]
    fewer = [_random(seed, 6, name).assign(method="other") for seed, name in enumerate(("gsm8k", "mt_bench"))]
    found = with_means(_ratios(*parts, *fewer), domains=domains)
    names = found.keys[["method", "benchmark", "row"]].itertuples(index=False, name=None)
    values = dict(zip(names, found.estimates, strict=True))
    for row in (0, 1):
        mean = (values["other", "gsm8k", row] + values["other", "mt_bench", row]) / 2
        assert values["other", "mean", row] == pytest.approx(mean)


# --- training seeds --------------------------------------------------------------------------------------------------


def test_the_estimate_is_the_mean_over_training_seeds() -> None:
    parts = [_random(1, 8, training_seed=seed) for seed in range(3)]
    found, single = _ratios(*parts), [_ratios(part) for part in parts]
    np.testing.assert_allclose(found.estimates, np.mean([one.estimates for one in single], axis=0))
    assert found.num_training_seeds.tolist() == [3, 3]
    assert found.frame("tau")["num_training_seeds"].tolist() == [3, 3]


def test_seeds_that_differ_widen_the_interval() -> None:
    base = _random(1, 30, rows=1)
    same = [base.assign(training_seed=seed) for seed in range(3)]
    moved = [base.assign(training_seed=seed, tokens=base["tokens"] * (1 + 0.1 * seed)) for seed in range(3)]
    lengths = [np.ptp(_ratios(*parts).frame("tau")[["low", "high"]].to_numpy()) for parts in ([base], same, moved)]
    assert lengths[1] == pytest.approx(lengths[0], rel=1e-3)  # seeds that do the same teach nothing about questions
    assert lengths[2] > 1.5 * lengths[1]


def test_differences_are_paired_by_seed() -> None:
    """Row 1 is row 0 and a little of its own under every seed, however much the seeds differ."""
    rng = np.random.default_rng(0)
    base = rng.uniform(15, 25, 10)
    parts = []
    for seed, effect in enumerate((0.0, 5.0, -4.0)):
        tokens = base + effect
        parts.append(
            _sums([tokens.tolist(), (tokens + 2 + rng.normal(0, 0.1, 10)).tolist()], [[10.0] * 10] * 2, seed=seed)
        )
    found = _ratios(*parts)
    difference = found.minus([1], [0], found.keys.iloc[[1]]).frame("difference").iloc[0]
    assert difference["high"] - difference["low"] < 0.1
    assert (found.frame("tau")["high"] - found.frame("tau")["low"] > 1).all()


def test_a_difference_has_the_seeds_that_both_rows_have() -> None:
    first = [_random(1, 8, training_seed=seed) for seed in range(3)]
    second = _random(9, 8, rows=1, training_seed=1).assign(row=5)
    found = _ratios(*first, second)
    difference = found.minus([0], [2], found.keys.iloc[[0]])
    assert difference.num_training_seeds.tolist() == [1]
    alone = _ratios(first[1], second)
    expected = alone.minus([0], [2], alone.keys.iloc[[0]]).frame("x", p_value="p")
    pd.testing.assert_frame_equal(difference.frame("x", p_value="p"), expected)
    nothing = _ratios(first[0], second)
    assert nothing.minus([0], [2], nothing.keys.iloc[[0]]).frame("x")[["x", "low", "high"]].isna().all(axis=None)


# --- size ------------------------------------------------------------------------------------------------------------


def test_thousands_of_pairs_are_fast_and_small() -> None:
    rng = np.random.default_rng(0)
    shape = (500, 4, 100)  # rows, benchmarks, questions
    row, benchmark, question = (axis.ravel() for axis in np.indices(shape))
    sums = pd.DataFrame({"temperature": 0.0, "method": "m", "benchmark": benchmark, "row": row, "question": question})
    sums["cycles"] = rng.integers(10, 40, len(sums))
    sums["tokens"] = sums["cycles"] + rng.integers(0, 40, len(sums))
    start = time.process_time()
    found = with_means(ratios(sums, KEYS, "tokens", "cycles"))
    a, b = rng.integers(0, len(found.keys), (2, 5_000))
    frame = found.minus(a, b, found.keys.iloc[a]).frame("difference")
    assert len(frame) == 5_000
    assert found.residuals.nbytes < 5e6
    assert time.process_time() - start < 10  # about 1 s on a quiet core
