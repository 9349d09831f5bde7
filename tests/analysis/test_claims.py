"""Every claim on results made to bear it out or not; the stage's files; partial studies."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from taps import claims as stage
from taps import tables
from taps.analysis import claims
from taps.analysis.answers import answers
from taps.analysis.claims import Claim, Judgement, Topic, claims_of, judge_all
from taps.analysis.findings import Findings, Where
from taps.analysis.labels import Labels
from taps.analysis.verdicts import Direction, Evidence, Interval, Verdict
from taps.plumbing.artefacts import read_json, write_json
from taps.plumbing.provenance import provenance
from taps.study.roles import Roles
from tests.support.replay_fixtures import LAPTOP, ROLES, write_replays

E2, HASS = Where(0.0, "eagle2"), Where(0.0, "hass")
PAIR = "math+chat"
ASKED = {claim.id: claim for claim in claims_of(Labels(LAPTOP))}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with `tables` and `claims` of a complete synthetic study."""
    folder = tmp_path_factory.mktemp("study")
    write_replays(folder / "replays", num_questions=10, num_tokens=48, conditions=((0.0, 0), (1.0, 0)))
    tables.main(["--replay", str(folder / "replays"), *ROLES, "--output", str(folder / "tables")])
    stage.main(["--tables", str(folder / "tables"), "--output", str(folder / "claims")])
    return folder


def _write(folder: Path, roles: Roles = LAPTOP, **frames: pd.DataFrame) -> Findings:
    """Returns findings over hand-written tables."""
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    content = {"num_draft_tokens": 40, "facts": [], "tables": [], "roles": roles.to_json()}
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


def _judge(claim: str, found: Findings, where: Where) -> Judgement:
    return claims.judge(ASKED[claim], found, where)


MATH, CHAT, ROUTED = ("single", "math"), ("single", "chat"), ("routed_confidence_step", PAIR)


def test_a_study_of_the_papers_specialists_is_asked_its_claims_and_our_controls() -> None:
    numbers = [number for number in ASKED if re.fullmatch(r"[CK]\d+", number)]
    assert numbers == [f"C{number}" for number in range(1, 26)] + [f"K{number}" for number in range(1, 15)]
    assert all(len(ASKED[number].published) == 4 for number in numbers if number.startswith("C1"))
    assert {claim.topic for claim in ASKED.values() if claim.is_key} == set(Topic) - {Topic.CONDITIONS}


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.1, 0.5, Verdict.REPRODUCED), (-0.5, -0.1, Verdict.CONTRADICTED), (-0.1, 0.5, Verdict.UNDECIDED)],
)
def test_specialisation_follows_the_interval(tmp_path: Path, low: float, high: float, verdict: Verdict) -> None:
    paired = pd.DataFrame([_pair("gsm8k", MATH, CHAT, low, high)])
    found = _write(tmp_path, acceptance_length=_acceptance(("gsm8k",)), paired_differences=paired)
    judged = _judge("C2", found, E2)
    assert judged.verdict == verdict
    assert "a_drafters=math" in judged.evidence[0].interval.rows


def test_pairs_are_found_in_either_order(tmp_path: Path) -> None:
    paired = pd.DataFrame([_pair("mt_bench", MATH, CHAT, -0.5, -0.1)])
    found = _write(tmp_path, acceptance_length=_acceptance(("mt_bench",)), paired_differences=paired)
    judged = _judge("C1", found, E2)
    assert judged.verdict == Verdict.REPRODUCED
    assert (judged.evidence[0].interval.low, judged.evidence[0].interval.high) == (0.1, 0.5)


def test_a_stand_in_is_used_and_named(tmp_path: Path) -> None:
    paired = pd.DataFrame([_pair("aime", MATH, CHAT, 0.1, 0.5)])
    found = _write(tmp_path, acceptance_length=_acceptance(("aime",)), paired_differences=paired)
    judged = _judge("C3", found, E2)
    assert judged.verdict == Verdict.REPRODUCED
    assert "stands in for MATH-500" in judged.evidence[0].what
    assert judged.gaps == ["MATH-500 is not in this study, another benchmark stands in for it"]
    assert _judge("C4", found, E2).verdict == Verdict.NOT_TESTABLE


def test_similar_needs_the_interval_inside_the_margin(tmp_path: Path) -> None:
    for low, high, verdict in (
        (-0.04, 0.04, Verdict.REPRODUCED),  # 5 % of the gain of 1.0
        (-0.09, 0.09, Verdict.UNDECIDED),
        (-0.4, -0.2, Verdict.CONTRADICTED),
    ):
        paired = pd.DataFrame([_pair("gsm8k", ROUTED, MATH, low, high)])
        found = _write(tmp_path, acceptance_length=_acceptance(("gsm8k",), tau=2.0), paired_differences=paired)
        assert _judge("C10", found, E2).verdict == verdict


def test_primary_claims_are_corrected_together(tmp_path: Path) -> None:
    def judged(p_value: float) -> dict[str, Judgement]:
        rows = [_pair("gsm8k", MATH, CHAT, 0.1, 0.5), _pair("mt_bench", CHAT, MATH, 0.1, 0.5)]
        acceptance = _acceptance(("gsm8k", "mt_bench"), drafters=("math", "chat"))
        paired = pd.DataFrame(rows).assign(p_value=p_value)
        found = _write(tmp_path, acceptance_length=acceptance, paired_differences=paired)
        return {item.claim: item for item in judge_all(list(ASKED.values()), found)}

    clear, close = judged(0.001), judged(0.03)
    assert clear["C2"].verdict == Verdict.REPRODUCED
    assert clear["C2"].p_corrected == pytest.approx(0.001 * 2)  # C1 and C2; what cannot be tested is no test
    assert clear["C4"].is_primary
    assert clear["C4"].verdict == Verdict.NOT_TESTABLE
    assert math.isnan(clear["C4"].p_corrected)
    assert close["C2"].verdict == Verdict.UNDECIDED
    assert "not after the correction" in close["C2"].gaps[-1]
    assert not close["C5"].is_primary


def test_large_mixture_reverses_with_temperature(tmp_path: Path) -> None:
    row = _pair("mean", ("single", "mixed_large"), ("single", "mixed_small"), 0.1, 0.3)
    acceptance = pd.concat([_acceptance(("gsm8k",)), _acceptance(("gsm8k",)).assign(temperature=1)])
    paired = pd.DataFrame([row, {**row, "temperature": 1}])
    found = _write(tmp_path, acceptance_length=acceptance, paired_differences=paired)
    assert _judge("C6", found, E2).verdict == Verdict.REPRODUCED
    assert _judge("C6", found, Where(1.0, "eagle2")).verdict == Verdict.CONTRADICTED


def test_conditions_that_a_claim_says_nothing_about_are_skipped(study: Path) -> None:
    found = Findings(study / "tables")
    assert not _judge("C22", found, E2).applies
    assert not _judge("C23", found, HASS).applies
    assert _judge("C22", found, HASS).applies
    assert _judge("C23", found, Where(1.0, "hass")).applies


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
    first = content["answers"][0]["short"]
    assert [(part["lead"], len(part["findings"])) for part in first] == [("Yes", 4)]
    assert re.fullmatch(r"[\d.]+ \[[\d.]+, [\d.]+\]", first[0]["findings"][0][1])
    assert [item["question"] for item in content["advice"]] == [
        "One draft model on everything, or specialists?",
        "If I have specialists, how do I combine them?",
        "How sure is that?",
    ]  # no times were measured: nothing is said of trees
    assert content["claims"][3]["published"][0]["verdict"] == "fails"
    assert (study / "claims/claims.tex").read_text().count(r"\\") > 100


def test_a_study_with_little_is_judged_as_far_as_it_goes(tmp_path: Path) -> None:
    replays = write_replays(
        tmp_path / "r",
        methods=("eagle2",),
        benchmarks=("gsm8k",),
        conditions=((0.0, 0),),
        without=("merged_concat", "routed_confidence_step", "routed_confidence_turn"),
        num_questions=12,
        num_tokens=48,
    )
    (replays / "eagle2/gsm8k/t0_s0.nodes.parquet").unlink()
    tables.main(["--replay", str(replays), *ROLES, "--output", str(tmp_path / "t")])
    stage.main(["--tables", str(tmp_path / "t"), "--output", str(tmp_path / "c")])
    table: Any = pd.read_csv(tmp_path / "c/claims.csv").set_index("claim")
    assert table.loc["C2", "verdict"] == "reproduced"
    for number in ("C1", "C9", "C11", "C15", "C16", "K10"):
        assert table.loc[number, "verdict"] == "not testable here", number
        assert table.loc[number, "num_missing"] > 0


def _judgement(claim: str, verdict: Verdict, where: Where) -> Judgement:
    return Judgement(claim=claim, where=where, verdict=verdict, evidence=[], gaps=["-"])


def _answers(judged: list[Judgement]) -> dict[str, Any]:
    own = [claim for claim in ASKED.values() if any(item.claim == claim.id for item in judged)]
    return {answer.question.split()[0]: answer for answer in answers(own, judged, Labels(LAPTOP), E2)}


def _verdicts(judged: list[Judgement]) -> dict[str, int]:
    """Returns verdict -> number of findings in the short answer to the only question."""
    (answer,) = _answers(judged).values()
    return {part.verdict: len(part.findings) for part in answer.short}


def test_an_interval_beside_0_that_the_correction_undoes_says_so() -> None:
    interval = Interval(estimate=0.1, low=0.01, high=0.2, rows="", num_questions=20)
    evidence = [Evidence(what="a − b", direction=Direction.GREATER, interval=interval)]
    undecided = Judgement(claim="C1", where=E2, verdict=Verdict.UNDECIDED, evidence=evidence, gaps=[])
    judged = replace(undecided, is_primary=True, p_corrected=0.08)
    (part,) = _answers([judged])["Does"].short
    assert part.lead == "Not shown, corrected for several claims"
    assert part.findings[0][1] == "0.10 [0.01, 0.20]"


def test_short_answers_follow_the_key_claims() -> None:
    both = (E2, HASS)
    agree = [_judgement(claim, Verdict.REPRODUCED, where) for claim in ("C1", "C2", "C3", "C4") for where in both]
    assert _verdicts(agree) == {"reproduced": 4}
    split = [*agree[:-1], _judgement("C4", Verdict.CONTRADICTED, HASS)]
    assert _verdicts(split) == {"reproduced": 4}  # the main condition speaks; the other one repeats its texts
    other = [*agree[:-2], _judgement("C4", Verdict.NO_EFFECT, E2)]
    assert _verdicts(other) == {"reproduced": 3, "no effect": 1}
    untested = [_judgement("C4", Verdict.NOT_TESTABLE, where) for where in both]
    assert _verdicts([*agree[:-2], *untested]) == {"reproduced": 3}
    assert _verdicts(untested) == {"not testable here": 1}
    (part,) = _answers([_judgement("K5", Verdict.CONTRADICTED, E2)])["Does"].short
    assert (part.lead, part.findings) == ("Refuted", [("routing by confidence beats routing by entropy", "")])
    sentence = _answers(split)["Does"].sentences[3]
    assert sentence.verdict == "mixed"
    assert "reproduced under EAGLE-2 at T = 0; contradicted under HASS at T = 0" in sentence.text


# --- a study of its own names ----------------------------------------------------------------------------------------


def _own_roles() -> Roles:
    """Returns the parts of a study with three specialists, two of which have a benchmark."""
    drafters: dict[str, dict[str, Any]] = {
        name: {"title": name.upper(), "role": "specialist", "weights": None} for name in ("sql", "law", "ads")
    }
    drafters["all"] = {"title": "All", "role": "mixture", "weights": None}
    thirds = dict.fromkeys(("sql", "law", "ads"), 1 / 3)
    drafters["averaged"] = {"title": "Averaged", "role": "averaged", "weights": thirds}
    method = {"title": "EAGLE-2", "family": "eagle2", "control": False, "compared_with": [], "matches_cost_of": None}
    benchmarks = {
        name: {"title": name.title(), "matched": matched, "published": name, "domain": matched or name}
        for name, matched in (("queries", "sql"), ("contracts", "law"), ("mail", None))
    }
    return Roles.from_json(
        {
            "drafters": drafters,
            "methods": {"eagle2": method},
            "benchmarks": benchmarks,
            "combinations": [["sql", "law", "ads"], ["sql", "law"]],
        }
    )


def test_any_study_is_asked_of_its_own_specialists_and_never_the_papers_claims() -> None:
    asked = {claim.id: claim for claim in claims_of(Labels(_own_roles()))}
    assert not [number for number in asked if re.fullmatch(r"[CK]\d+", number)]
    assert {"sql wins on queries", "law wins on contracts", "average as good as specialists"} <= set(asked)
    assert not [name for name in asked if "mail" in name]
    words = " ".join(f"{claim.statement} {claim.finding}" for claim in asked.values())
    assert not re.search(r"\b(math|chat|GSM8K|MT-Bench)\b", words, re.IGNORECASE)
    assert not any(claim.published for claim in asked.values())
    assert {claim.topic for claim in asked.values() if claim.is_key} >= {Topic.SPECIALISATION, Topic.COMPOSITION}
    assert "the SQL drafter wins on Queries" in words


def test_the_matched_specialist_is_compared_with_every_other(tmp_path: Path) -> None:
    sql, law, ads = (("single", name) for name in ("sql", "law", "ads"))
    paired = pd.DataFrame([_pair("queries", sql, law, 0.1, 0.5), _pair("queries", sql, ads, -0.4, -0.2)])
    acceptance = _acceptance(("queries",), drafters=("sql", "law", "ads"))
    found = _write(tmp_path, _own_roles(), acceptance_length=acceptance, paired_differences=paired)
    asked: dict[str, Claim] = {claim.id: claim for claim in claims_of(found.labels)}
    judged = claims.judge(asked["sql wins on queries"], found, E2)
    assert judged.verdict == Verdict.CONTRADICTED
    assert [item.what for item in judged.evidence] == ["SQL − LAW, Queries", "SQL − ADS, Queries"]
