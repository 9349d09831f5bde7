"""The published numbers in the package are complete, and equal to the copies they were taken from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from taps import published

SHARED = Path(__file__).parents[3] / "shared" / "published"
ANSWERS = SHARED.parent / "data" / "eagle_answers"


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


@pytest.mark.parametrize(("variant", "benchmark"), [("math", "mt_bench"), ("averaged", "svamp")])
def test_raw_answers_give_the_printed_cell_by_the_published_definition(variant: str, benchmark: str) -> None:
    answers = published.table("eagle_answers").query("variant == @variant and benchmark == @benchmark")
    tau = answers["new_tokens"].sum() / answers["last_cycle_index"].sum()
    assert round(tau, 2) == published.tau(1, "eagle2", variant, benchmark)


@pytest.mark.skipif(not ANSWERS.exists(), reason="the authors' raw answers are not beside this checkout")
def test_raw_answers_equal_the_authors_files() -> None:
    answers = published.table("eagle_answers")
    for (variant, benchmark), rows in answers.groupby(["variant", "benchmark"]):
        lines = (ANSWERS / f"{variant}_{benchmark}.jsonl").read_text().splitlines()
        choices = [json.loads(line)["choices"][0] for line in lines]
        assert rows["new_tokens"].sum() == sum(sum(choice["new_tokens"]) for choice in choices)
        assert rows["last_cycle_index"].sum() == sum(sum(choice["idxs"]) for choice in choices)
        assert rows["turns"].sum() == sum(len(choice["idxs"]) for choice in choices)
