"""How much of a benchmark's prompts stands in training texts: word for word, by runs of words, and in other numbers.

Two measures, both turn by turn. 13 words in a row, as they stand, are what hardly two texts share by chance. A problem
with other numbers and names shares no 13 words with its twin, though it teaches the answer: twins are found by runs of
5 words with numbers and names taken for equal, within one training turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from taps.data.wording import general_words, plain_words

GRAM = 13
"""Source: the contamination studies of GPT-3 and after."""

TWIN_GRAM = 5
TWIN_SHARE = 0.25
"""Share of the grams of the shorter of two texts from which on they are twins. Seen: of GSM8K's 1,319 test questions,
83 in 1,000 problems of gsm_symbolic, whose templates are written after 85 of them; one in 6,000 conversations of
ShareGPT."""
_FEWEST_GRAMS = 16  # a shorter text is measured as if it had as many: a few common phrases make no twin

Words = tuple[str, ...]


def grams(words: Words, length: int) -> Iterator[Words]:
    """Yields all runs of `length` words; nothing for a shorter text."""
    return (words[i : i + length] for i in range(len(words) - length + 1))


@dataclass(kw_only=True)
class PromptIndex:
    """The prompts of one benchmark, ready to be found in running text."""

    ids: list[str] = field(default_factory=list)
    """Of the prompts, in order."""
    num_grams: list[int] = field(default_factory=list)
    """Distinct grams of each prompt; 0 for one whose turns are all too short."""
    by_turn: dict[Words, list[int]] = field(default_factory=dict)
    """Words of a turn -> the prompts that have it."""
    by_gram: dict[Words, list[int]] = field(default_factory=dict)
    """Gram -> the prompts that contain it."""


def index_prompts(
    prompts: Iterable[Mapping[str, Any]], *, length: int = GRAM, words: Callable[[str], Words] = plain_words
) -> PromptIndex:
    """Returns the index of a benchmark's prompts {"id", "turns"}.

    Args:
        length: Words of a gram.
        words: Text -> its words.
    """
    index = PromptIndex()
    for number, prompt in enumerate(prompts):
        turns = {words(turn) for turn in prompt["turns"]} - {()}
        own = {gram for turn in turns for gram in grams(turn, length)}
        index.ids.append(prompt["id"])
        index.num_grams.append(len(own))
        for turn in turns:
            index.by_turn.setdefault(turn, []).append(number)
        for gram in own:
            index.by_gram.setdefault(gram, []).append(number)
    return index


# --- word for word ---------------------------------------------------------------------------------------------------


def overlaps(texts: Iterable[str], indices: Iterable[PromptIndex]) -> list[dict[str, Any]]:
    """Returns the overlap of running texts with each index.

    Args:
        texts: Turns of a training corpus, read once.
        indices: The prompts of each benchmark, as `index_prompts` returns them.
    """
    indices = list(indices)
    wanted_turns = {turn for index in indices for turn in index.by_turn}
    wanted_grams = {gram for index in indices for gram in index.by_gram}
    found_turns: set[Words] = set()
    found_grams: set[Words] = set()
    for text in map(plain_words, texts):
        if text in wanted_turns:
            found_turns.add(text)
        found_grams.update(wanted_grams.intersection(grams(text, GRAM)))
    return [_summary(index, found_turns, found_grams) for index in indices]


def _summary(index: PromptIndex, found_turns: set[Words], found_grams: set[Words]) -> dict[str, Any]:
    """Returns counts, mean coverage and examples of one benchmark, given what was found of all of them."""
    exact = {number for turn in found_turns for number in index.by_turn.get(turn, ())}
    hits = [0] * len(index.ids)
    for gram in found_grams:
        for number in index.by_gram.get(gram, ()):
            hits[number] += 1
    coverage = {i: hits[i] / total for i, total in enumerate(index.num_grams) if total}
    ranked = sorted(range(len(hits)), key=lambda i: (i not in exact, -coverage.get(i, 0.0), i))
    return {
        "num_prompts": len(index.ids),
        "num_too_short": len(index.ids) - len(coverage),
        "num_exact": len(exact),
        "num_shared": sum(hit > 0 for hit in hits),
        "mean_coverage": round(sum(coverage.values()) / max(1, len(coverage)), 6),
        "examples": [index.ids[i] for i in ranked[:5] if i in exact or hits[i]],
    }


# --- twins -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Twin:
    """A prompt that a training conversation repeats, be it with other numbers and names.

    Attributes:
        prompt: Id of the prompt.
        conversation: Id of the conversation that is most like it.
        share: Of the grams of the shorter text, prompt or turn, those that both have; 1 if the prompt's first turn is
            there word for word.
    """

    prompt: str
    conversation: str
    share: float


def find_twins(
    benchmarks: Sequence[Sequence[Mapping[str, Any]]],
    conversations: Iterable[Mapping[str, Any]],
    *,
    least: float = TWIN_SHARE,
) -> list[list[Twin]]:
    """Returns, for each benchmark, the prompts that have a twin, in their order.

    Args:
        benchmarks: Prompts {"id", "turns"} of each.
        conversations: {"id", "turns"} of a training corpus, read once.
        least: Share from which on a prompt counts as a twin.
    """
    indices = [_TwinIndex(prompts) for prompts in benchmarks]
    best: list[dict[int, Twin]] = [{} for _ in indices]
    for row in conversations:
        for text in (turn["text"] for turn in row["turns"]):
            found, said = set(grams(general_words(text), TWIN_GRAM)), plain_words(text)
            for index, twins in zip(indices, best, strict=True):
                for number, share in index.shares(found, said).items():
                    if share >= least and (number not in twins or share > twins[number].share):
                        twins[number] = Twin(prompt=index.ids[number], conversation=row["id"], share=round(share, 6))
    return [[twins[number] for number in sorted(twins)] for twins in best]


class _TwinIndex:
    """The prompts of one benchmark, ready to be found in conversations."""

    def __init__(self, prompts: Sequence[Mapping[str, Any]]) -> None:
        self.grams = index_prompts(prompts, length=TWIN_GRAM, words=general_words)
        self.first_turns = index_prompts([{**prompt, "turns": prompt["turns"][:1]} for prompt in prompts]).by_turn
        self.ids = self.grams.ids

    def shares(self, found: set[Words], said: Words) -> dict[int, float]:
        """Returns prompt -> its share with one turn, for those that have any.

        Args:
            found: Grams of the turn.
            said: All words of the turn.
        """
        index = self.grams
        hits = Counter(number for gram in index.by_gram.keys() & found for number in index.by_gram[gram])
        shares = {
            number: hit / max(min(index.num_grams[number], len(found)), _FEWEST_GRAMS) for number, hit in hits.items()
        }
        return shares | dict.fromkeys(self.first_turns.get(said, ()), 1.0)
