"""README's results: every sentence has its row, every number its sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.readme_rows import ROOT, Statement, check, filled, results_section, statements

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_statement_is_what_its_row_says() -> None:
    report, said, not_results = statements()
    assert len(said) > 20
    assert check(README, report, said, not_results) == []


@pytest.mark.parametrize("at", range(0, 30, 5))
def test_a_changed_number_is_seen(at: int) -> None:
    report, said, not_results = statements()
    words = filled(said[at], report)
    digit = next(place for place in reversed(range(len(words))) if words[place].isdigit())
    other = words[:digit] + str((int(words[digit]) + 1) % 10) + words[digit + 1 :]
    section = results_section(README)
    assert words in section
    readme = f"## What came out\n{section.replace(words, other)}"
    assert f"README does not say: {words}" in check(readme, report, said, not_results)


def test_a_number_without_a_row_is_seen() -> None:
    report, said, not_results = statements()
    readme = README.replace("## What came out\n", "## What came out\n\nIt is 3.14 times better.\n", 1)
    assert [line for line in check(readme, report, said, not_results) if "3.14 times" in line]


def test_words_rest_on_what_the_row_holds() -> None:
    report, said, _ = statements()
    judged = next(item for item in said if "verdict" in item.holds)
    with pytest.raises(ValueError, match="expected verdict =="):
        filled(replace(judged, holds='verdict == "never"'), report)


def test_a_row_is_one() -> None:
    report, said, _ = statements()
    with pytest.raises(ValueError, match="expected one row, found"):
        filled(Statement(says="{tau}", table="laptop/tables/acceptance_length.csv", row={"temperature": 0}), report)
    with pytest.raises(ValueError, match="expected one row, found 0"):
        filled(replace(said[0], row={"method": "none"}), report)
