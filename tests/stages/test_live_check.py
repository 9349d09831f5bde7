"""Tests of taps.live_check: replay and live decoding take the same cycles; what differs is found and counted."""

from __future__ import annotations

import json

import numpy as np
import pytest

from taps import bank, cost, fit_router, trace
from taps.decoding.comparison import RecordedText, compare_cycles, first_difference
from taps.decoding.engine import Cycle
from taps.decoding.strategy import STRATEGIES
from taps.decoding.walk import Cycles
from taps.live_check import main
from taps.model.sampling import Draws, Sampling
from taps.plumbing.artefacts import read_json, write_json, write_jsonl, write_tensors
from taps.plumbing.errors import TapsError
from tests.support.live_fixtures import save_drafters, save_word_target

NAMES = ("math", "chat")
PROMPTS = [
    {"id": "q1", "category": None, "turns": ["a b c", "d"], "reference": None},
    {"id": "q2", "category": None, "turns": ["k j"], "reference": None},
    {"id": "q3", "category": None, "turns": ["b b e"], "reference": None},
]
ROWS = [
    {"strategy": name, "drafters": [drafter] if strategy.one_drafter else list(NAMES)}
    for name, strategy in STRATEGIES.items()
    for drafter in (NAMES if strategy.one_drafter else NAMES[:1])
]
SMALLER = [  # views of the banks in replay, drafted with that depth live
    {"strategy": "single", "drafters": ["math"], "num_draft_tokens": 3, "depth": 0},
    {"strategy": "single", "drafters": ["chat"], "num_draft_tokens": 4, "depth": 1},
    {"strategy": "merged_matched", "drafters": list(NAMES), "num_draft_tokens": 4, "depth": 1},
    {"strategy": "routed_confidence_step", "drafters": list(NAMES), "num_draft_tokens": 5, "depth": 2},
]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A target, two drafters, traces at both temperatures, banks along them, a calibration and a cost file."""
    folder = tmp_path_factory.mktemp("study")
    target = save_word_target(folder / "target")
    drafters = save_drafters(folder, target, NAMES)
    write_jsonl(folder / "prompts.jsonl", PROMPTS, kind="prompts", provenance={})
    factors = {"math": {"inverse_temperature": 0.8}, "chat": {"inverse_temperature": 1.3}}
    write_json(folder / "calibration.json", {"drafters": factors}, kind="calibration", provenance={})
    shape = ["--depth", "3", "--top-k", "3"]
    for temperature in (0, 1):
        recorded = ["--target", str(target), "--prompts", str(folder / "prompts.jsonl"), "--seed", "5"]
        path = folder / f"t{temperature}.safetensors"
        flags = ["--temperature", str(temperature), "--max-new-tokens", "30", "--output", str(path)]
        trace.main([*recorded, *flags])
        for name in NAMES:
            flags = ["--drafter", str(folder / name), "--trace", str(path), *shape, "--num-nodes", "16"]
            bank.main(["--target", str(target), *flags, "--output", str(folder / f"{name}_t{temperature}.safetensors")])
    along = [word for name in NAMES for word in ("--bank", str(folder / f"{name}_t0.safetensors"))]
    flags = ["--drafters", *NAMES, "--num-draft-tokens", "8", "--output", str(folder / "router.json")]
    fit_router.main(["--trace", str(folder / "t0.safetensors"), *along, *flags])
    flags = ["--num-draft-tokens", "8", "--nodes", "4", "8", "16", "--limit-s", "0.5", "--prefix-length", "16"]
    cost.main(["--target", str(target), *drafters, *shape, *flags, "--output", str(folder / "cost.json")])
    return folder


def _check(study, temperature, rows, *flags, output="live.json"):
    main(
        [
            *("--target", str(study / "target"), "--trace", str(study / f"t{temperature}.safetensors")),
            *(word for name in NAMES for word in ("--drafter", f"{name}={study / name}")),
            *(word for name in NAMES for word in ("--bank", f"{name}={study / f'{name}_t{temperature}.safetensors'}")),
            *("--strategies", json.dumps(rows), "--num-draft-tokens", "8"),
            *("--calibration", str(study / "calibration.json"), *flags, "--output", str(study / output)),
        ]
    )
    return read_json(study / output, kind="live_check")


@pytest.mark.parametrize("temperature", [0, 1])
def test_replay_equals_live_decoding_cycle_by_cycle(study, temperature, capsys):
    files = ["--cost", str(study / "cost.json"), "--router", str(study / "router.json")]
    content = _check(study, temperature, [*ROWS, *SMALLER], "--num-prompts", "2", *files)
    assert {row["strategy"] for row in content["rows"]} == {n for n, s in STRATEGIES.items() if not s.needs_future}
    assert len(content["replay_only"]) == sum(strategy.needs_future for strategy in STRATEGIES.values())
    for row in content["rows"]:
        assert row["num_texts"] == row["num_equal_texts"] == 3  # two turns and one
        assert row["divergences"] == row["different_cycles"] == []
        assert row["num_different_cycles"] == 0
        assert row["num_compared_cycles"] == row["num_cycles"] > 0
        assert row["tau"] == row["num_tokens"] / row["num_cycles"]
        assert row["tokens_per_s"] == pytest.approx(
            row["num_tokens"] / sum(row["seconds"][name] for name in ("target", "drafting", "outside"))
        )
        assert row["predicted_tokens_per_s"] > 0
        for name in ("", "predicted_"):
            own, plain = row[f"{name}tokens_per_s"], content["plain"][f"{name}tokens_per_s"]
            assert row[f"{name}speedup"] == pytest.approx(own / plain)
    taus = {(row["strategy"], row["drafters"]): row["tau"] for row in content["rows"]}
    assert len(set(taus.values())) > 3  # strategies differ, so equal cycles mean something
    assert max(taus.values()) > 1.2
    assert content["plain"]["num_equal_texts"] == 3
    assert content["plain"]["predicted_tokens_per_s"] > 0
    assert "cycles as replayed" in capsys.readouterr().out


def test_another_recording_is_noticed(study):
    """Live decoding at other draws than recorded: the trace's seed is changed behind its back."""
    from taps.plumbing.artefacts import read_tensors
    from taps.plumbing.provenance import digest_of

    tensors, meta = read_tensors(study / "t1.safetensors", kind="trace")
    write_tensors(study / "t2.safetensors", tensors, kind="trace", provenance={}, meta=meta | {"seed": 6})
    for name in NAMES:
        trees, facts = read_tensors(study / f"{name}_t1.safetensors", kind="bank")
        facts["trace"] = digest_of(study / "t2.safetensors")
        write_tensors(study / f"{name}_t2.safetensors", trees, kind="bank", provenance={}, meta=facts)
    (row,) = _check(study, 2, [{"strategy": "merged_dedup", "drafters": list(NAMES)}])["rows"]
    assert row["num_equal_texts"] < row["num_texts"] == 4
    assert len(row["divergences"]) == row["num_texts"] - row["num_equal_texts"]
    assert row["num_compared_cycles"] < row["num_cycles"]


def test_bfloat16_reports_its_rate(study):
    (row,) = _check(study, 0, ROWS[:1], "--dtype", "bfloat16")["rows"]
    assert row["num_equal_texts"] + len(row["divergences"]) == row["num_texts"]


def test_what_does_not_belong_together_is_refused(study, tmp_path):
    write_tensors(tmp_path / "vocab.safetensors", {"token_ids": np.arange(6)}, kind="draft_vocab", provenance={})
    with pytest.raises(TapsError, match="not that of the banks, expected the whole vocabulary, found 6 tokens"):
        _check(study, 0, ROWS[:1], "--draft-vocab", str(tmp_path / "vocab.safetensors"))
    with pytest.raises(TapsError, match="not those of --bank"):
        _check(study, 0, ROWS[:1], "--drafter", f"third={study / 'math'}")


# --- comparison ------------------------------------------------------------------------------------------------------


def test_first_difference():
    recorded = np.array([5, 6, 7])
    assert first_difference(np.array([5, 6, 7]), recorded) is None
    assert first_difference(np.array([5, 9, 7]), recorded) == 1
    assert first_difference(np.array([5, 6]), recorded) == 2
    assert first_difference(np.array([5, 6, 7, 8]), recorded) == 3


def _text(answer):
    return RecordedText(
        id="q",
        turn=0,
        index=1,
        prompt=[1],
        answer=np.array(answer),
        max_new_tokens=9,
        sampling=Sampling(),
        draws=Draws(0, "q", 0),
    )


def _live(*cycles):
    return [
        Cycle(start=s, accepted=a, emitted=e, chosen=0, num_nodes=4, num_drafted=1, num_levels=0, score=0.0)
        for s, a, e in cycles
    ]


def _replayed(*cycles):
    """Cycles of answer 1, behind one of answer 0 that must not be looked at."""
    start, accepted, emitted = np.array([(0, 9, 9), *cycles]).T
    same = np.zeros(len(start), dtype=int)
    return Cycles(
        sequence=np.array([0, *[1] * len(cycles)]),
        cycle=same,
        start=start,
        accepted=accepted,
        emitted=emitted,
        chosen=same,
        num_nodes=same,
        num_drafted=same,
        num_levels=same,
        score=same,
    )


def test_cycles_are_compared_one_by_one():
    text = _text([3, 4, 5, 6, 7, 8])
    replayed = _replayed((0, 1, 2), (2, 2, 3))
    assert compare_cycles(text, text.answer, _live((0, 1, 2), (2, 2, 3)), replayed) == (2, [])
    count, different = compare_cycles(text, text.answer, _live((0, 1, 2), (2, 0, 1), (3, 1, 2)), replayed)
    assert count == 3
    assert [item["cycle"] for item in different] == [2, 3]
    assert different[0]["live"] == {"start": 2, "accepted": 0, "emitted": 1, "chosen": 0}
    assert different[0]["replay"]["accepted"] == 2
    assert different[1]["replay"] is None


def test_cycles_behind_a_divergence_are_not_compared():
    text = _text([3, 4, 5, 6, 7, 8])
    replayed = _replayed((0, 1, 2), (2, 2, 3))
    tokens = np.array([3, 4, 5, 6, 9, 9])  # parts from the text in the second cycle
    assert compare_cycles(text, tokens, _live((0, 1, 2), (2, 1, 2), (4, 0, 1)), replayed) == (1, [])
    tokens = np.array([3, 4, 9])  # ... in the first
    assert compare_cycles(text, tokens, _live((0, 1, 2)), replayed) == (0, [])
