"""Tuning and the router, from files of random recordings to what live decoding takes from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taps import fit_router, tune
from taps.decoding.cost_model import CostModel
from taps.decoding.recording import load_recording
from taps.decoding.router import choose, left_out_accuracy
from taps.decoding.router import fit_router as fit
from taps.decoding.strategy import find
from taps.decoding.tuning import Setting, evaluate, plain_value, shapes, tuned_variant, with_tuned
from taps.decoding.tuning import tune as tuned_over
from taps.decoding.variants import Variant
from taps.plumbing.artefacts import read_json, write_json
from taps.plumbing.errors import TapsError
from tests.support.random_trees import Recorded

NAMES = ("math", "chat")
ROWS = [
    {"strategy": "single", "drafters": ["math"]},
    {"strategy": "merged_matched", "drafters": list(NAMES)},
    {"strategy": "single_costed", "drafters": ["chat"]},
]


def _cost(**changes: Any) -> dict[str, Any]:
    content = {
        "depth": 2,
        "target": [{"num_tokens": n, "median_s": 0.1 + 0.01 * n} for n in (1, 5, 9)],
        "draft": [{"num_levels": n, "num_nodes": 8, "median_s": 0.002 * n} for n in (1, 2, 3)],
        **{"overhead_one_s": 0.001, "overhead_many_s": 0.002, "plain_s": 0.11},
    }
    return content | changes


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recordings, `heldout` and `gsm8k`, with banks of two drafters, costs and a calibration."""
    folder = tmp_path_factory.mktemp("study")
    for seed, name in enumerate(("heldout", "gsm8k")):
        (folder / name).mkdir()
        recorded = Recorded(np.random.default_rng(seed), lengths=[12, 9, 15, 20], num_nodes=10)
        recorded.write(folder / name, NAMES, ids=["q0", "q0", "q1", "q2"], turns=[0, 1, 0, 0])
    write_json(folder / "cost.json", _cost(), kind="cost", provenance={})
    factors = {name: {"inverse_temperature": 1.0} for name in NAMES}
    write_json(folder / "calibration.json", {"drafters": factors}, kind="calibration", provenance={})
    return folder


def _banks(study: Path, *parts: str) -> list[str]:
    return [word for part in parts for name in NAMES for word in ("--bank", str(study / part / f"{name}.safetensors"))]


def _tune(study: Path, cost: str = "cost.json") -> dict[str, Any]:
    tune.main(
        [
            *("--heldout", str(study / "heldout" / "trace.safetensors")),
            *("--benchmark", f"gsm8k={study / 'gsm8k' / 'trace.safetensors'}", *_banks(study, "heldout", "gsm8k")),
            *("--strategies", json.dumps(ROWS), "--num-draft-tokens", "4", "--cost", str(study / cost)),
            *("--calibration", str(study / "calibration.json"), "--output", str(study / "tuned.json")),
        ]
    )
    return read_json(study / "tuned.json", kind="tuned")


def test_the_choice_is_the_fastest_exact_shape_on_held_out_prompts(study: Path) -> None:
    content = _tune(study)
    for row in content["rows"]:
        exact = [shape for shape in row["shapes"] if shape["inexact_share"] == 0]
        fastest = max(exact, key=lambda shape: shape["tokens_per_s"], default={"tokens_per_s": 0})
        pays = fastest["tokens_per_s"] > 1 / content["plain_s"]
        assert row["best"] == ({name: fastest[name] for name in ("depth", "num_draft_tokens")} if pays else None)
        on = row["benchmarks"]["gsm8k"]
        assert on["questions"] == ["q0", "q1", "q2"]
        for name in ("plain", "default", "tuned"):
            assert sum(on[name]["num_tokens"]) == 12 + 9 + 15 + 20 - 4
            assert on[name]["tokens_per_s"] == pytest.approx(sum(on[name]["num_tokens"]) / sum(on[name]["seconds"]))
        assert on["plain"]["tau"] == 1
    single = content["rows"][0]
    best = single["best"]
    assert best is not None
    assert single["servers"]["sglang"]["speculative_num_steps"] == best["depth"] + 1
    assert single["servers"]["sglang"]["speculative_num_draft_tokens"] == best["num_draft_tokens"] + 1
    assert single["servers"]["vllm"]["num_speculative_tokens"] == best["depth"] + 1
    for row in content["rows"]:  # servers take one drafter and trees of one shape
        strategy = find(row["strategy"])
        assert bool(row["servers"]) == (row["best"] is not None and strategy.one_drafter and not strategy.costed)


def test_plain_decoding_wins_where_drafting_is_dear(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dear = [{"num_levels": n, "num_nodes": 8, "median_s": 5.0 * n} for n in (1, 2, 3)]
    write_json(study / "dear.json", _cost(draft=dear), kind="cost", provenance={})
    content = _tune(study, "dear.json")
    assert [row["best"] for row in content["rows"]] == [None] * len(ROWS)
    for row in content["rows"]:
        assert row["servers"] == {}
        assert row["benchmarks"]["gsm8k"]["tuned"] == row["benchmarks"]["gsm8k"]["plain"]
        assert tuned_variant(row) is None
    assert "plain decoding" in capsys.readouterr().out
    variants = [Variant(strategy=find("single"), drafters=("math",), num_draft_tokens=4)]
    assert with_tuned(variants, content["rows"]) == variants


def test_tuned_trees_follow_the_variants_they_belong_to(study: Path) -> None:
    rows = _tune(study)["rows"]
    variants = [Variant(strategy=find("single"), drafters=(name,), num_draft_tokens=4) for name in NAMES]
    both = with_tuned(variants, rows)
    assert both[:2] == variants
    assert both[2] == tuned_variant(rows[0])
    assert len(both) == 3
    costed = [Variant(strategy=find("single_costed"), drafters=("chat",), num_draft_tokens=4)]
    itself = {"strategy": "single_costed", "drafters": ["chat"], "best": {"depth": 2, "num_draft_tokens": 4}}
    assert with_tuned(costed, [itself]) == costed  # the same trees under another name


def test_the_choice_does_not_look_at_shapes_that_banks_do_not_hold(study: Path) -> None:
    banks = {name: study / "heldout" / f"{name}.safetensors" for name in NAMES}
    recording = load_recording(study / "heldout" / "trace.safetensors", banks)
    setting = Setting(factors=dict.fromkeys(NAMES, 1.0), cost=CostModel.from_json(_cost()))
    best, table = tuned_over(
        Variant(strategy=find("single"), drafters=("math",), num_draft_tokens=4), [recording], setting
    )
    assert {(row["depth"], row["num_draft_tokens"]) for row in table} == {
        (shape.depth, shape.num_nodes) for shape in shapes(recording.drafting)
    }
    assert any(row["inexact_share"] > 0 for row in table)
    assert best is not None
    assert evaluate(best, [recording], setting).inexact_share == 0
    assert plain_value([recording], setting).tokens_per_s == pytest.approx(1 / 0.11)


def test_a_bank_of_another_text_is_refused(study: Path) -> None:
    with pytest.raises(TapsError, match="none of the traces"):
        tune.banks_by_trace([study / "heldout" / "trace.safetensors"], [study / "gsm8k" / "math.safetensors"])
    with pytest.raises(TapsError, match="no --bank"):
        tune.banks_by_trace([study / "heldout" / "trace.safetensors"], [])


def test_a_router_learns_what_can_be_told_from_the_prompt() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(120, 30)).astype(np.float32) * 5 + 3
    labels = np.where(features[:, 2] - features[:, 7] > 0, 1, 0) + np.where(features[:, 11] > 10, 1, 0)
    router = fit(features, labels, num_drafters=3, penalty=0.01)
    assert (choose(features, router) == labels).mean() > 0.9
    assert left_out_accuracy(features[:40], labels[:40], num_drafters=3, penalty=0.1) > 0.6
    noise = rng.integers(0, 2, 40)
    assert left_out_accuracy(features[:40], noise, num_drafters=2, penalty=0.1) < 0.75


def test_a_strong_penalty_leaves_the_majority() -> None:
    rng = np.random.default_rng(1)
    labels = np.array([0] * 30 + [1] * 10)
    router = fit(rng.normal(size=(40, 8)), labels, num_drafters=2, penalty=1e4)
    assert (choose(rng.normal(size=(50, 8)), router) == 0).all()


def test_constant_features_do_no_harm() -> None:
    features = np.ones((6, 3), np.float32)
    router = fit(features, np.array([0, 1, 1, 1, 1, 0]), num_drafters=2, penalty=0.1)
    assert np.isfinite(router).all()
    assert (choose(features, router) == 1).all()


def test_the_router_s_file(study: Path) -> None:
    fit_router.main(
        [
            *("--trace", str(study / "heldout" / "trace.safetensors"), *_banks(study, "heldout"), "--drafters", *NAMES),
            *("--num-draft-tokens", "4", "--output", str(study / "router.json")),
        ]
    )
    content = read_json(study / "router.json", kind="router")
    assert set(content["weights"]) == set(NAMES)
    assert {len(weights) for weights in content["weights"].values()} == {5}
    assert content["num_prompts"] + content["num_equal"] == 4
    assert sum(content["labels"].values()) == content["num_prompts"]


@pytest.mark.parametrize(
    ("taus", "chosen", "note"),
    [
        ([[1.5, 1.5], [2.0, 2.0]], 0, "none tells the drafters apart"),
        ([[1.5, 1.6], [2.0, 2.5]], 1, f"all 2 speak for {NAMES[1]}"),
    ],
)
def test_answers_that_cannot_be_learned_from_give_a_constant_router_and_a_note(
    taus: list[list[float]], chosen: int, note: str
) -> None:
    content = fit_router.fitted(np.ones((2, 3)), np.array(taus), NAMES, 0.1)
    assert note in content["note"]
    router = np.array([content["weights"][name] for name in NAMES])
    assert (choose(np.random.default_rng(0).normal(size=(50, 3)), router) == chosen).all()
