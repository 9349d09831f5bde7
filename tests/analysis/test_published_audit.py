"""The audit finds what is known to be wrong with the published numbers, and nothing where they agree."""

from __future__ import annotations

import pandas as pd
import pytest

from taps.analysis import published_audit as audit


def _row(frame: pd.DataFrame, **where: object) -> pd.Series:
    for name, value in where.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1
    return frame.iloc[0]


def test_one_row_mean_does_not_follow_from_its_cells() -> None:
    frame = audit.row_means().frame
    wrong = frame[frame["agrees"] == "no"]
    assert wrong[["temperature", "method", "variant"]].to_numpy().tolist() == [[0, "eagle2", "merged"]]
    assert wrong["recomputed"].item() == 5.0325
    assert len(frame) == 28


def test_published_definition_is_high_by_cycles_minus_one() -> None:
    frame = audit.definition_gap().frame
    assert (frame["tau_published"].round(2) == frame["printed"]).all()
    assert frame["excess_percent"].between(0.6, 3.6).all()


@pytest.mark.parametrize(
    ("temperature", "method", "variant", "benchmark", "implied"),
    [
        (0, "eagle2", "math", "gsm8k", 4.87),
        (0, "eagle2", "mixed_70k", "math_500", 3.20),
        (0, "hass", "math", "svamp", 4.25),
    ],
)
def test_depth_figure_implies_another_table(
    temperature: int, method: str, variant: str, benchmark: str, implied: float
) -> None:
    frame = audit.implied_by_depth().frame
    row = _row(frame, temperature=temperature, method=method, variant=variant, benchmark=benchmark)
    assert row["implied"] == pytest.approx(implied, abs=0.01)


def test_largest_gaps_come_first() -> None:
    report = audit.against_report().frame.iloc[0]
    assert (report["method"], report["variant"], report["benchmark"]) == ("hass", "math", "svamp")
    drop = audit.temperature_drop().frame
    assert drop["variant"].head(2).tolist() == ["mixed_70k", "mixed_70k"]
    assert drop["change"].iloc[1] < 2 * drop["change"].iloc[2]


def test_sweep_midpoint_is_the_other_temperature() -> None:
    frame = audit.spliced_sweep().frame
    assert (frame["sweep_at_half"] == frame["averaged_t1"]).all()
    assert not (frame["sweep_at_half"] == frame["averaged_t0"]).any()


def test_every_audit_table_explains_itself() -> None:
    tables = audit.audit_tables()
    assert len({table.name for table in tables}) == len(tables) == 6
    assert all(len(table.caption) > 60 and len(table.shown) == len(table.frame) for table in tables)
