"""The wording of a text with what varies between twins taken for equal: numbers and people's names."""

from __future__ import annotations

import re

NUMBER, NAME = "#", "@"

_WORD = re.compile(
    r"(?:(?P<opening>\A|[.!?:\n])[\s\"'“”‘’(*_]*)?"  # what a sentence begins behind
    r"(?P<word>\d+(?:[.,/:]\d+)*|[^\W\d_]+)"
)
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
)
_TENS = "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million"
_NUMBER_WORDS = frozenset([*_UNITS.split(), *_TENS.split()])


def plain_words(text: str) -> tuple[str, ...]:
    """Returns the words of a text in lower case, without punctuation."""
    return tuple(re.findall(r"\w+", text.lower()))


def general_words(text: str) -> tuple[str, ...]:
    """Returns the words in lower case, numbers as `#` and names as `@`, each run of them once.

    Numbers are those in digits and the number words of English. Names are capitalised words that do not open a
    sentence, wherever they occur in the text; a name that only ever opens sentences is not recognised.
    """
    found = [(match["word"], match["opening"] is not None) for match in _WORD.finditer(text)]
    names = {word for word, opens in found if not opens and _looks_like_a_name(word)}
    words: list[str] = []
    for word, _ in found:
        general = _general(word, names)
        if general not in (NUMBER, NAME) or words[-1:] != [general]:
            words.append(general)
    return tuple(words)


def _general(word: str, names: set[str]) -> str:
    lower = word.lower()
    if word[0].isdigit() or lower in _NUMBER_WORDS:
        return NUMBER
    return NAME if word in names else lower


def _looks_like_a_name(word: str) -> bool:
    return word[0].isupper() and len(word) > 1 and word[1:].islower()
