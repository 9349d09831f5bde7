"""Every claim on results made to bear it out or not; the stage's files; partial studies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from taps import claims as stage
from taps import tables
from taps.analysis import claims
from taps.analysis.answers import QUESTIONS, answers
from taps.analysis.claims.registry import Judgement
from taps.analysis.findings import Findings, Where
from taps.analysis.verdicts import Verdict
from taps.plumbing.artefacts import read_json, write_json
from taps.plumbing.provenance import provenance
from tests.replay_fixtures import write_replays

E2, HASS = Where(0.0, "eagle2"), Where(0.0, "hass")
PAIR = "math+chat"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with `tables` and `claims` of a complete synthetic study."""
    folder = tmp_path_factory.mktemp("study")
    write_replays(folder / "replays", num_questions=10, num_tokens=48, conditions=((0.0, 0), (1.0, 0)))
    tables.main(["--replay", str(folder / "replays"), "--output", str(folder / "tables")])
    stage.main(["--tables", str(folder / "tables"), "--output", str(folder / "claims")])
    return folder


def _write(folder: Path, **frames: pd.DataFrame) -> Findings:
    """Returns findings over hand-written tables."""
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    content = {"num_draft_tokens": 40, "facts": [], "tables": []}
    write_json(folder / "tables.json", content, kind="tables", provenance=provenance(stage="test"))
    return Findings(folder)


def _acceptance(benchmarks: tuple[str, ...], tau: float = 2.0, drafters: tuple[str, ...] = ("math", "chat")) -> Any:
    rows = [
        {"temperature": 0, "method": "eagle2", "strategy": "single", "drafters": name, "benchmark": benchmark}
        | {"num_draft_tokens": 40, "tau": tau}
        for benchmark in benchmarks
        for name in drafters
    ]
    return pd.DataFrame(rows)


def _pair(benchmark: str, a: tuple[str, str], b: tuple[str, str], low: float, high: float) -> dict[str, Any]:
    return {
        "temperature": 0, "method": "eagle2", "benchmark": benchmark, "a_strategy": a[0], "a_drafters": a[1],
        "b_strategy": b[0], "b_drafters": b[1], "num_draft_tokens": 40, "difference": (low + high) / 2,
        "low": low, "high": high, "num_questions": 9,
    }  # fmt: skip


MATH, CHAT, ROUTED = ("single", "math"), ("single", "chat"), ("routed_confidence_step", PAIR)


def test_every_statement_has_a_function_and_no_function_lacks_one() -> None:
    found = [item["id"] for item in claims.statements()]
    assert found == [f"C{number}" for number in range(1, 26)] + [f"K{number}" for number in range(1, 10)]
    assert {claim for question in QUESTIONS for claim in question.findings} <= set(found)
    assert all(set(question.key) <= set(question.findings) for question in QUESTIONS)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.1, 0.5, Verdict.REPRODUCED), (-0.5, -0.1, Verdict.CONTRADICTED), (-0.1, 0.5, Verdict.UNDECIDED)],
)
def test_specialisation_follows_the_interval(tmp_path: Path, low: float, high: float, verdict: Verdict) -> None:
    paired = pd.DataFrame([_pair("gsm8k", MATH, CHAT, low, high)])
    found = _write(tmp_path, acceptance_length=_acceptance(("gsm8k",)), paired_differences=paired)
    judged = claims.judge("C2", found, E2)
    assert judged.verdict == verdict
    assert "a_drafters=math" in judged.evidence[0].interval.rows


def test_pairs_are_found_in_either_order(tmp_path: Path) -> None:
    paired = pd.DataFrame([_pair("mt_bench", MATH, CHAT, -0.5, -0.1)])
    found = _write(tmp_path, acceptance_length=_acceptance(("mt_bench",)), paired_differences=paired)
    judged = claims.judge("C1", found, E2)
    assert judged.verdict == Verdict.REPRODUCED
    assert (judged.evidence[0].interval.low, judged.evidence[0].interval.high) == (0.1, 0.5)


def test_a_stand_in_is_used_and_named(tmp_path: Path) -> None:
    paired = pd.DataFrame([_pair("aime", MATH, CHAT, 0.1, 0.5)])
    found = _write(tmp_path, acceptance_length=_acceptance(("aime",)), paired_differences=paired)
    judged = claims.judge("C3", found, E2)
    assert judged.verdict == Verdict.REPRODUCED
    assert "stands in for MATH-500" in judged.evidence[0].what
    assert judged.gaps == ["MATH-500 is not in this study, another benchmark stands in for it"]
    assert claims.judge("C4", found, E2).verdict == Verdict.NOT_TESTABLE


def test_similar_needs_the_interval_inside_the_margin(tmp_path: Path) -> None:
    for low, high, verdict in (
        (-0.09, 0.09, Verdict.REPRODUCED),
        (-0.3, 0.09, Verdict.UNDECIDED),
        (-0.4, -0.2, Verdict.CONTRADICTED),
    ):
        paired = pd.DataFrame([_pair("gsm8k", ROUTED, MATH, low, high)])
        found = _write(tmp_path, acceptance_length=_acceptance(("gsm8k",), tau=2.0), paired_differences=paired)
        assert claims.judge("C10", found, E2).verdict == verdict


def test_large_mixture_reverses_with_temperature(tmp_path: Path) -> None:
    row = _pair("mean", ("single", "mixed_large"), ("single", "mixed_small"), 0.1, 0.3)
    acceptance = pd.concat([_acceptance(("gsm8k",)), _acceptance(("gsm8k",)).assign(temperature=1)])
    paired = pd.DataFrame([row, {**row, "temperature": 1}])
    found = _write(tmp_path, acceptance_length=acceptance, paired_differences=paired)
    assert claims.judge("C6", found, E2).verdict == Verdict.REPRODUCED
    assert claims.judge("C6", found, Where(1.0, "eagle2")).verdict == Verdict.CONTRADICTED


def test_conditions_that_a_claim_says_nothing_about_are_skipped(study: Path) -> None:
    found = Findings(study / "tables")
    assert not claims.judge("C22", found, E2).applies
    assert not claims.judge("C23", found, HASS).applies
    assert claims.judge("C22", found, HASS).applies
    assert claims.judge("C23", found, Where(1.0, "hass")).applies


def test_built_in_effects_are_found(study: Path) -> None:
    """The synthetic study has specialists that win, averages that lose, and one draw-by-draw law for both families."""
    table: Any = pd.read_csv(study / "claims/claims.csv")
    verdicts = {(row["claim"], row["temperature"], row["method"]): row["verdict"] for row in table.to_dict("records")}
    for number in ("C1", "C2", "C3", "C4", "C7", "C13", "C14", "C15", "C17"):
        for where in ((0, "eagle2"), (1, "hass")):
            assert verdicts[number, *where] == "reproduced", (number, where)
    assert verdicts["C25", 0, "eagle2"] == "not testable here"
    assert "contradicted" not in {verdicts["C22", 0, "hass"], verdicts["K5", 0, "eagle2"]}


def test_evidence_names_rows_that_exist(study: Path) -> None:
    evidence: Any = pd.read_csv(study / "claims/evidence.csv")
    paired: Any = pd.read_csv(study / "tables/paired_differences.csv").astype(str)
    rows: list[str] = evidence.loc[evidence["claim"] == "C12", "rows"].tolist()
    assert rows
    for text in rows:
        name, _, conditions = text.partition(".csv: ")
        assert name == "paired_differences"
        held = paired
        for condition in conditions.split(", "):
            column, _, value = condition.partition("=")
            held = held[held[column] == value]
        assert len(held) == 1


def test_page_gets_published_verdicts_and_answers(study: Path) -> None:
    content = read_json(study / "claims/claims.json", kind="claims")
    assert len(content["answers"]) == 4
    assert content["answers"][0]["short"] == "Yes."
    assert content["claims"][3]["published"][0]["verdict"] == "fails"
    assert (study / "claims/claims.tex").read_text().count(r"\\") > 100


def test_a_study_with_little_is_judged_as_far_as_it_goes(tmp_path: Path) -> None:
    replays = write_replays(
        tmp_path / "r",
        methods=("eagle2",),
        benchmarks=("gsm8k",),
        conditions=((0.0, 0),),
        without=("merged_concat", "routed_confidence_step", "routed_confidence_turn"),
        num_questions=6,
        num_tokens=32,
    )
    (replays / "eagle2/gsm8k/t0_s0.nodes.parquet").unlink()
    tables.main(["--replay", str(replays), "--output", str(tmp_path / "t")])
    stage.main(["--tables", str(tmp_path / "t"), "--output", str(tmp_path / "c")])
    table: Any = pd.read_csv(tmp_path / "c/claims.csv").set_index("claim")
    assert table.loc["C2", "verdict"] == "reproduced"
    for number in ("C1", "C9", "C11", "C15", "C16", "C18"):
        assert table.loc[number, "verdict"] == "not testable here", number
        assert table.loc[number, "num_missing"] > 0


def _judgement(claim: str, verdict: Verdict, where: Where) -> Judgement:
    return Judgement(claim=claim, where=where, verdict=verdict, evidence=[], gaps=["-"])


def test_short_answers_follow_the_key_claims() -> None:
    both = (E2, HASS)
    agree = [_judgement(claim, Verdict.REPRODUCED, where) for claim in ("C1", "C2", "C3", "C4") for where in both]
    assert answers(agree)[0].short == "Yes."
    split = [*agree[:-1], _judgement("C4", Verdict.CONTRADICTED, HASS)]
    assert answers(split)[0].short.startswith(
        "Partly: of 8 decisive judgements (C1, C2, C3, C4), 7 reproduced, 1 contra"
    )
    assert answers(agree[:-2])[0].short == "Yes. (Not testable here: C4.)"
    assert answers([_judgement("K5", Verdict.CONTRADICTED, E2)])[3].short == "Entropy rather than confidence."
    sentence = answers(split)[0].sentences[3]
    assert sentence.verdict == "mixed"
    assert "reproduced under EAGLE-2 at T = 0; contradicted under HASS at T = 0" in sentence.text
