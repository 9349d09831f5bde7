"""The stage `corpus`: files of every form become conversations, and the audit accounts for all records."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from taps import corpus
from taps.data.chat import ChatTokenizer
from taps.data.chat import Reason as ChatReason
from taps.plumbing.artefacts import read_json, read_jsonl
from taps.plumbing.errors import TapsError
from taps.plumbing.lineage import inputs_of
from taps.tiny_target import byte_tokenizer
from tests.support.data_fixtures import GOOD, chat, dropped, gpt, human, run_corpus, write_jsonl_file

SMALL = Path(__file__).parents[1] / "inputs" / "sharegpt_small.json"
A, B = (json.dumps(record) for record in GOOD)


def test_cut_is_reported(tmp_path):
    path = tmp_path / "in.json"
    path.write_text(f"[{A}, {B[:60]}")
    _, audit = run_corpus(path)
    assert "the file ends inside record 1; the 1 before it were read" in audit["notes"]


@pytest.mark.parametrize("content", ["", "[]", "[null]", "\ufeff", "{}", "\0\0"])
def test_nothing_usable_is_an_error_and_no_file(content, tmp_path):
    path = tmp_path / "in.json"
    path.write_text(content)
    with pytest.raises(TapsError, match=r"in\.json: no usable conversation, found in\.json: read \d, kept 0"):
        run_corpus(path)
    assert [file.name for file in tmp_path.iterdir()] == ["in.json"]


def test_the_wrong_reader_is_told_which_fields_there_are(tmp_path):
    path = write_jsonl_file(tmp_path / "in.jsonl", [{"question_text": "Hi", "best": "Hello."}])
    with pytest.raises(TapsError, match="fields of the first one: question_text, best; check --reader"):
        run_corpus(path, reader="instruction")


def test_several_files_and_a_folder(tmp_path):
    folder = tmp_path / "data [1]"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.json").write_text(f"[{A}]")
    (folder / "sub" / "b.jsonl.gz").write_bytes(gzip.compress(B.encode()))
    (folder / ".cache").mkdir()
    (folder / ".cache" / "c.json").write_text("[1]")
    (folder / "README.md").write_text("no data")
    (folder / "provenance.json").write_text("{}")
    flags = ["--reader", "hub", "--output", str(tmp_path / "o.jsonl"), "--audit", str(tmp_path / "a.json")]
    corpus.main([*flags, "--input", str(folder)])
    assert [row["id"] for row in read_jsonl(tmp_path / "o.jsonl", kind="corpus")] == ["before", "after"]
    corpus.main([*flags, "--input", str(folder / "sub" / "b.jsonl.gz"), "--input", str(folder / "a.json")])
    assert [row["id"] for row in read_jsonl(tmp_path / "o.jsonl", kind="corpus")] == ["after", "before"]


@pytest.mark.parametrize("stranger", ["README.md", "manifest.json", "provenance.json", "config.json"])
def test_a_folder_of_a_users_own_is_read_and_recorded_in_full(stranger, tmp_path):
    """Other people's folders have files that are called like records of ours, and stand for nothing."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.jsonl").write_text(A)
    (folder / stranger).write_text("{}")
    flags = ["--reader", "hub", "--output", str(tmp_path / "o.jsonl"), "--audit", str(tmp_path / "a.json")]
    digests = []
    for line in (A, B):
        (folder / "a.jsonl").write_text(line)
        corpus.main([*flags, "--input", str(folder)])
        digests.append(inputs_of(tmp_path / "o.jsonl", kind="corpus")["input_0"])
    assert digests[0] != digests[1]


@pytest.mark.parametrize("path", ["nowhere.json", "dangling.json", "a.json/b.json"])
def test_an_input_that_is_not_there_says_so(path, tmp_path):
    (tmp_path / "a.json").write_text(A)
    (tmp_path / "dangling.json").symlink_to("nowhere")
    with pytest.raises(TapsError, match=r"no such file or folder; fetch it with python -m taps\.fetch"):
        run_corpus(tmp_path / path)


def test_small_sharegpt_file_exercises_the_audit(tmp_path):
    output, audit = tmp_path / "c.jsonl", tmp_path / "a.json"
    corpus.main(["--reader", "sharegpt", "--input", str(SMALL), "--output", str(output), "--audit", str(audit)])
    content = read_json(audit, kind="audit")
    assert len(content["dropped"]) >= 8
    assert content["kept"] >= 90


def test_max_rows_keeps_the_first(tmp_path):
    rows, audit = run_corpus(
        write_jsonl_file(tmp_path / "in.json", [*GOOD, chat(human("Hi"), gpt("Hello."))]), "--max-rows", "2"
    )
    assert [row["id"] for row in rows] == ["before", "after"]
    assert "reading stopped after 2 kept conversations, as asked" in audit["notes"]


def test_parts_are_disjoint_and_make_up_the_file(tmp_path):
    path = write_jsonl_file(tmp_path / "in.json", [chat(human(f"Hi {'a' * i}"), gpt("Hello.")) for i in range(60)])
    first, audit = run_corpus(path, "--part", "0:0.5")
    second, _ = run_corpus(path, "--part", "0.5:1")
    texts = [{row["turns"][0]["text"] for row in rows} for rows in (first, second)]
    assert not texts[0] & texts[1]
    assert len(texts[0] | texts[1]) == 60
    assert 10 < len(first) < 50
    assert dropped(audit) == {"other_part": 60 - len(first)}


# --- generated -------------------------------------------------------------------------------------------------------


def generate(tmp_path: Path, rows: int, seed: int, *flags: str) -> list[dict]:
    output = tmp_path / "g.jsonl"
    source = ["--reader", "reasoning_gym", "--task", "gsm_symbolic", "--rows", str(rows), "--seed", str(seed)]
    corpus.main([*source, *flags, "--output", str(output), "--audit", str(tmp_path / "g.audit.json")])
    return read_jsonl(output, kind="corpus")


def test_generated_problems_extend_and_seeds_are_disjoint(tmp_path):
    few, many, other = generate(tmp_path, 20, 0), generate(tmp_path, 60, 0), generate(tmp_path, 60, 1)
    assert many[: len(few)] == few
    questions = [{row["turns"][0]["text"] for row in rows} for rows in (many, other)]
    assert not questions[0] & questions[1]
    assert all("####" in row["turns"][1]["text"] for row in many)


def test_chosen_templates_extend_and_are_among_all(tmp_path):
    few, many = (generate(tmp_path, rows, 0, "--templates", "0-9,20") for rows in (6, 20))
    assert many[: len(few)] == few
    assert len(many) == 20
    everything = {row["id"]: row for row in generate(tmp_path, 400, 0)}
    assert all(everything.get(row["id"], row) == row for row in many)


GENERATED = ["--reader", "reasoning_gym", "--rows", "3", "--task"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--reader", "sharegpt"], "--reader sharegpt: needs --input"),
        (["--reader", "sharegpt", "--input", "/nowhere.json"], "no such file or folder"),
        (["--reader", "reasoning_gym", "--rows", "3"], "needs --task and --rows"),
        (
            ["--reader", "reasoning_gym", "--rows", "3", "--task", "gsm_sym"],
            "not a task of reasoning-gym.*gsm_symbolic",
        ),
        (
            ["--reader", "reasoning_gym", "--rows", "3", "--task", "leg_counting", "--templates", "1"],
            "has no templates",
        ),
        (
            ["--reader", "reasoning_gym", "--rows", "3", "--task", "gsm_symbolic", "--templates", "32"],
            "none that works",
        ),
        (["--reader", "reasoning_gym", "--rows", "3", "--task", "gsm_symbolic", "--templates", "a"], "not numbers"),
        (["--reader", "sharegpt", "--input", "x", "--part", "0.5"], "not a part of a file"),
        (["--reader", "sharegpt", "--input", "x", "--part", "0.5:0.5"], "not a part of a file"),
        (["--reader", "sharegpt", "--input", "x", "--part", "nan:1"], "not a part of a file"),
    ],
)
def test_bad_flags(flags, message, tmp_path):
    with pytest.raises(TapsError, match=message):
        corpus.main([*flags, "--output", str(tmp_path / "o.jsonl"), "--audit", str(tmp_path / "a.json")])
    assert not list(tmp_path.iterdir())


# --- what the next stage makes of it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["What is <|im_end|>?", "A token."], ChatReason.SPECIAL_TOKEN_IN_TEXT),
        (["x" * 300, "Too late."], ChatReason.NO_SUPERVISED_TOKEN),
        (["Say it", "y" * 300], True),  # cut: supervised up to the limit
        (["Count: 1", "1 2 3"], False),
        (["ab", "\u0301bc é"], False),  # the answer's first character joins what stands before it
    ],
    ids=["special token", "question beyond the limit", "answer beyond the limit", "short", "combining"],
)
def test_awkward_conversations_as_tokens(texts, expected):
    tokenizer = ChatTokenizer(byte_tokenizer(["ab ab 1 2 3 é"] * 4))
    turns = [{"role": role, "text": text} for role, text in zip(("user", "assistant"), texts, strict=True)]
    (row,) = tokenizer.encode([turns], max_length=128)
    if isinstance(expected, ChatReason):
        assert row is expected
        return
    assert not isinstance(row, ChatReason)
    assert row.truncated is expected
    supervised = tokenizer.tokenizer.decode(row.tokens[row.supervised])
    assert (texts[1] + "<|im_end|>").startswith(supervised)
    assert (supervised == texts[1] + "<|im_end|>") is not expected
