"""Tests of taps.replay on random banks, and of what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from taps.decoding.recording import load_recording
from taps.decoding.strategy import STRATEGIES
from taps.decoding.variants import parse_variants
from taps.plumbing.artefacts import write_json
from taps.plumbing.errors import TapsError
from taps.replay import main
from tests.support.random_trees import Recorded
from tests.support.report_fixtures import COST

LENGTHS = [9, 0, 14, 1, 2, 11]
IDS, TURNS = ["q1", "q1", "q0", "q0", "q2", "q3"], [0, 1, 0, 1, 0, 0]
ALL: list[dict[str, Any]] = [
    {"strategy": name, "drafters": ["math"] if strategy.one_drafter else ["math", "chat"]}
    for name, strategy in STRATEGIES.items()
]


@pytest.fixture
def recorded() -> Recorded:
    return Recorded(np.random.default_rng(7), lengths=LENGTHS, num_nodes=8)


def _run(folder: Path, recorded: Recorded, strategies: object, *flags: str, output: str = "out.parquet") -> Path:
    trace, banks = recorded.write(folder, ("math", "chat"), ids=IDS, turns=TURNS)
    main(
        [
            *("--trace", str(trace)),
            *(flag for name, path in banks.items() for flag in ("--bank", f"{name}={path}")),
            *("--strategies", strategies if isinstance(strategies, str) else json.dumps(strategies)),
            *("--num-draft-tokens", "4", "--method", "eagle2", "--benchmark", "gsm8k"),
            *("--output", str(folder / output), *flags),
        ]
    )
    return folder / output


def _files(folder: Path) -> list[str]:
    """Writes a calibration, costs and a router; returns the flags that name them."""
    drafters = {"math": {"inverse_temperature": 0.7}, "chat": {"inverse_temperature": 1.2}}
    contents: dict[str, Any] = {
        "calibration": {"drafters": drafters},
        "cost": COST,
        "router": {"weights": {"math": [0.1, 1, 0, 0, 0], "chat": [0.0, 0, 1, 0, 0]}},
    }
    for name, content in contents.items():
        write_json(folder / f"{name}.json", content, kind=name, provenance={})
    return [word for name in contents for word in (f"--{name}", str(folder / f"{name}.json"))]


def test_every_strategy_covers_every_answer(tmp_path: Path, recorded: Recorded) -> None:
    frame = pd.read_parquet(_run(tmp_path, recorded, ALL, *_files(tmp_path)))
    assert list(frame["strategy"].cat.categories) == list(STRATEGIES)
    emitted = frame.groupby(["strategy", "sequence"], observed=True)["emitted"].sum().unstack()
    for sequence, length in enumerate(LENGTHS):
        if length > 1:
            assert (emitted[sequence] == length - 1).all()
        else:
            assert sequence not in emitted
    assert set(zip(frame["sequence"], frame["question"], frame["turn"], strict=True)) == {
        (0, "q1", 0),
        (2, "q0", 0),
        (4, "q2", 0),
        (5, "q3", 0),
    }


def test_the_file_says_what_it_holds(tmp_path: Path, recorded: Recorded) -> None:
    path = _run(tmp_path, recorded, ALL[:1])
    for file, kind in ((path, "replay"), (path.with_suffix(".nodes.parquet"), "replay_nodes")):
        envelope = json.loads(pq.read_schema(file).metadata[b"taps"])
        assert envelope["kind"] == kind
        assert (
            envelope["meta"].items()
            >= {
                "method": "eagle2",
                "benchmark": "gsm8k",
                "temperature": 0.0,
                "seed": 0,
                "depth": 2,
            }.items()
        )
        assert set(envelope["provenance"]["inputs"]) == {"trace", "bank.math", "bank.chat"}


def test_equal_inputs_give_equal_bytes(tmp_path: Path, recorded: Recorded) -> None:
    one, two = (_run(tmp_path, recorded, ALL, *_files(tmp_path), output=f"{name}.parquet") for name in "ab")
    assert one.read_bytes() == two.read_bytes()
    assert one.with_suffix(".nodes.parquet").read_bytes() == two.with_suffix(".nodes.parquet").read_bytes()


def test_trees_of_another_depth_are_views(tmp_path: Path, recorded: Recorded) -> None:
    rows = [
        {"strategy": "single", "drafters": ["math"], "num_draft_tokens": 4},
        *({"strategy": "single", "drafters": ["math"], "num_draft_tokens": 4, "depth": d} for d in (0, 2)),
    ]
    frame = pd.read_parquet(_run(tmp_path, recorded, rows))
    assert set(frame["tree_depth"]) == {0, 2}
    assert (frame.query("tree_depth == 0")["accepted"] <= 1).all()
    deep = frame.query("tree_depth == 2").reset_index(drop=True)
    first, second = deep.iloc[: len(deep) // 2], deep.iloc[len(deep) // 2 :].reset_index(drop=True)
    pd.testing.assert_frame_equal(first, second)  # the banks' own depth


@pytest.mark.parametrize(
    ("row", "flag"),
    [
        ({"strategy": "single_costed", "drafters": ["math"]}, "--cost"),
        ({"strategy": "routed_prompt", "drafters": ["math", "chat"]}, "--router"),
    ],
)
def test_what_a_strategy_needs_is_asked_for(tmp_path: Path, recorded: Recorded, row: Any, flag: str) -> None:
    with pytest.raises(TapsError, match=flag):
        _run(tmp_path, recorded, [row])


def test_a_depth_beyond_the_banks_is_refused(tmp_path: Path, recorded: Recorded) -> None:
    with pytest.raises(TapsError, match="depth 0 to 2"):
        _run(tmp_path, recorded, [{"strategy": "single", "drafters": ["math"], "depth": 3}])


def test_budgets(tmp_path: Path, recorded: Recorded) -> None:
    rows = [{"strategy": "single", "drafters": ["chat"], "num_draft_tokens": [2, 4, 8]}]
    frame = pd.read_parquet(_run(tmp_path, recorded, rows))
    assert (frame["num_nodes"] <= frame["num_draft_tokens"]).all()
    cycles = frame.groupby("num_draft_tokens").size()
    assert cycles[2] >= cycles[4] >= cycles[8]


def test_nodes_agree_with_the_cycles(tmp_path: Path, recorded: Recorded) -> None:
    path = _run(tmp_path, recorded, [{"strategy": "single", "drafters": ["math"], "num_draft_tokens": [4, 8]}])
    cycles = pd.read_parquet(path).query("num_draft_tokens == 4").set_index(["sequence", "cycle"])
    nodes = pd.read_parquet(path.with_suffix(".nodes.parquet"))
    assert set(nodes["num_draft_tokens"]) == {4}, "the default budget only"
    count = nodes.groupby(["sequence", "cycle", "kind"], observed=False)["count"].sum().unstack()
    pd.testing.assert_series_equal(
        count["accepted"], cycles["accepted"].loc[count.index], check_names=False, check_dtype=False
    )
    pd.testing.assert_series_equal(
        count.sum(axis=1), cycles["num_nodes"].loc[count.index], check_names=False, check_dtype=False
    )
    siblings = nodes.query("kind == 'rejected_sibling'").set_index(["sequence", "cycle"])
    assert (siblings["depth"] == cycles["accepted"].loc[siblings.index] + 1).all()
    at_the_end = cycles.query("emitted == accepted").index
    assert len(at_the_end) > 0, "the fixture has an accepted path that the text ends in"
    assert not siblings.index.isin(at_the_end).any(), "nobody judged the nodes behind the end"
    assert nodes["confidence"].between(0, 1 + 1e-6).all()
    assert (nodes["conditional_confidence"] >= nodes["confidence"] - 1e-6).all()


@pytest.mark.parametrize(
    ("strategies", "message"),
    [
        ("[{", "not JSON"),
        ('{"strategy": "single"}', "expected a list of objects"),
        ('[{"strategy": "single"}]', r"--strategies\[0\]: lacks drafters"),
        ('[{"strategy": "single", "drafters": ["math"], "budget": 3}]', "budget: unknown key"),
        ('[{"strategy": "single", "drafters": ["code"]}]', "single of code with 4 nodes: no --bank for code"),
        ('[{"strategy": "best", "drafters": ["math"]}]', "strategy 'best': unknown"),
        ('[{"strategy": "single", "drafters": ["math", "chat"]}]', "wrong number of drafters, expected one, found 2"),
        ('[{"strategy": "oracle", "drafters": ["math"]}]', "wrong number of drafters, expected two"),
        ('[{"strategy": "oracle", "drafters": ["math", "math"]}]', "expected two or more different ones"),
        ('[{"strategy": "single", "drafters": ["math"], "num_draft_tokens": [4, 4]}]', "4 nodes twice"),
    ],
)
def test_refuses_wrong_rows(strategies: str, message: str) -> None:
    with pytest.raises(TapsError, match=message):
        parse_variants(strategies, {"math": 0, "chat": 0}, 4)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"strategy": "single", "drafters": ["math"], "num_draft_tokens": 9}, "expected 1 to 8 nodes, found 9"),
        ({"strategy": "single_double", "drafters": ["math"], "num_draft_tokens": 5}, "expected 1 to 8 nodes, found 10"),
        (
            {"strategy": "merged_matched_calibrated", "drafters": ["math", "chat"]},
            "no inverse temperature of math, chat",
        ),
    ],
)
def test_refuses_what_the_inputs_do_not_give(tmp_path: Path, recorded: Recorded, row: object, message: str) -> None:
    with pytest.raises(TapsError, match=message):
        _run(tmp_path, recorded, [row])
    assert not (tmp_path / "out.parquet").exists()


def test_refuses_a_bank_without_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--bank", "math.safetensors"])
    assert "expected NAME=PATH" in capsys.readouterr().err


def test_refuses_a_bank_of_another_trace(tmp_path: Path, recorded: Recorded) -> None:
    (tmp_path / "other").mkdir()
    trace, _ = recorded.write(tmp_path, ("math", "chat"), ids=IDS, turns=TURNS)
    other = Recorded(np.random.default_rng(8), lengths=LENGTHS, num_nodes=8)
    _, banks = other.write(tmp_path / "other", ("math", "chat"), ids=IDS, turns=TURNS)
    with pytest.raises(TapsError, match="drafted along another text"):
        load_recording(trace, banks)


def test_refuses_banks_of_other_options(tmp_path: Path, recorded: Recorded) -> None:
    (tmp_path / "other").mkdir()
    trace, banks = recorded.write(tmp_path, ("math", "chat"), ids=IDS, turns=TURNS)
    _, deeper = recorded.write(tmp_path / "other", ("math", "chat"), ids=IDS, turns=TURNS, top_k=4)
    with pytest.raises(TapsError, match="drafted with other options"):
        load_recording(trace, {"math": banks["math"], "chat": deeper["chat"]})


def test_refuses_banks_of_another_sampling(tmp_path: Path, recorded: Recorded) -> None:
    trace, banks = recorded.write(tmp_path, ("math", "chat"), ids=IDS, turns=TURNS, sampling={"temperature": 1.0})
    with pytest.raises(TapsError, match="drafted for another sampling"):
        load_recording(trace, banks)


def test_answers_too_short_to_draft_give_an_empty_table(tmp_path: Path) -> None:
    recorded = Recorded(np.random.default_rng(1), lengths=[1] * len(IDS), num_nodes=8)
    assert len(pd.read_parquet(_run(tmp_path, recorded, ALL[:1]))) == 0
