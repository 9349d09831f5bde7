"""Files and targets that once went wrong, as they were handed over; each stands for a kind that other tests vary."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from taps import prepare_target, tokenise
from taps.plumbing.artefacts import read_json, read_tensors
from taps.plumbing.errors import TapsError
from tests.support.data_fixtures import dropped, run_corpus, run_prompts
from tests.support.shared_inputs import CASES

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the cases lie outside the repository")

CORPORA: dict[str, tuple[str, int, dict[str, int], str]] = {  # file -> reader, kept, dropped, part of a note
    "nullfill_turns.jsonl": ("sharegpt", 5, {}, ""),
    "nullfill_instr.jsonl": ("instruction", 5, {}, ""),
    "parts.jsonl": ("sharegpt", 5, {}, ""),
    "reasoning.jsonl": ("sharegpt", 3, {"empty_text": 1}, "3 of the kept: reasoning left out"),
    "devrole.jsonl": ("sharegpt", 5, {}, ""),
    "hugeint.jsonl": ("sharegpt", 2, {"invalid_json": 1}, ""),
    "utf16.json": ("sharegpt", 5, {}, ""),
    "chat.jsonl.gz": ("sharegpt", 5, {}, ""),
    "metamath.jsonl": ("instruction", 5, {}, ""),
    "promptcompletion.jsonl": ("instruction", 5, {}, ""),
}


def copied(name: str, folder: Path) -> Path:
    path = folder / name
    path.write_bytes((CASES / name).read_bytes())
    return path


@pytest.mark.parametrize("name", CORPORA)
def test_corpora(name, tmp_path):
    reader, kept, reasons, note = CORPORA[name]
    rows, audit = run_corpus(copied(name, tmp_path), reader=reader)
    assert (len(rows), dropped(audit)) == (kept, reasons)
    assert note in "; ".join(audit["notes"])
    if name == "devrole.jsonl":
        assert {row["turns"][0]["role"] for row in rows} == {"system"}


@pytest.mark.parametrize(("name", "message"), [("lfs.jsonl", "a Git-LFS pointer"), ("html.json", "an HTML page")])
def test_what_is_no_data_says_so(name, message, tmp_path):
    with pytest.raises(TapsError, match=message):
        run_corpus(copied(name, tmp_path))


@pytest.mark.parametrize(
    ("name", "reader", "kept"),
    [
        ("humaneval.jsonl", "question_jsonl", 5),
        ("humaneval.jsonl", "humaneval", 5),
        ("q_promptstr.jsonl", "question_jsonl", 4),
        ("q.jsonl", "question_jsonl", 3),
    ],
)
def test_prompts(name, reader, kept, tmp_path):
    rows, audit = run_prompts(reader, copied(name, tmp_path), output=tmp_path / "out.jsonl")
    assert (len(rows), audit["dropped"]) == (kept, {})
    assert {len(row["turns"]) for row in rows} == {2 if name == "q.jsonl" else 1}


# --- targets ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("targets")
    command = [sys.executable, str(CASES / "make_targets.py"), str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def tokens_of(source: Path, folder: Path, *flags: str) -> tuple[dict, dict, dict]:
    """Returns (tensors, meta, audit) of the cases' conversations for a target."""
    conversations = copied("conv.jsonl", folder)
    run_corpus(conversations)
    prepare_target.main(["--source", str(source), "--output", str(folder / "target"), *flags])
    arguments = ["--target", folder / "target", "--corpus", conversations.with_suffix(".out.jsonl")]
    arguments += ["--max-length", 256, "--seed", 0, "--output", folder / "t.safetensors", "--audit", folder / "t.json"]
    tokenise.main([str(argument) for argument in arguments])
    tensors, meta = read_tensors(folder / "t.safetensors", kind="tokens", framework="np")
    return tensors, meta, read_json(folder / "t.json", kind="audit")


@pytest.mark.slow
def test_a_template_that_rewrites_turns_keeps_the_last_ones(targets, tmp_path, capsys):
    _, _, audit = tokens_of(targets / "qwen3", tmp_path)
    assert (audit["kept"], audit["dropped"]) == (14, {})
    assert any("9 of the kept: only its last answers supervised" in note for note in audit["notes"])
    assert "warning: " in capsys.readouterr().err


@pytest.mark.slow
def test_thinking_is_taught_only_where_it_is_on(targets, tmp_path):
    counts = {}
    for name, flags in {"on": (), "off": ("--template-option", "enable_thinking=false")}.items():
        (tmp_path / name).mkdir()
        tensors, _, _ = tokens_of(targets / "qwen3", tmp_path / name, *flags)
        counts[name] = int(tensors["supervised"].sum())
    assert counts["off"] < counts["on"]


@pytest.mark.slow
def test_a_template_that_writes_the_date_gives_equal_tokens_on_any_day(targets, tmp_path):
    found = []
    for name, flags in {"a": (), "b": (), "c": ("--date", "2025-01-02")}.items():
        (tmp_path / name).mkdir()
        tensors, meta, _ = tokens_of(targets / "dated", tmp_path / name, *flags)
        found.append((tensors["tokens"].tolist(), meta["template_digest"]))
    assert found[0] == found[1]
    assert found[0][0] != found[2][0]
    assert found[0][1] != found[2][1]


@pytest.mark.slow
def test_the_end_of_turn_that_a_template_writes_ends_answers(targets, tmp_path):
    _, meta, _ = tokens_of(targets / "llama3_old", tmp_path)
    assert meta["eos_ids"] == [0, 1]
