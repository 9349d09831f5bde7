"""Twins have one wording: numbers and names do not tell them apart, and everything else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.data.parts import Part, parse_part
from taps.data.wording import general_words, plain_words


def test_plain_words_ignore_case_and_punctuation():
    assert plain_words("Don't STOP -- it's 3.5 €!") == ("don", "t", "stop", "it", "s", "3", "5")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He pays 3.50 or 1,000 for 2", "he pays # or # for #"),
        ("Twenty five of the 30", "# of the #"),
        ("at 10:30, 1/2 of it", "at # of it"),
        ("then Janet and Mary Ann met", "then @ and @ met"),
        ("Janet sells eggs. Then Janet's ducks", "@ sells eggs then @ s ducks"),
        ("Weng earns it. What does he earn?", "weng earns it what does he earn"),
        ("the USA and I", "the usa and i"),
        ('she said: "Stop it" to Bob', "she said stop it to @"),
        ("naïve Zoë", "naïve @"),
        ("", ""),
    ],
)
def test_general_words(text, expected):
    assert " ".join(general_words(text)) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Then Ann buys 3 pens.", "Then Maria buys 17 pens."),
        ("He runs two miles in May.", "He runs twenty miles in June."),
        ("There are 1,250 of Tom's books.", "There are 3 of Kim's books."),
    ],
)
def test_twins_share_wording_and_part(one, other):
    assert general_words(one) == general_words(other)
    for start in (0.0, 0.25, 0.5, 0.75):
        part = Part(start=start, end=start + 0.25)
        assert part.holds(one) == part.holds(other)


@given(st.text(), st.floats(0.01, 0.99))
def test_every_text_is_in_exactly_one_of_two_parts(text, border):
    assert Part(start=0, end=border).holds(text) != Part(start=border, end=1).holds(text)


def test_parts_have_the_size_that_they_say():
    texts = [f"{word} or {other}" for word in "abcdefghijklmnopqrstuvwxyz" for other in "abcdefghijklmnopqrstuvwxyz"]
    held = sum(parse_part("0:0.75").holds(text) for text in texts)
    assert abs(held - 507) < 45  # four standard deviations: a false alarm in 16,000 other hashes
