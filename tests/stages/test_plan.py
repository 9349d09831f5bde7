"""The plan's arithmetic: shapes against real modules, amounts by hand, and what the text must say."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from taps.plan import as_text, free_bytes, main, make_plan
from taps.plumbing.artefacts import read_json
from taps.plumbing.errors import TapsError
from taps.study.budget import (
    Shape,
    corpus_tokens,
    hours,
    mixture_tokens,
    num_drafted,
    original_work,
    recorded,
    shape_of,
    study_disk,
    study_work,
    training_work,
)
from taps.study.config import read, validate

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "workflow" / "studies"


@pytest.fixture(scope="module")
def paper() -> dict[str, Any]:
    return validate(read([STUDIES / "paper.yaml"]), root=ROOT)


def test_llama_3_8b_has_its_known_sizes(paper: dict[str, Any]) -> None:
    shape = shape_of(paper)
    assert shape.target_parameters == pytest.approx(8.03e9, rel=0.001)
    assert shape.draft_parameters == pytest.approx(0.2517e9, rel=0.001)  # 0.25 B trained, embedding and head are frozen


@pytest.mark.parametrize(
    ("overlay", "billions"), [("scaling_qwen3_1_7b", 1.72), ("scaling_qwen3_4b", 4.02), ("scaling_vicuna_13b", 13.0)]
)
def test_the_scaling_targets_have_their_known_sizes(overlay: str, billions: float) -> None:
    config = validate(read([STUDIES / "paper.yaml", STUDIES / f"{overlay}.yaml"]), root=ROOT)
    assert shape_of(config).target_parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_training_operations_are_those_that_a_real_run_counts() -> None:
    from taps.model.flops import Sizes, training_cost

    layer = Sizes(hidden_size=64, intermediate_size=160, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
    shape = Shape(layer=layer, num_layers=2, vocab=512, tied=True, head_columns=100)
    counted = training_cost(layer, head_columns=100, num_passes=3).flops([80] * 12, 700)
    assert shape.training_flops(960, 700, 80, 3) == pytest.approx(counted)


def test_amounts_of_text_follow_the_config(paper: dict[str, Any]) -> None:
    assert corpus_tokens(paper, "math") == 70000 * 240
    assert corpus_tokens(paper, "chat") == 70000 * 900
    assert mixture_tokens(paper, "mixed_small") == pytest.approx(0.95 * 70000 * (240 + 900) / 2)
    assert recorded(paper)["gsm8k"] == (1319 * 120, 1319 * 250, 1319)
    assert recorded(paper)["mt_bench"] == (160 * (120 + (120 + 250) / 2), 160 * 250, 160)
    new = (1319 + 500 + 300 + 160) * 250
    # 4 mixtures and the average at 4 conditions, 8 more averages at the one of temperature 0
    assert num_drafted(paper, "eagle2") == new * (4 * 5 + 8)
    assert num_drafted(paper, "eagle2_long") == new * 2  # a control, at temperature 0 only


def test_a_matched_cost_is_that_of_the_other_method(paper: dict[str, Any]) -> None:
    work = training_work(paper)
    assert work["eagle2_long", "math"] == work["hass", "math"] > 2 * work["eagle2", "math"]
    assert len(work) == 12


def test_imported_drafters_cost_no_training_and_no_features(paper: dict[str, Any]) -> None:
    config = copy.deepcopy(paper)
    for name in ("eagle2_long", "eagle2_shared"):
        del config["methods"][name]
        config["averaging"]["weights"].pop(name, None)
    for method in config["methods"].values():
        method["checkpoints"] = {"math": "x", "chat": "y"}
    work = {item.stage: item.flops for item in study_work(config)}
    assert work["features"] == work["train"] == 0
    assert study_disk(config)["features"] == study_disk(config)["training states"] == 0
    assert work["trace"] > 0


def test_answers_of_the_targets_own_are_reckoned_and_shown(paper: dict[str, Any]) -> None:
    config = copy.deepcopy(paper)
    assert not [item for item in study_work(paper) if item.stage == "regenerate"]
    config["corpora"]["math"]["regenerate"] = {"temperature": 0, "max_new_tokens": 64, "batch_size": 8}
    (answers,) = (item for item in study_work(config) if item.stage == "regenerate")
    tokens = corpus_tokens(config, "math")
    parameters = shape_of(config).target_parameters
    assert 1.5 * tokens * parameters < answers.flops < 3 * tokens * parameters  # two per parameter, and attention
    assert hours(study_work(config), {"training_tflops": 1.0, "decoding_tflops": 1.0}) > hours(
        study_work(paper), {"training_tflops": 1.0, "decoding_tflops": 1.0}
    )
    assert "| regenerate | target |" in as_text(make_plan(config, {"regenerate": 1}, 10**15))


def test_replay_spares_most_of_the_targets_evaluation(paper: dict[str, Any]) -> None:
    ours = sum(item.flops for item in study_work(paper) if item.stage == "trace")
    theirs = sum(item.flops for item in original_work(paper) if (item.stage, item.model) == ("evaluate", "target"))
    assert ours < 0.07 * theirs  # the 93 % of the design, and more


def test_hours_are_operations_over_the_rate_of_each_stage(paper: dict[str, Any]) -> None:
    work = study_work(paper)
    flops = {rate: sum(item.flops for item in work if item.rate == rate) for rate in ("training", "decoding")}
    rates = {"training_tflops": 100.0, "decoding_tflops": 10.0}
    assert hours(work, rates) == pytest.approx((flops["training"] / 1e14 + flops["decoding"] / 1e13) / 3600)


@pytest.mark.parametrize(("free", "warns"), [(10**15, False), (10**9, True)])
def test_the_text_names_every_number_and_warns_when_the_disk_is_too_small(
    paper: dict[str, Any], free: int, warns: bool
) -> None:
    text = as_text(make_plan(paper, {"trace": 18, "bank": 320}, free))
    assert "| trace | 18 |" in text
    assert "| all | 338 |" in text
    assert f"| features | {70000 * 1140 * 2 * 4096 / 1e9:,.1f} |" in text
    assert "a100_80gb" in text
    assert ("WARNING" in text) is warns


def test_free_space_of_a_folder_that_does_not_exist_yet(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "a" / "b") == pytest.approx(free_bytes(tmp_path), rel=0.1)


def test_a_corpus_of_unknown_size_is_named(paper: dict[str, Any]) -> None:
    config = copy.deepcopy(paper)
    config["corpora"]["math"]["max_rows"] = None
    with pytest.raises(TapsError, match=r"corpora.math: of unknown size"):
        make_plan(config, {}, 1)


def test_the_stage_counts_jobs_by_a_dry_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "plan.json"
    main(["--snakefile", str(ROOT / "Snakefile"), "--config", str(ROOT / "config.yaml"), "--output", str(output)])
    plan = read_json(output, kind="plan")
    laptop = yaml.safe_load((ROOT / "config.yaml").read_text())
    assert plan["jobs"]["features"] == len(laptop["corpora"])
    assert "# Plan of the study laptop" in capsys.readouterr().out


def test_a_study_without_expectations_is_refused(tmp_path: Path) -> None:
    arguments = ["--snakefile", str(ROOT / "Snakefile"), "--output", str(tmp_path / "plan.json"), "--config"]
    with pytest.raises(TapsError, match=r"smoke.yaml: plan: missing"):
        main([*arguments, str(STUDIES / "smoke.yaml")])
