"""Files between stages: whole or not there, known again, and never silently wrong."""

from __future__ import annotations

import json
import re
import shlex
import socket
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.plumbing.artefacts import (
    read_envelope,
    read_json,
    read_jsonl,
    read_tensors,
    write_json,
    write_jsonl,
    write_tensors,
)
from taps.plumbing.atomic import write_text
from taps.plumbing.errors import ArtefactError
from taps.plumbing.folder_records import check_folder
from taps.plumbing.provenance import digest_of, provenance, provenance_of
from tests.support.artefact_shapes import ARRAYS, CONTENT, MADE, ROWS, SHAPES, Shape, each_shape, write_table


def expect_refusal(shape: Shape, path: Path) -> str:
    """Returns the one line that reading `path` ends with; it names the file and how to make it again."""
    with pytest.raises(ArtefactError) as caught:
        shape.read(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert message.endswith(f"rebuild it with: snakemake --cores 1 --force {shlex.quote(str(path))}")
    assert "\n" not in message
    return message


@each_shape
def test_what_was_written_is_read(tmp_path: Path, shape: Shape) -> None:
    shape.write(tmp_path / shape.name, "example")
    shape.write(tmp_path / "again" / shape.name, "example")
    found = shape.read(tmp_path / shape.name)
    assert found == shape.read(tmp_path / "again" / shape.name)
    arrays = {name: array.tolist() for name, array in ARRAYS.items()}
    assert found in (ROWS, CONTENT, (arrays, {"ids": ["a"]})) or sorted(found["accepted"]) == [*range(20)]
    for file in tmp_path.glob("*.*"):
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


@each_shape
@pytest.mark.parametrize("kept", [0, 1, 7, 8, 9, 0.5, -8, -1], ids=lambda kept: f"first {kept}")
def test_truncated(tmp_path: Path, shape: Shape, kept: float) -> None:
    path = tmp_path / "of a study" / shape.name
    shape.write(path, "example")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept) if isinstance(kept, float) else kept])
    if shape.name == "calibration.json" and kept == -1:
        assert shape.read(path) == CONTENT  # only the last line break is gone
    else:
        expect_refusal(shape, path)


@each_shape
@settings(deadline=None)  # the first example imports what reads tables
@given(data=st.data())
def test_a_changed_byte_is_seen_or_changes_nothing(shape: Shape, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / shape.name
        shape.write(path, "example")
        content, whole = shape.read(path), bytearray(path.read_bytes())
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place] ^= data.draw(st.integers(1, 255))
        path.write_bytes(whole)
        try:
            assert shape.read(path) == content
        except ArtefactError as error:
            if str(path) not in str(error):
                raise


def test_a_changed_number_of_a_table_is_seen(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "cycles.parquet"
    write_table(path, "replay")
    column = pq.ParquetFile(path).metadata.row_group(0).column(pq.read_schema(path).names.index("score"))
    assert column.path_in_schema == "score"
    whole = bytearray(path.read_bytes())
    whole[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 3] ^= 1
    path.write_bytes(whole)
    assert "changed or truncated" in expect_refusal(SHAPES[3], path)


@each_shape
@pytest.mark.parametrize(
    "content",
    [b"hello", b"\0" * 64, b"[1, 2]", b'{"kind": "example"}', b"null", b"\xff\xfe", struct.pack("<Q", 2) + b"[]"],
    ids=["text", "zeros", "list", "no content", "null", "not UTF-8", "list as header"],
)
def test_foreign(tmp_path: Path, shape: Shape, content: bytes) -> None:
    shape.write(tmp_path / shape.name, "example")  # a sidecar, where there is one, stays
    (tmp_path / shape.name).write_bytes(content)
    expect_refusal(shape, tmp_path / shape.name)


def test_files_of_other_programs_in_our_formats(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    tensors, rows = tmp_path / "a.safetensors", tmp_path / "b.jsonl"
    save_file(ARRAYS, tensors)
    with pytest.raises(
        ArtefactError, match="not written by taps, expected an artefact of kind trace; rebuild it with: "
    ):
        read_tensors(tensors, kind="trace")
    save_file(ARRAYS, tensors, metadata={"taps": "not ours"})
    with pytest.raises(ArtefactError, match=r"a\.safetensors: .*; rebuild it with: "):
        read_envelope(tensors, kind="trace")
    rows.write_text('{"id": 1}\n')
    with pytest.raises(ArtefactError, match=r"b\.jsonl\.provenance\.json: missing; rebuild it with: .*/b\.jsonl'?$"):
        read_jsonl(rows, kind="corpus")


@each_shape
def test_another_kind(tmp_path: Path, shape: Shape) -> None:
    shape.write(tmp_path / shape.name, "other")
    message = expect_refusal(shape, tmp_path / shape.name)
    assert re.search(r"another kind of file, expected (example|replay), found other", message)


@each_shape
def test_missing(tmp_path: Path, shape: Shape) -> None:
    if shape.name.endswith(".parquet"):
        pytest.skip("tables are looked for in folders: tests/analysis/test_results.py")
    assert ": missing; " in expect_refusal(shape, tmp_path / shape.name)


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[]", b"{", b'{"kind": "example"}', b"\xff"], ids=str)
def test_rows_without_a_good_sidecar(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "corpus.jsonl"
    write_jsonl(path, ROWS, kind="example", provenance=MADE)
    sidecar = tmp_path / "corpus.jsonl.provenance.json"
    sidecar.unlink() if content is None else sidecar.write_bytes(content)
    expect_refusal(SHAPES[1], path)


def test_the_remedy_for_a_file_of_a_folder_makes_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my features"
    write_json(folder / "manifest.json", {}, kind="features", provenance=MADE)
    for path in (folder / "shard-0.safetensors", folder / "manifest.json"):
        with pytest.raises(ArtefactError, match=f"--force '{re.escape(str(folder))}'$"):
            read_tensors(path, kind="shard")


def test_the_remedy_names_the_study_that_the_workflow_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPS_SNAKEMAKE_OPTIONS", "--replace-workflow-config --configfile 'my study.yaml'")
    with pytest.raises(ArtefactError) as caught:
        read_json(tmp_path / "cost.json", kind="cost")
    options = "--replace-workflow-config --configfile 'my study.yaml' --force"
    assert str(caught.value).endswith(f"snakemake --cores 1 {options} {shlex.quote(f'{tmp_path}/cost.json')}")


def test_a_wanted_tensor_is_not_there(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", ARRAYS, kind="bank", provenance=MADE)
    with pytest.raises(ArtefactError, match=r"lacks the tensors parents, depths; rebuild"):
        read_tensors(tmp_path / "a.safetensors", kind="bank", names=["tokens", "parents", "depths"])


# --- models ----------------------------------------------------------------------------------------------------------

HARMS: dict[str, Callable[[bytes], bytes | None]] = {
    "edited": lambda data: data[:-2] + bytes([data[-2] ^ 1]) + data[-1:],
    "truncated": lambda data: data[:-1],
    "missing": lambda data: None,
}


def harm(path: Path, how: str) -> None:
    data = HARMS[how](path.read_bytes())
    path.unlink() if data is None else path.write_bytes(data)


@pytest.mark.parametrize("how", HARMS)
def test_a_drafter_with_harmed_weights_is_refused(tmp_path: Path, how: str) -> None:
    from taps.model.checkpoint import load_drafter, save_drafter
    from tests.support.draft_models import CONFIG, tiny_drafter

    folder = tmp_path / "math"
    save_drafter(folder, tiny_drafter()[0].state_dict(), CONFIG, provenance=MADE)
    load_drafter(folder)
    harm(folder / "model.safetensors", how)
    named = re.escape(shlex.quote(str(folder)))
    with pytest.raises(ArtefactError, match=rf"model\.safetensors: .*; rebuild it with: .* --force {named}$"):
        load_drafter(folder)


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "chat_template.jinja"])
def test_a_target_with_a_harmed_file_is_refused(tmp_path: Path, name: str, how: str) -> None:
    from taps.model.target import load_target
    from taps.model.target_folder import finish_target, save_model
    from taps.tiny_target import byte_tokenizer, tiny_llama

    tokenizer = byte_tokenizer(["one plus one is two"] * 9)
    save_model(tiny_llama(len(tokenizer)), tokenizer, tmp_path)
    finish_target(tmp_path, stage="taps.test", facts={})
    load_target(tmp_path)
    harm(tmp_path / name, how)
    folder = re.escape(shlex.quote(str(tmp_path)))
    with pytest.raises(ArtefactError, match=rf"{re.escape(name)}: .*; rebuild it with: .* --force {folder}$"):
        load_target(tmp_path)


# --- digests and provenance ------------------------------------------------------------------------------------------


def test_a_digest_is_of_the_content_alone(tmp_path: Path) -> None:
    for number, made in enumerate((MADE, {"stage": "taps.other", "git": "0123"})):
        write_tensors(tmp_path / f"{number}.safetensors", ARRAYS, kind="trace", provenance=made)
        write_jsonl(tmp_path / f"{number}.jsonl", ROWS, kind="corpus", provenance=made)
        write_json(tmp_path / f"{number}.json", CONTENT, kind="cost", provenance=made)
        write_text(tmp_path / f"{number}.txt", "plain")
    for suffix in ("safetensors", "jsonl", "json", "txt"):
        first, second = (tmp_path / f"{number}.{suffix}" for number in (0, 1))
        assert digest_of(first) == digest_of(second)
        assert re.fullmatch("[0-9a-f]{64}", digest_of(first))
    with pytest.raises(ArtefactError, match="nowhere: missing"):
        digest_of(tmp_path / "nowhere")
    before = digest_of(tmp_path)  # a folder that is nobody's artefact: what lies in it
    write_text(tmp_path / "0.txt", "another")
    assert digest_of(tmp_path) != before


@pytest.mark.parametrize("target", ["provenance.json", "nowhere"], ids=["circle", "dangling"])
def test_a_record_that_is_a_link_to_nothing_is_a_broken_one(tmp_path: Path, target: str) -> None:
    """Not the same as none at all, which folders and files have that are a user's own."""
    (tmp_path / "x.jsonl").write_text("{}")
    (tmp_path / "x.jsonl.provenance.json").symlink_to("x.jsonl." + target)
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "provenance.json").symlink_to(target)
    for broken in (
        lambda: digest_of(tmp_path / "x.jsonl"),
        lambda: check_folder(folder, kind="target"),
        lambda: digest_of(folder),
        lambda: provenance_of(folder, kind="target"),
    ):
        with pytest.raises((ArtefactError, OSError)):
            broken()


def test_provenance_names_causes_and_neither_times_nor_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY"):
        monkeypatch.setenv(name, "hf_secretsecretsecret")
    monkeypatch.setattr("time.time", lambda: 1234567890.0)
    write_text(tmp_path / "in.txt", "input")
    made = provenance(stage="taps.trace", inputs={"prompts": tmp_path / "in.txt"}, seed=3)
    assert made["inputs"] == {"prompts": digest_of(tmp_path / "in.txt")}
    assert (made["stage"], made["seed"]) == ("taps.trace", 3)
    assert made["versions"]["numpy"] == np.__version__
    assert re.fullmatch(r"[0-9a-f]{12}(\+changes)?|unknown", made["git"])
    text = json.dumps(made)
    assert "secret" not in text
    assert str(tmp_path) not in text
    assert socket.gethostname() not in re.findall(r"\w+", text)
    assert not re.search(r"\d{4}-\d\d-\d\d|\d\d:\d\d|1234567890", text)
    monkeypatch.setattr("time.time", lambda: 2345678901.0)
    assert provenance(stage="taps.trace", inputs={"prompts": tmp_path / "in.txt"}, seed=3) == made
