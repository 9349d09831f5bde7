"""The paper's four questions, answered in plain words from the verdicts, never from the numbers themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from taps.analysis import names
from taps.analysis.claims.registry import Judgement
from taps.analysis.verdicts import Verdict

_YES_NO = {
    Verdict.REPRODUCED: "Yes.",
    Verdict.CONTRADICTED: "No.",
    Verdict.UNDECIDED: "Not shown: the intervals are too wide.",
    Verdict.NOT_TESTABLE: "Not testable here.",
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question of the paper.

    Attributes:
        text: The question.
        findings: Claim -> what the results say if they bear it out.
        key: The claims whose verdicts give the short answer.
        short: Verdict on all of `key` -> the short answer.
    """

    text: str
    findings: dict[str, str]
    key: tuple[str, ...]
    short: dict[Verdict, str]


QUESTIONS = (
    Question(
        text="Does a draft model trained on one task win on that task?",
        key=("C1", "C2", "C3", "C4"),
        short=_YES_NO,
        findings={
            "C1": "the chat drafter wins on MT-Bench",
            "C2": "the math drafter wins on GSM8K",
            "C3": "the math drafter wins on competition problems (MATH-500 or its stand-in)",
            "C4": "the math drafter wins on simple word problems (SVAMP or its stand-in)",
            "C21": "the matched specialist leads at every depth, on math by a growing margin",
        },
    ),
    Question(
        text="Does training on a mixture give one draft model that is good everywhere?",
        key=("K7",),
        short=_YES_NO,
        findings={
            "K7": "the large mixture is as good as the matched specialist on every benchmark",
            "C5": "the small mixture beats both specialists on average",
            "C6": "the large mixture beats the small one at T = 0 and loses to it at T = 1",
        },
    ),
    Question(
        text="Can two specialists be combined?",
        key=("C12", "K2"),
        short=_YES_NO,
        findings={
            "C7": "averaging their weights is the worst of all variants",
            "K9": "averaged weights are as good as the specialists when these continue from one common draft model",
            "C9": "routing by confidence beats each specialist on average",
            "C11": "merged trees beat routing on every benchmark",
            "C12": "merged trees beat both specialists on every benchmark",
            "K1": "merged trees beat even a specialist with the same number of verified nodes",
            "K2": "a merged tree of one drafter's budget beats both specialists on average",
            "K3": "leaning towards the drafter that is winning improves the merged tree",
        },
    ),
    Question(
        text="Which signal should route, and how do acceptance and entropy behave?",
        key=("K5",),
        short={
            Verdict.REPRODUCED: "Confidence rather than entropy.",
            Verdict.CONTRADICTED: "Entropy rather than confidence.",
            Verdict.UNDECIDED: "Confidence and entropy are not told apart.",
            Verdict.NOT_TESTABLE: "Not testable here.",
        },
        findings={
            "K5": "routing by confidence beats routing by entropy",
            "K4": "routing by each drafter's history beats routing by confidence",
            "C15": "rejected tokens have the higher entropy",
            "C17": "accepted tokens have the higher confidence",
            "C18": "confidence picks the matched drafter in more than 80 % of the questions everywhere",
            "C20": "acceptance falls with every step of depth",
        },
    ),
)
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


@dataclass(frozen=True)
class Answer:
    """A question's short answer and its findings."""

    question: str
    short: str
    sentences: list[Sentence]


def answers(judgements: Sequence[Judgement]) -> list[Answer]:
    """Returns the answers to QUESTIONS, over all conditions that were judged."""
    return [
        Answer(
            question=question.text,
            short=_short(question, judgements),
            sentences=[_sentence(claim, text, judgements) for claim, text in question.findings.items()],
        )
        for question in QUESTIONS
    ]


def _short(question: Question, judgements: Sequence[Judgement]) -> str:
    """Returns the short answer if the key claims agree under all conditions that decide them, else how they split."""
    own = [item for item in judgements if item.claim in question.key]
    verdicts = [item.verdict for item in own if item.verdict != Verdict.NOT_TESTABLE]
    if not verdicts:
        return question.short[Verdict.NOT_TESTABLE]
    tested = {item.claim for item in own if item.verdict != Verdict.NOT_TESTABLE}
    untested = [claim for claim in question.key if claim not in tested]
    rest = f" (Not testable here: {', '.join(untested)}.)" if untested else ""
    if len(set(verdicts)) == 1:
        return question.short[verdicts[0]] + rest
    counts: Counter[Verdict] = Counter(verdicts)
    split = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
    lead = "Partly" if counts[Verdict.REPRODUCED] else "Not shown"
    return f"{lead}: of {len(verdicts)} decisive judgements ({', '.join(question.key)}), {split}.{rest}"


def _sentence(claim: str, text: str, judgements: Sequence[Judgement]) -> Sentence:
    own = [item for item in judgements if item.claim == claim]
    decided = [item for item in own if item.verdict != Verdict.NOT_TESTABLE] or own
    verdicts = list(dict.fromkeys(item.verdict for item in decided))
    if len(verdicts) == 1:
        (verdict,) = verdicts
        everywhere = len(decided) == len({item.where for item in judgements})
        under = "" if everywhere else f" ({_conditions(decided)})"
        return Sentence(claim, verdict, f"{_LEADS[verdict]} {text}{under}.")
    parts = "; ".join(
        f"{verdict} under {_conditions([item for item in decided if item.verdict == verdict])}" for verdict in verdicts
    )
    return Sentence(claim, "mixed", f"It depends: that {text} is {parts}.")


def _conditions(judgements: Sequence[Judgement]) -> str:
    """Returns e.g. `EAGLE-2 at T = 0 and 1, HASS at T = 0`."""
    by_method: dict[str, list[str]] = {}
    for item in judgements:
        by_method.setdefault(names.method_title(item.where.method), []).append(f"{item.where.temperature:g}")
    return ", ".join(f"{method} at T = {' and '.join(values)}" for method, values in by_method.items())
