"""Tests of taps.decoding.calibration and taps.calibrate: bets counted by hand, known temperatures found again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.analysis.inputs import calibration, notes
from taps.calibrate import main
from taps.decoding.calibration import bets, fit_inverse_temperature, reliability
from taps.decoding.trees import ROOT
from taps.decoding.walk import Bank, read_text
from taps.plumbing.artefacts import read_json
from taps.plumbing.errors import TapsError
from tests.support.random_trees import Recorded, paths


def _simulated(rng: np.random.Generator, factor: float, count: int = 200_000) -> tuple[np.ndarray, np.ndarray]:
    """Returns bets whose true probability is exp(factor * score)."""
    scores = np.log(rng.uniform(0.02, 0.98, count))
    return scores, rng.random(count) < np.exp(factor * scores)


@pytest.mark.parametrize("factor", [0.25, 1.0, 3.0])
def test_finds_the_temperature_that_made_the_bets(factor: float) -> None:
    scores, accepted = _simulated(np.random.default_rng(0), factor)
    fitted = fit_inverse_temperature(scores, accepted)
    assert fitted == pytest.approx(factor, rel=0.02)  # five standard errors or more at 200,000 bets
    after = reliability(scores, accepted, fitted)
    assert after.expected_calibration_error < 0.006
    before = reliability(scores, accepted)
    assert after.nll_nats <= before.nll_nats
    if factor != 1.0:
        assert before.expected_calibration_error > 10 * after.expected_calibration_error


@given(data=st.data(), count=st.integers(2, 30))
def test_no_other_temperature_is_more_likely(data: st.DataObject, count: int) -> None:
    probabilities = data.draw(st.lists(st.floats(1e-4, 1), min_size=count, max_size=count))
    accepted = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    scores = np.log(probabilities)
    if accepted.all() or not accepted.any():
        with pytest.raises(ValueError, match="same outcome"):
            fit_inverse_temperature(scores, accepted)
        return
    fitted = fit_inverse_temperature(scores, accepted)
    best = reliability(scores, accepted, fitted).nll_nats
    for other in (1 / 64, 0.1, 0.5, 1.0, 2.0, 10.0, 64.0, fitted * 1.01, fitted / 1.01):
        if 1 / 64 <= other <= 64:
            assert best <= reliability(scores, accepted, other).nll_nats + 1e-9


def test_reliability_by_hand() -> None:
    result = reliability(np.log([0.91, 0.95, 0.35, 0.31]), np.array([True, False, True, False]))
    assert [row[:2] for row in result.bins] == [(0.3, 2), (0.9, 2)]
    np.testing.assert_allclose([row[2:] for row in result.bins], [(0.33, 0.5), (0.93, 0.5)])
    assert result.expected_calibration_error == pytest.approx((2 * 0.17 + 2 * 0.43) / 4)
    assert result.nll_nats == pytest.approx(-np.log([0.91, 0.05, 0.35, 0.69]).mean())


def test_bets_are_the_nodes_whose_parent_is_the_text() -> None:
    recorded = Recorded(np.random.default_rng(5), lengths=[9, 1, 6], drafters=1)
    text = read_text(recorded.tokens, recorded.offsets, recorded.prompt_lengths, recorded.depth)
    trees = recorded.trees[0]
    expected: list[tuple[float, bool]] = []
    for sequence, answer in enumerate(recorded.answers):
        for start in range(len(answer) - 1):
            row, future = int(recorded.starts[sequence]) + start, recorded.future(sequence, start)
            for node, path in enumerate(paths(trees, row)):
                if len(path) <= len(future) and list(path[:-1]) == future[: len(path) - 1]:
                    parent = trees.parents[row, node]
                    above = 0.0 if parent == ROOT else float(trees.scores[row, parent])
                    expected.append((float(trees.scores[row, node]) - above, path[-1] == future[len(path) - 1]))
    scores, accepted = bets(Bank.of("math", trees, text), text)
    assert accepted.tolist() == [outcome for _, outcome in expected]
    np.testing.assert_allclose(scores, [score for score, _ in expected], atol=1e-6)


def _recordings(folder: Path, names: tuple[str, ...] = ("math", "chat"), **facts: object) -> list[str]:
    flags = []
    for index in range(2):
        (folder / str(index)).mkdir(exist_ok=True)
        recorded = Recorded(np.random.default_rng(index), lengths=[12, 20], num_nodes=8, drafters=len(names))
        trace, banks = recorded.write(folder / str(index), names, ids=["a", "b"], turns=[0, 0], **facts)
        flags += ["--trace", str(trace), *(flag for bank in banks.values() for flag in ("--bank", str(bank)))]
    return flags


def test_stage_fits_every_drafter_and_repeats_itself(tmp_path: Path) -> None:
    flags = _recordings(tmp_path)
    for name in ("one", "two"):
        main([*flags, "--output", str(tmp_path / f"{name}.json")])
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    drafters = read_json(tmp_path / "one.json", kind="calibration")["drafters"]
    assert sorted(drafters) == ["chat", "math"]
    for entry in drafters.values():
        assert entry["after"]["nll_nats"] <= entry["before"]["nll_nats"]
        assert sum(row[1] for row in entry["after"]["bins"]) == entry["num_nodes"] > 0


def test_stage_wants_every_drafter_along_every_trace(tmp_path: Path) -> None:
    flags = _recordings(tmp_path)
    with pytest.raises(TapsError, match="no --bank of chat along it"):
        main([*flags[:-2], "--output", str(tmp_path / "out.json")])
    with pytest.raises(TapsError, match="drafted along none of the traces"):
        main([*flags[2:], "--output", str(tmp_path / "out.json")])


@pytest.mark.parametrize("length", [2, 1], ids=["one node", "no node"])
def test_a_drafter_that_cannot_be_calibrated_stays_as_it_is_and_says_so(
    tmp_path: Path, length: int, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = Recorded(np.random.default_rng(0), lengths=[length], num_nodes=1, drafters=1)
    trace, banks = recorded.write(tmp_path, ("math",), ids=["a"], turns=[0])
    main(["--trace", str(trace), "--bank", str(banks["math"]), "--output", str(tmp_path / "out.json")])
    fit = read_json(tmp_path / "out.json", kind="calibration")["drafters"]["math"]
    assert fit["inverse_temperature"] == 1
    assert "not calibrated, all nodes have the same outcome" in fit["note"]
    assert fit["num_nodes"] == length - 1
    assert np.isnan(fit["after"]["nll_nats"]) == (length == 1)
    assert "warning: drafter math: not calibrated" in capsys.readouterr().err
    fits = [("eagle2/seed0", tmp_path / "out.json")]
    table = notes([], calibrations=fits)
    assert table is not None
    assert table.frame["part"].tolist() == ["calibration of eagle2/seed0/math"]
    assert calibration(fits).frame["inverse_temperature"].tolist() == [1]


def test_nothing_to_note_is_no_table(tmp_path: Path) -> None:
    main([*_recordings(tmp_path), "--output", str(tmp_path / "out.json")])
    assert notes([], calibrations=[("eagle2/seed0", tmp_path / "out.json")]) is None
