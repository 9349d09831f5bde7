"""The study's four questions, answered in plain words from the verdicts, never from the numbers themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from taps.analysis.claims import Claim, Judgement, Topic
from taps.analysis.labels import Labels
from taps.analysis.verdicts import Verdict

_YES_NO = {
    Verdict.REPRODUCED: "Yes.",
    Verdict.CONTRADICTED: "No.",
    Verdict.UNDECIDED: "Not shown: the intervals are too wide.",
    Verdict.NOT_TESTABLE: "Not testable here.",
}
_SIGNALS = {
    Verdict.REPRODUCED: "Confidence rather than entropy.",
    Verdict.CONTRADICTED: "Entropy rather than confidence.",
    Verdict.UNDECIDED: "Confidence and entropy are not told apart.",
    Verdict.NOT_TESTABLE: "Not testable here.",
}
QUESTIONS = {
    Topic.SPECIALISATION: ("Does a draft model trained on one task win on that task?", _YES_NO),
    Topic.MIXTURES: ("Does training on a mixture give one draft model that is good everywhere?", _YES_NO),
    Topic.COMPOSITION: ("Can specialists be combined?", _YES_NO),
    Topic.SIGNALS: ("Which signal should route, and how do acceptance and entropy behave?", _SIGNALS),
}
"""Topic -> the question, and the short answer to a verdict on all of its key claims."""

_LEADS = {
    Verdict.REPRODUCED: "Yes:",
    Verdict.CONTRADICTED: "No, the results contradict that",
    Verdict.UNDECIDED: "Undecided, the intervals are too wide to say whether",
    Verdict.NOT_TESTABLE: "Not testable here, whether",
}


@dataclass(frozen=True)
class Sentence:
    """One finding in words.

    Attributes:
        claim: Its id.
        verdict: One verdict if all conditions agree, `mixed` otherwise.
        text: The sentence.
    """

    claim: str
    verdict: str
    text: str


@dataclass(frozen=True)
class Answer:
    """A question's short answer and its findings."""

    question: str
    short: str
    sentences: list[Sentence]


def answers(claims: Sequence[Claim], judgements: Sequence[Judgement], labels: Labels) -> list[Answer]:
    """Returns the answers to the questions that the study is asked, over all conditions that were judged.

    Args:
        claims: That the study is asked.
        judgements: Of these claims.
        labels: Names in print.
    """
    return [
        Answer(
            question=question,
            short=_short(own, judgements, short),
            sentences=[_sentence(claim, judgements, labels) for claim in own],
        )
        for topic, (question, short) in QUESTIONS.items()
        if (own := [claim for claim in claims if claim.topic == topic and _is_judged(claim, judgements)])
    ]


def _is_judged(claim: Claim, judgements: Sequence[Judgement]) -> bool:
    return any(item.claim == claim.id for item in judgements)


def _short(claims: Sequence[Claim], judgements: Sequence[Judgement], short: dict[Verdict, str]) -> str:
    """Returns the short answer if the key claims agree under all conditions that decide them, else how they split."""
    key = [claim.id for claim in claims if claim.is_key]
    own = [item for item in judgements if item.claim in key]
    verdicts = [item.verdict for item in own if item.verdict != Verdict.NOT_TESTABLE]
    if not verdicts:
        return short[Verdict.NOT_TESTABLE]
    tested = {item.claim for item in own if item.verdict != Verdict.NOT_TESTABLE}
    untested = [claim for claim in key if claim not in tested]
    rest = f" (Not testable here: {', '.join(untested)}.)" if untested else ""
    if len(set(verdicts)) == 1:
        return short[verdicts[0]] + rest
    counts: Counter[Verdict] = Counter(verdicts)
    split = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
    lead = "Partly" if counts[Verdict.REPRODUCED] else "Not shown"
    return f"{lead}: of {len(verdicts)} decisive judgements ({', '.join(key)}), {split}.{rest}"


def _sentence(claim: Claim, judgements: Sequence[Judgement], labels: Labels) -> Sentence:
    own = [item for item in judgements if item.claim == claim.id]
    decided = [item for item in own if item.verdict != Verdict.NOT_TESTABLE] or own
    verdicts = list(dict.fromkeys(item.verdict for item in decided))
    if len(verdicts) == 1:
        (verdict,) = verdicts
        everywhere = len(decided) == len({item.where for item in judgements})
        under = "" if everywhere else f" ({_conditions(decided, labels)})"
        return Sentence(claim.id, verdict, f"{_LEADS[verdict]} {claim.finding}{under}.")
    parts = "; ".join(
        f"{verdict} under {_conditions([item for item in decided if item.verdict == verdict], labels)}"
        for verdict in verdicts
    )
    return Sentence(claim.id, "mixed", f"It depends: that {claim.finding} is {parts}.")


def _conditions(judgements: Sequence[Judgement], labels: Labels) -> str:
    """Returns e.g. `EAGLE-2 at T = 0 and 1, HASS at T = 0`."""
    by_method: dict[str, list[str]] = {}
    for item in judgements:
        by_method.setdefault(labels.method(item.where.method), []).append(f"{item.where.temperature:g}")
    return ", ".join(f"{method} at T = {' and '.join(values)}" for method, values in by_method.items())
