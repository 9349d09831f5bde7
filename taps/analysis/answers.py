"""The study's four questions, answered in plain words from the verdicts, with the difference that decides each.

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
    Verdict.REPRODUCED: "Yes",
    Verdict.CONTRADICTED: "Refuted",
    Verdict.NO_EFFECT: "No difference that matters",
    Verdict.UNDECIDED: "Not shown",
    Verdict.NOT_TESTABLE: "Not testable here",
}
QUESTIONS = {
    Topic.SPECIALISATION: "Does a draft model trained on one task win on that task?",
    Topic.MIXTURES: "Does training on a mixture give one draft model that is good everywhere?",
    Topic.COMPOSITION: "Is it worth combining specialists?",
    Topic.SIGNALS: "Does it matter which signal routes?",
}
"""Topic -> the question."""

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
class Part:
    """A part of a short answer: the findings that share a verdict.

    Attributes:
        verdict: Theirs.
        lead: The verdict as an answer, e.g. `Not shown`.
        findings: (what was found, or asked; the deciding difference with its interval) of each.
    """

    verdict: str
    lead: str
    findings: list[tuple[str, str]]


@dataclass(frozen=True)
class Answer:
    """A question's short answer and its findings.

    Attributes:
        question: As asked.
        short: The key findings under the main condition.
        sentences: All findings.
    """

    question: str
    short: list[Part]
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
            short=_short(own, judgements, main),
            sentences=[_sentence(claim, judgements, labels, main) for claim in own],
        )
        for topic, question in QUESTIONS.items()
        if (own := [claim for claim in claims if claim.topic == topic and _is_judged(claim, judgements)])
    ]


def _is_judged(claim: Claim, judgements: Sequence[Judgement]) -> bool:
    return any(item.claim == claim.id for item in judgements)


def _short(claims: Sequence[Claim], judgements: Sequence[Judgement], main: Where) -> list[Part]:
    """Returns the key claims under the main condition by verdict; untestable ones only if there is nothing else."""
    findings = {claim.id: claim.finding for claim in claims if claim.is_key}
    own = [item for item in judgements if item.claim in findings and item.where == main]
    tested = [item for item in own if item.verdict != Verdict.NOT_TESTABLE] or own
    parts: dict[tuple[Verdict, str], list[tuple[str, str]]] = {}
    for item in sorted(tested, key=lambda item: list(Verdict).index(item.verdict)):
        parts.setdefault((item.verdict, _lead(item)), []).append((findings[item.claim], _interval(item)))
    return [Part(str(verdict), lead, found) for (verdict, lead), found in parts.items()]


def _lead(item: Judgement) -> str:
    """Returns the verdict as an answer; of an interval beside 0 that does not count, why not."""
    found = item.decisive.interval if item.decisive else None
    if item.verdict == Verdict.UNDECIDED and found and found.can_decide and (found.low > 0 or found.high < 0):
        return "Not shown, corrected for several claims" if item.is_primary else "Not shown"
    return _YES_NO[item.verdict]


def _interval(item: Judgement) -> str:
    """Returns e.g. `0.21 [0.10, 0.33]`, the difference that decides; empty without evidence."""
    if item.decisive is None:
        return ""
    found = item.decisive.interval
    return format_interval(found.estimate, found.low, found.high)


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
    return f"{item.decisive.what}: {_interval(item)}" if item.decisive else ""


def _conditions(judgements: Sequence[Judgement], labels: Labels) -> str:
    """Returns e.g. `EAGLE-2 at T = 0 and 1, HASS at T = 0`."""
    by_method: dict[str, list[str]] = {}
    for item in judgements:
        by_method.setdefault(labels.method(item.where.method), []).append(f"{item.where.temperature:g}")
    return ", ".join(f"{method} at T = {' and '.join(values)}" for method, values in by_method.items())
