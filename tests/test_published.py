"""The published numbers in the package are complete, and equal to the copies they were taken from."""

from __future__ import annotations

from pathlib import Path

import pytest

from taps.analysis import published

SHARED = Path(__file__).parents[2] / "shared" / "published"


def test_main_table_has_every_cell() -> None:
    table = published.table("acceptance_length")
    assert len(table) == 2 * 2 * 7 * 5
    assert published.tau(0.0, "eagle2", "math", "gsm8k") == 5.04
    assert published.tau(1, "hass", "merged", "average") == 4.75
    assert published.tau(0.5, "hass", "merged", "average") is None


def test_claims_are_numbered_and_judged_in_all_four_columns() -> None:
    claims = published.claims()
    assert [claim["id"] for claim in claims] == [f"C{number}" for number in range(1, 26)]
    for claim in claims:
        columns = {(cell["temperature"], cell["method"]) for cell in claim["published"]}
        assert columns == {(0, "hass"), (0, "eagle2"), (1, "hass"), (1, "eagle2")}
        assert {cell["verdict"] for cell in claim["published"]} <= {"holds", "fails", "mixed", "not published"}


@pytest.mark.skipif(not SHARED.exists(), reason="the project's shared folder is not beside this checkout")
@pytest.mark.parametrize("name", published.TABLES)
def test_tables_equal_the_shared_copies(name: str) -> None:
    assert (published.FOLDER / f"{name}.csv").read_bytes() == (SHARED / f"{name}.csv").read_bytes()
