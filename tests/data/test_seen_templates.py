"""Templates that a training corpus knows are found by their problems, those that it does not know are not."""

from __future__ import annotations

from taps.data.generated import TEMPLATES_OF, known_templates, parse_templates, stream_generated
from taps.data.seen_templates import seen_templates

SHRIMP = "Emily can peel 6 shrimp a minute and saute 30 shrimp in 10 minutes. How long will it take her to cook 90?"


def corpus(*texts: str) -> list[dict]:
    return [{"id": str(i), "turns": [{"role": "user", "text": text}]} for i, text in enumerate(texts)]


def problems(template: int, rows: int) -> list[str]:
    records = stream_generated(TEMPLATES_OF, rows=rows, seed=3, templates={template})
    return [record.value["question"] for record in records]


def test_the_original_gives_its_template_away():
    assert seen_templates(corpus("Hello there.", SHRIMP), range(12)) == [0]


def test_a_templates_own_problems_give_it_away():
    for template in (1, 30, 99):
        assert template in seen_templates(corpus(*problems(template, 3)), {template, 0, 50})


def test_nothing_is_seen_in_other_texts():
    assert seen_templates(corpus("Which shrimp does Emily like?", "What is the price of 3 pens?", "")) == []
    assert seen_templates([]) == []


def test_templates_are_ranges_of_numbers():
    assert parse_templates("0-3,7") == {0, 1, 2, 3, 7}
    assert len(known_templates()) == 85
    assert 32 not in known_templates()
