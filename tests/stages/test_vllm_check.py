"""Replay's chains against a server's counters: our live engine in its place, and vLLM itself where there is one."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from taps import vllm_check
from taps.decoding.engine import decode
from taps.decoding.live_drafter import LiveDrafter
from taps.decoding.strategy import Options, find
from taps.model.checkpoint import load_drafter
from taps.model.target import load_target
from taps.model.target_head import load_target_head
from taps.plumbing.artefacts import read_json, write_jsonl
from taps.plumbing.errors import TapsError
from tests.support.live_fixtures import WORDS, save_drafters, save_word_target

CHAIN, NEW = 3, 20
VLLM = os.environ.get("TAPS_VLLM_PYTHON") or (sys.executable if importlib.util.find_spec("vllm") else None)
"""An interpreter that has vLLM, if there is one."""

Serve = Callable[[Path, Mapping[str, Any]], dict[str, Any]]


def live_server(_: Path, order: Mapping[str, Any]) -> dict[str, Any]:
    """Serves an order with our own engine: chains are drafted and verified token by token, from the exported folder."""
    folder = Path(order["target"])
    target, head = load_target(folder), load_target_head(folder)
    model = load_drafter(Path(order["drafter"]), target_config=head.config)
    drafter = LiveDrafter(model, head, depth=order["num_draft_tokens"] - 1, top_k=1)
    texts = []
    for prompt in order["prompts"]:
        done = decode(
            target,
            [drafter],
            prompt,
            strategy=find("single", live=True),
            options=Options(num_draft_tokens=order["num_draft_tokens"]),
            max_new_tokens=order["max_new_tokens"] + order["num_draft_tokens"],
            stop_ids=(),
        )
        accepted = [cycle.accepted for cycle in done.cycles if cycle.start < order["max_new_tokens"] - 1]
        texts.append(
            {
                "tokens": done.tokens[: order["max_new_tokens"]].tolist(),
                "num_cycles": len(accepted),
                "accepted_by_position": [sum(a > place for a in accepted) for place in range(CHAIN)],
            }
        )
    return {"vllm": "ours", "texts": texts}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Returns the flags of a check over a random target of few words, which random drafters now and then foresee."""
    folder = tmp_path_factory.mktemp("served")
    save_word_target(
        folder / "target", seed=5, sizes={"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}
    )
    flags = save_drafters(folder, folder / "target", ["math", "chat"])
    for name, start in (("a", 1), ("b", 4)):
        prompts = [
            {"id": f"{name}{n}", "category": None, "turns": [" ".join(WORDS[start + n : start + n + 4]), "a"]}
            for n in range(4)
        ]
        write_jsonl(folder / f"{name}.jsonl", prompts, kind="prompts", provenance={})
        flags += ["--prompts", str(folder / f"{name}.jsonl")]
    flags += ["--num-prompts", "3", "--max-new-tokens", str(NEW), "--num-draft-tokens", str(CHAIN)]
    return ["--target", str(folder / "target"), *flags]


def check(study: list[str], output: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setattr(vllm_check, "serve", serve)
    try:
        vllm_check.main([*study, "--output", str(output)])
    finally:
        monkeypatch.undo()
    return read_json(output, kind="vllm_check")["rows"]


def is_worth_comparing(row: Mapping[str, Any]) -> bool:
    """Returns whether all lengths of acceptance occur, and rejections at all."""
    counted = row["replay"]
    return counted["accepted_by_position"][-1] > 0 and counted["num_accepted"] < CHAIN * counted["num_cycles"]


def test_replay_counts_what_a_live_server_counts(study, tmp_path, monkeypatch, capsys):
    rows = check(study, tmp_path / "report.json", live_server, monkeypatch)
    assert [row["drafter"] for row in rows] == ["math", "chat"]
    for row in rows:
        assert row["num_texts"] == 6
        assert row["vllm"] == row["replay"]
        assert row["other_texts"] == row["other_counters"] == []
    assert any(map(is_worth_comparing, rows))
    assert "texts that differ: none, with other counters: none of 6" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["other_texts", "other_counters"])
def test_what_differs_is_named_and_fails(study, tmp_path, monkeypatch, what):
    def serve(python: Path, order: Mapping[str, Any]) -> dict[str, Any]:
        answer = live_server(python, order)
        changed = answer["texts"][4]
        if what == "other_texts":
            changed["tokens"][-1] += 1
        else:
            changed["accepted_by_position"][0] += 1
        return answer

    with pytest.raises(TapsError, match="vLLM and replay differ"):
        check(study, tmp_path / "report.json", serve, monkeypatch)
    for row in read_json(tmp_path / "report.json", kind="vllm_check")["rows"]:
        assert row[what] == [4]
        assert not row[{"other_texts": "other_counters", "other_counters": "other_texts"}[what]]


def test_a_server_that_fails_is_one_line(study, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'Traceback ...' >&2\necho \"No module named 'vllm'\" >&2\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(TapsError, match=r"--python .*: vLLM failed, found No module named 'vllm'; .*import vllm"):
        vllm_check.main([*study, "--python", str(python), "--output", str(tmp_path / "report.json")])
    assert not (tmp_path / "report.json").exists()


def test_prompts_without_room_for_an_answer_are_left_out(study, tmp_path, monkeypatch):
    served: list[Mapping[str, Any]] = []

    def serve(python: Path, order: Mapping[str, Any]) -> dict[str, Any]:
        served.append(order)
        return live_server(python, order)

    room = 128 - NEW - CHAIN
    lengths = (room - 1, room + 8)
    prompts = [{"id": str(n), "category": None, "turns": [" ".join(["a"] * (n - 1))]} for n in lengths]
    long = tmp_path / "long.jsonl"
    write_jsonl(long, prompts, kind="prompts", provenance={})
    flags = [word for word in study if not word.endswith(("a.jsonl", "b.jsonl", "--prompts"))]
    check([*flags, "--prompts", str(long)], tmp_path / "report.json", serve, monkeypatch)
    assert {len(prompt) for order in served for prompt in order["prompts"]} == {room - 1}
    assert served[0]["max_length"] == 128
    write_jsonl(long, prompts[1:], kind="prompts", provenance={})
    with pytest.raises(TapsError, match="no prompt fits the target's context"):
        check([*flags, "--prompts", str(long)], tmp_path / "other.json", serve, monkeypatch)


@pytest.mark.slow
@pytest.mark.skipif(
    VLLM is None, reason="no vLLM here: see docs/serving.md, or name an interpreter in TAPS_VLLM_PYTHON"
)
def test_replay_counts_what_vllm_counts(study, tmp_path):
    report = tmp_path / "report.json"
    vllm_check.main([*study, "--python", str(VLLM), "--output", str(report)])
    content = read_json(report, kind="vllm_check")
    assert json.loads(report.read_text())["content"]["num_prompts"] == 6
    assert any(map(is_worth_comparing, content["rows"]))
