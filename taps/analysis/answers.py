"""The study's four questions, answered in plain words from the verdicts, never from the numbers themselves.

The short answer of a question comes from its key claims under the main condition alone: other conditions walk the same
texts, or answer the same prompts, and repeat it in part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taps.analysis.claims import Claim, Judgement, Topic
from taps.analysis.findings import Where
from taps.analysis.labels import Labels
from taps.analysis.rendering import format_interval
from taps.analysis.verdicts import Verdict

_YES_NO = {
    Verdict.REPRODUCED: "Yes.",
    Verdict.CONTRADICTED: "No.",
    Verdict.NO_EFFECT: "No: there is no effect that matters.",
    Verdict.UNDECIDED: "Not shown: the intervals are too wide.",
    Verdict.NOT_TESTABLE: "Not testable here.",
}
_SIGNALS = {
    Verdict.REPRODUCED: "Confidence rather than entropy.",
    Verdict.CONTRADICTED: "Entropy rather than confidence.",
    Verdict.NO_EFFECT: "It does not matter: confidence and entropy route equally well.",
    Verdict.UNDECIDED: "Confidence and entropy are not told apart.",
    Verdict.NOT_TESTABLE: "Not testable here.",
}
QUESTIONS = {
    Topic.SPECIALISATION: ("Does a draft model trained on one task win on that task?", _YES_NO),
    Topic.MIXTURES: ("Does training on a mixture give one draft model that is good everywhere?", _YES_NO),
    Topic.COMPOSITION: ("Is it worth combining specialists?", _YES_NO),
    Topic.SIGNALS: ("Which signal should route, and how do acceptance and entropy behave?", _SIGNALS),
}
"""Topic -> the question, and the short answer to a verdict on all of its key claims."""

_LEADS = {
    Verdict.REPRODUCED: "Yes:",
    Verdict.CONTRADICTED: "No, the results contradict that",
    Verdict.NO_EFFECT: "No, a difference would be too small to matter where it is claimed that",
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
        number: What decides it under the main condition, with its interval; empty without evidence.
        role: `primary` or `exploratory`.
    """

    claim: str
    verdict: str
    text: str
    number: str
    role: str


@dataclass(frozen=True)
class Answer:
    """A question's short answer and its findings."""

    question: str
    short: str
    sentences: list[Sentence]


def answers(claims: Sequence[Claim], judgements: Sequence[Judgement], labels: Labels, main: Where) -> list[Answer]:
    """Returns the answers to the questions that the study is asked.

    Args:
        claims: That the study is asked.
        judgements: Of these claims.
        labels: Names in print.
        main: The condition that the short answers are about.
    """
    return [
        Answer(
            question=question,
            short=_short(own, judgements, short, main),
            sentences=[_sentence(claim, judgements, labels, main) for claim in own],
        )
        for topic, (question, short) in QUESTIONS.items()
        if (own := [claim for claim in claims if claim.topic == topic and _is_judged(claim, judgements)])
    ]


def _is_judged(claim: Claim, judgements: Sequence[Judgement]) -> bool:
    return any(item.claim == claim.id for item in judgements)


def _short(claims: Sequence[Claim], judgements: Sequence[Judgement], short: dict[Verdict, str], main: Where) -> str:
    """Returns the short answer if the key claims agree, else which is how."""
    key = [claim.id for claim in claims if claim.is_key]
    own = {item.claim: item.verdict for item in judgements if item.claim in key and item.where == main}
    tested = {claim: verdict for claim, verdict in own.items() if verdict != Verdict.NOT_TESTABLE}
    if not tested:
        return short[Verdict.NOT_TESTABLE]
    untested = [claim for claim in own if claim not in tested]
    rest = f" (Not testable here: {', '.join(untested)}.)" if untested else ""
    if len(set(tested.values())) == 1:
        return short[next(iter(tested.values()))] + rest
    parts = []
    for verdict in Verdict:
        if held := [claim for claim, found in tested.items() if found == verdict]:
            parts.append(f"{verdict}: {', '.join(held)}")
    lead = "Partly" if Verdict.REPRODUCED in tested.values() else "Not shown"
    return f"{lead} ({'; '.join(parts)}).{rest}"


def _sentence(claim: Claim, judgements: Sequence[Judgement], labels: Labels, main: Where) -> Sentence:
    own = [item for item in judgements if item.claim == claim.id]
    decided = [item for item in own if item.verdict != Verdict.NOT_TESTABLE] or own
    verdicts = list(dict.fromkeys(item.verdict for item in decided))
    first = next((item for item in own if item.where == main), own[0])
    facts = {"number": decisive_number(first), "role": "primary" if claim.is_primary else "exploratory"}
    if len(verdicts) == 1:
        (verdict,) = verdicts
        everywhere = len(decided) == len({item.where for item in judgements})
        under = "" if everywhere else f" ({_conditions(decided, labels)})"
        return Sentence(claim.id, verdict, f"{_LEADS[verdict]} {claim.finding}{under}.", **facts)
    parts = "; ".join(
        f"{verdict} under {_conditions([item for item in decided if item.verdict == verdict], labels)}"
        for verdict in verdicts
    )
    return Sentence(claim.id, "mixed", f"It depends: that {claim.finding} is {parts}.", **facts)


def decisive_number(item: Judgement) -> str:
    """Returns e.g. `Math − Chat, GSM8K: 0.21 [0.10, 0.33]`, the comparison that decides; empty without evidence."""
    if item.decisive is None:
        return ""
    found = item.decisive.interval
    return f"{item.decisive.what}: {format_interval(found.estimate, found.low, found.high)}"


def _conditions(judgements: Sequence[Judgement], labels: Labels) -> str:
    """Returns e.g. `EAGLE-2 at T = 0 and 1, HASS at T = 0`."""
    by_method: dict[str, list[str]] = {}
    for item in judgements:
        by_method.setdefault(labels.method(item.where.method), []).append(f"{item.where.temperature:g}")
    return ", ".join(f"{method} at T = {' and '.join(values)}" for method, values in by_method.items())
