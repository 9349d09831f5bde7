"""Every architecture is refused by prepare_target, which says why, or goes to the end: never a third way.

Here all of them meet prepare_target, and some go on; `python -m tests.support.families` takes all to the end.
"""

from __future__ import annotations

import re

import pytest

from tests.support.families import FAMILIES, ROOT, finish, prepare

WHOLE = ("llama3_1", "qwen3_tied", "deepseek_v3", "glm")  # scaled, tied, routed and latent, partly rotated


@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in WHOLE])
def test_prepare_target_accepts_a_family_or_says_what_is_in_the_way(tmp_path, name):
    outcome = prepare(name, tmp_path)
    if (refused := FAMILIES[name].refused) is None:
        assert outcome is None
    else:
        assert outcome is not None
        assert re.search(refused, outcome.detail)
        assert "\n" not in outcome.detail
        assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("name", WHOLE)
def test_what_it_accepts_goes_to_the_end(tmp_path, name):
    assert prepare(name, tmp_path) is None
    outcome = finish(tmp_path)
    assert outcome.what == "finished", outcome


def test_there_are_forty_families_and_both_outcomes():
    refused = sum(family.refused is not None for family in FAMILIES.values())
    assert len(FAMILIES) >= 40
    assert min(refused, len(FAMILIES) - refused) >= 15


def test_the_page_says_what_comes_out() -> None:
    page = (ROOT / "docs/families.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")][2:]
    assert {row[0]: row[2] for row in rows} == {
        name: "finished" if family.refused is None else "refused" for name, family in FAMILIES.items()
    }
    for name, _, outcome, stage, detail in rows:
        assert stage == ("live_check" if outcome == "finished" else "prepare_target")
        assert outcome == "finished" or re.search(FAMILIES[name].refused or "", detail)
