"""Tests of taps.audit: the published cells from the authors' own files, and files that are odd or broken."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from taps.audit import audit, main
from taps.plumbing.errors import TapsError

ANSWERS = Path(__file__).parents[3] / "shared" / "data" / "eagle_answers"
CELLS = {  # file: (published, corrected)
    "math_mt_bench": (2.43, 2.409),
    "chat_mt_bench": (3.38, 3.342),
    "mixed_35k_mt_bench": (3.10, 3.069),
    "averaged_mt_bench": (2.01, 2.001),
    "math_svamp": (4.53, 4.372),
    "chat_svamp": (3.65, 3.550),
    "mixed_35k_svamp": (4.03, 3.906),
    "averaged_svamp": (2.45, 2.405),
}


def _record(question: object = 1, **choice: Any) -> dict[str, Any]:
    return {"question_id": question, "choices": [{"idxs": [3], "new_tokens": [10], **choice}], "model_id": "x"}


def _write(path: Path, *records: Any) -> Path:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


@pytest.mark.skipif(not ANSWERS.is_dir(), reason="needs the authors' answer files beside the repository")
@pytest.mark.parametrize("name", CELLS)
def test_published_cells_and_what_they_should_be(name: str) -> None:
    published, corrected = CELLS[name]
    result = audit(ANSWERS / f"{name}.jsonl")
    assert round(result["tau_published_eagle"], 2) == published
    assert round(result["tau"], 3) == corrected
    assert result["tau_low"] < result["tau"] < result["tau_high"] < result["tau_low"] * 1.15
    assert result["num_questions"] == (80 if "mt_bench" in name else 300)
    assert result["tau_published_hass"] is None


def test_sums_by_hand(tmp_path: Path) -> None:
    records = [
        _record("a", idxs=[3, 1], new_tokens=[10, 4], wall_time=[1.0, 0.5], turns=["x", "y"], unknown={"deep": 1}),
        _record("b", idxs=[1], new_tokens=[6], wall_time=[0.5]),
    ]
    result = audit(_write(tmp_path / "two.jsonl", *records))
    assert result["num_questions"] == 2
    assert result["num_answers"] == 3
    assert result["num_tokens"] == 20
    assert result["num_cycles"] == 8
    assert result["tau"] == 20 / 8
    assert result["tau_macro"] == (14 / 6 + 6 / 2) / 2
    assert result["tau_published_eagle"] == 20 / 5
    assert result["tokens_per_s"] == 10.0
    # leaving a question out moves tau by (14 - 2.5 * 6) / 2 and (6 - 2.5 * 2) / 6: a standard error of 1/3, one degree
    assert result["tau_low"] == pytest.approx(2.5 - 12.7062 / 3, abs=1e-4)
    assert result["tau_high"] == pytest.approx(2.5 + 12.7062 / 3, abs=1e-4)


def test_one_cycle_answers_divide_by_nothing(tmp_path: Path) -> None:
    result = audit(
        _write(tmp_path / "one.jsonl", _record(idxs=[0], new_tokens=[3]), _record(2, idxs=[0], new_tokens=[2]))
    )
    assert result["tau"] == 2.5
    assert result["tau_published_eagle"] is None
    assert result["tokens_per_s"] is None
    mixed = audit(_write(tmp_path / "mixed.jsonl", _record(idxs=[0], new_tokens=[3]), _record(2)))
    assert mixed["tau_published_eagle"] == 13 / 3


def test_one_question_has_no_interval(tmp_path: Path) -> None:
    result = audit(_write(tmp_path / "one.jsonl", _record()))
    assert (result["tau"], result["tau_low"], result["tau_high"]) == (2.5, None, None)


@pytest.mark.parametrize("lengths", [[1, 2, 2, 1], [[1, 2], [2, 1]]])
def test_accept_lengths_give_the_hass_definition(tmp_path: Path, lengths: object) -> None:
    path = _write(tmp_path / "hass.jsonl", _record(accept_length=lengths), _record(2, accept_length=[4, 4, 5, 3]))
    assert audit(path)["tau_published_hass"] == pytest.approx(((1.5 + 1) + (4 + 1)) / 2)
    some = _write(tmp_path / "some.jsonl", _record(accept_length=lengths), _record(2))
    assert audit(some)["tau_published_hass"] is None, "unknown for one question is unknown for the mean"


def test_blank_lines_and_several_choices(tmp_path: Path) -> None:
    record = _record()
    record["choices"] *= 2
    result = audit(_write(tmp_path / "x.jsonl", "", record, ""))
    assert (result["num_questions"], result["num_answers"], result["num_tokens"]) == (1, 2, 20)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ('{"question_id": 2, "choi', r"x\.jsonl:2: malformed record"),
        ("[]", r"x\.jsonl:2: malformed record"),
        ('{"question_id": 2}', r"x\.jsonl:2: lacks the field 'choices'"),
        ('{"choices": [{"idxs": [1], "new_tokens": [2]}]}', r"x\.jsonl:2: lacks the field 'question_id'"),
        (_record(idxs=[1, 2]), r"x\.jsonl:2: malformed record \(idxs has 2 turns, new_tokens 1\)"),
        (_record(idxs=[], new_tokens=[]), r"x\.jsonl:2: malformed record \(idxs has 0 turns"),
        (_record(idxs=["3"]), r"x\.jsonl:2: malformed record \(idxs is not a list of whole numbers"),
        (_record(idxs=[-1]), r"x\.jsonl:2: malformed record \(idxs is not"),
        (_record(idxs=[True]), r"x\.jsonl:2: malformed record \(idxs is not"),
        (_record(new_tokens=None), r"x\.jsonl:2: malformed record \(new_tokens is not"),
        (_record(wall_time=["fast"]), r"x\.jsonl:2: malformed record \(wall_time is not"),
        (_record(accept_length=3), r"x\.jsonl:2: malformed record \(accept_length is not"),
    ],
)
def test_malformed_records_are_named(tmp_path: Path, broken: object, message: str) -> None:
    with pytest.raises(TapsError, match=message):
        audit(_write(tmp_path / "x.jsonl", _record(), broken))


def test_missing_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(TapsError, match="cannot be read"):
        audit(tmp_path / "none.jsonl")
    with pytest.raises(TapsError, match="no answers"):
        audit(_write(tmp_path / "empty.jsonl"))


def test_stage_writes_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [_write(tmp_path / f"{name}.jsonl", _record(idxs=[0], new_tokens=[1])) for name in "ab"]
    main([*map(str, files), "--json", str(tmp_path / "out.json")])
    results = json.loads((tmp_path / "out.json").read_text())
    assert [result["file"] for result in results] == [str(path) for path in files]
    assert results[0].keys() >= {"num_questions", "num_tokens", "num_cycles", "tau", "tau_low", "tau_high", "tau_macro"}
    assert not any(isinstance(fact, float) and math.isnan(fact) for result in results for fact in result.values())
    assert len(capsys.readouterr().out.splitlines()) == 3
