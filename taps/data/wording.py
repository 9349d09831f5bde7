"""The wording of a text with what varies between twins taken for equal: numbers and people's names."""

from __future__ import annotations

import re
from collections.abc import Iterator

NUMBER, NAME = "#", "@"

_WORD = re.compile(r"\d+(?:[.,/:]\d+)*|[^\W\d_]+")
_SENTENCE_END = re.compile(r"[.!?:\n][\s\"'“”‘’(*_]*\Z|\A[\s\"'“”‘’(*_]*\Z")
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
    found = [(match.group(), match.start()) for match in _WORD.finditer(text)]
    names = {word for word, start in found if _looks_like_a_name(word) and not _opens_sentence(text, start)}
    return tuple(_without_runs(_general(word, names) for word, _ in found))


def _general(word: str, names: set[str]) -> str:
    if word[0].isdigit() or word.lower() in _NUMBER_WORDS:
        return NUMBER
    return NAME if word in names else word.lower()


def _looks_like_a_name(word: str) -> bool:
    return len(word) > 1 and word[0].isupper() and word[1:].islower()


def _opens_sentence(text: str, start: int) -> bool:
    return _SENTENCE_END.search(text, max(0, start - 8), start) is not None


def _without_runs(words: Iterator[str]) -> Iterator[str]:
    last = ""
    for word in words:
        if word != last or word not in (NUMBER, NAME):
            yield word
        last = word
