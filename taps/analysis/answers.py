"""The paper's four questions, answered in plain words from the verdicts, never from the numbers themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taps.analysis import names
from taps.analysis.claims.registry import Judgement
from taps.analysis.verdicts import Verdict

# Question -> the claims that answer it, and what each says when the results bear it out.
QUESTIONS: dict[str, dict[str, str]] = {
    "Does a draft model trained on one task win on that task?": {
        "C1": "the chat drafter wins on MT-Bench",
        "C2": "the math drafter wins on GSM8K",
        "C3": "the math drafter wins on competition problems (MATH-500 or its stand-in)",
        "C4": "the math drafter wins on simple word problems (SVAMP or its stand-in)",
        "C21": "the matched specialist leads at every depth, on math by a growing margin",
    },
    "Does training on a mixture give one draft model that is good everywhere?": {
        "C5": "the small mixture beats both specialists on average",
        "C6": "the large mixture beats the small one at T = 0 and loses to it at T = 1",
        "K7": "the large mixture is as good as the matched specialist on every benchmark",
    },
    "Can two specialists be combined?": {
        "C7": "averaging their weights is the worst of all variants",
        "C9": "routing by confidence beats each specialist on average",
        "C11": "merged trees beat routing on every benchmark",
        "C12": "merged trees beat both specialists on every benchmark",
        "K1": "merged trees beat even a specialist with the same number of verified nodes",
        "K2": "a merged tree of one drafter's budget beats both specialists on average",
        "K3": "leaning towards the drafter that is winning improves the merged tree",
    },
    "Which signal should route, and how do acceptance and entropy behave?": {
        "K5": "routing by confidence beats routing by entropy",
        "K4": "routing by each drafter's history beats routing by confidence",
        "C15": "rejected tokens have the higher entropy",
        "C17": "accepted tokens have the higher confidence",
        "C18": "confidence picks the matched drafter in more than 80 % of the questions everywhere",
        "C20": "acceptance falls with every step of depth",
    },
}
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
        claim: Its number.
        verdict: One verdict if all conditions agree, `mixed` otherwise.
        text: The sentence.
    """

    claim: str
    verdict: str
    text: str


def answers(judgements: Sequence[Judgement]) -> dict[str, list[Sentence]]:
    """Returns question -> its findings in words, over all conditions that were judged."""
    return {
        question: [_sentence(claim, text, judgements) for claim, text in claims.items()]
        for question, claims in QUESTIONS.items()
    }


def _sentence(claim: str, text: str, judgements: Sequence[Judgement]) -> Sentence:
    own = [item for item in judgements if item.claim == claim]
    decided = [item for item in own if item.verdict != Verdict.NOT_TESTABLE] or own
    verdicts = list(dict.fromkeys(item.verdict for item in decided))
    if len(verdicts) == 1:
        (verdict,) = verdicts
        return Sentence(claim, verdict, f"{_LEADS[verdict]} {text} ({_conditions(decided)}).")
    parts = "; ".join(
        f"{verdict} under {_conditions([item for item in decided if item.verdict == verdict])}" for verdict in verdicts
    )
    return Sentence(claim, "mixed", f"It depends: {text} is {parts}.")


def _conditions(judgements: Sequence[Judgement]) -> str:
    """Returns e.g. `EAGLE-2 at T = 0 and 1, HASS at T = 0`."""
    by_method: dict[str, list[str]] = {}
    for item in judgements:
        by_method.setdefault(names.method_title(item.where.method), []).append(f"{item.where.temperature:g}")
    return ", ".join(f"{method} at T = {' and '.join(values)}" for method, values in by_method.items())
