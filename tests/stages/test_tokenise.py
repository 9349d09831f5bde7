"""Token lists of a corpus: everything accounted for, the same order at every size."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps import tokenise
from taps.data.chat import ChatTokenizer
from taps.data.mixtures import seeded_order
from taps.plumbing.artefacts import read_json, read_tensors, write_jsonl
from taps.plumbing.errors import TapsError
from taps.study.schema import load_schema
from tests.support.chat_fixtures import CHATML, make_tokenizer, save_target


def conversation(i: int, question: str = "What?", answer: str = "four") -> dict:
    turns = [{"role": "user", "text": question}, {"role": "assistant", "text": f"{answer} {i}"}]
    return {"id": f"row{i}", "turns": turns}


CORPUS = [conversation(i) for i in range(30)] + [
    conversation(30, answer="<|im_end|>"),
    {"id": "row31", "turns": [{"role": "assistant", "text": "hello"}]},
    conversation(32, question="four " * 200),
]


@pytest.fixture(scope="module")
def chat():
    return ChatTokenizer(make_tokenizer("chatml"))


def test_reasons_and_examples(chat):
    selection = tokenise.select(CORPUS, chat, seed=0, max_length=128)
    assert len(selection.rows) == selection.audit.kept == 30
    assert selection.audit.dropped == {
        "special_token_in_text": {"count": 1, "example": "row30"},
        "refused_by_template": {"count": 1, "example": "row31"},
        "no_supervised_token": {"count": 1, "example": "row32"},
    }


@settings(deadline=None, max_examples=30)
@given(sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)), unit=st.sampled_from(["max_rows", "max_tokens"]))
def test_a_larger_size_extends_a_smaller_one_and_all_rows_are_counted(chat, sizes, unit):
    scale = 1 if unit == "max_rows" else 40
    small, large = (
        tokenise.select(CORPUS, chat, seed=3, max_length=128, **{unit: size * scale}) for size in sorted(sizes)
    )
    assert large.ids[: len(small.ids)] == small.ids
    assert small.audit.read == large.audit.read == len(CORPUS)
    if unit == "max_rows":
        assert len(small.rows) == min(min(sizes), 30)
    else:
        lengths = [len(row.tokens) for row in small.rows]
        assert sum(lengths[:-1]) < min(sizes) * scale  # nothing is taken beyond the size
        assert sum(lengths) >= min(sizes) * scale or len(small.rows) == 30


def test_order_depends_on_ids_and_seed_only(chat):
    ids = [row["id"] for row in CORPUS]
    order = [ids[i] for i in seeded_order(ids, 0)]
    assert order == [ids[::-1][i] for i in seeded_order(ids[::-1], 0)]
    assert [id_ for id_ in order if id_ != "row5"] == [
        [i for i in ids if i != "row5"][k] for k in seeded_order([i for i in ids if i != "row5"], 0)
    ]
    assert order != [ids[i] for i in seeded_order(ids, 1)]


def test_stage_writes_tokens_and_audit(tmp_path, chat):
    target = save_target(tmp_path / "target", "chatml")
    write_jsonl(tmp_path / "c.jsonl", CORPUS, kind="corpus", provenance={})
    arguments = ["--target", target, "--corpus", tmp_path / "c.jsonl", "--max-length", 128, "--max-rows", 10]
    arguments += ["--seed", 0, "--output", tmp_path / "c.safetensors", "--audit", tmp_path / "audit.json"]
    tokenise.main([str(argument) for argument in arguments])
    tensors, meta = read_tensors(tmp_path / "c.safetensors", kind="tokens", framework="np")
    assert {name: array.dtype for name, array in tensors.items()} == {
        "tokens": np.int32,
        "supervised": np.uint8,
        "offsets": np.int64,
    }
    assert len(meta["ids"]) == 10 == len(tensors["offsets"]) - 1
    assert tensors["offsets"][-1] == len(tensors["tokens"]) == len(tensors["supervised"])
    by_id = {row["id"]: row["turns"] for row in CORPUS}
    for i, id_ in enumerate(meta["ids"]):
        (row,) = chat.encode([by_id[id_]], max_length=128)
        rows = slice(*tensors["offsets"][i : i + 2])
        assert tensors["tokens"][rows].tolist() == row.tokens.tolist()
        assert tensors["supervised"][rows].tolist() == row.supervised.tolist()
    config = json.loads((target / "config.json").read_text())
    assert (meta["vocab_size"], meta["eos_ids"]) == (config["vocab_size"], [config["eos_token_id"]])
    assert meta["template_digest"] == chat.template_digest
    audit = read_json(tmp_path / "audit.json", kind="audit")
    assert audit["read"] == len(CORPUS) == audit["kept"] + sum(entry["count"] for entry in audit["dropped"].values())
    assert audit["dropped"]["beyond_size"]["count"] >= 20


def test_an_unusable_corpus_is_one_clear_error(tmp_path):
    target = save_target(tmp_path / "target", "chatml")
    write_jsonl(tmp_path / "c.jsonl", CORPUS[30:32], kind="corpus", provenance={})
    arguments = ["--target", target, "--corpus", tmp_path / "c.jsonl", "--max-length", 8, "--seed", 0]
    arguments += ["--output", tmp_path / "o.safetensors", "--audit", tmp_path / "audit.json"]
    with pytest.raises(TapsError, match=r"no conversation can be used \(c.jsonl: read 2.*special_token_in_text 1"):
        tokenise.main([str(argument) for argument in arguments])
    assert not (tmp_path / "o.safetensors").exists()


# --- what a chat template loses --------------------------------------------------------------------------------------

REFUSING = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHATML
LAST_ONLY = CHATML.replace(
    "message.content +", "(message.content if loop.last or message.role != 'assistant' else '') +"
)


def with_system(row: dict) -> dict:
    return {**row, "turns": [{"role": "system", "text": "What?"}, *row["turns"]]}


def run_stage(folder: Path, template: str, rows: list[dict], *flags: str) -> dict:
    """Returns the audit of the stage run on rows under a template."""
    target = save_target(folder / "target", "chatml", template=template)
    write_jsonl(folder / "c.jsonl", rows, kind="corpus", provenance={})
    arguments = ["--target", target, "--corpus", folder / "c.jsonl", "--max-length", 256, "--seed", 0, *flags]
    arguments += ["--output", folder / "c.safetensors", "--audit", folder / "audit.json"]
    tokenise.main([str(argument) for argument in arguments])
    return read_json(folder / "audit.json", kind="audit")


PLAIN = [conversation(i) for i in range(10)]


@pytest.mark.parametrize(
    ("num_refused", "flags", "outcome"),
    [
        (0, (), "quiet"),
        (1, (), "quiet"),
        (2, (), "warns"),
        (5, (), "warns"),
        (6, (), "stops"),
        (1, ("--max-template-drop", "0"), "stops"),
        (9, ("--max-template-drop", "1"), "warns"),
        (9, ("--max-template-drop", "1", "--max-rows", "1"), "warns"),
    ],
)
def test_a_template_that_drops_much_stops_the_run(tmp_path, capsys, num_refused, flags, outcome):
    rows = [with_system(row) for row in PLAIN[:num_refused]] + PLAIN[num_refused:]
    if outcome == "stops":
        with pytest.raises(TapsError, match=r"by the chat template, .*refused_by_template \d.*max_template_drop"):
            run_stage(tmp_path, REFUSING, rows, *flags)
        assert not (tmp_path / "c.safetensors").exists()
        return
    run_stage(tmp_path, REFUSING, rows, *flags)
    assert ("warning" in capsys.readouterr().err) is (outcome == "warns")


def test_answers_that_a_template_leaves_out_are_counted_and_warned_of(tmp_path, capsys):
    longer = [{**row, "turns": row["turns"] * 2} for row in PLAIN[:4]]
    audit = run_stage(tmp_path, LAST_ONLY, longer + PLAIN[4:])
    assert audit["kept"] == 10
    assert any(note.startswith("4 of the kept: only its last answers supervised") for note in audit["notes"])
    assert "4 of 10 conversations have only its last answers supervised" in capsys.readouterr().err


def test_remedies_name_keys_that_there_are():
    target = load_schema()["properties"]["target"]["properties"]
    for key in ("chat_template", "template_options", "max_template_drop", "date"):
        assert key in target
