"""Features on disk: the rows that were written come back, and nothing foreign passes for them."""

import dataclasses
import re
import shlex
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from taps.model.feature_store import (
    MANIFEST_KIND,
    PART_KIND,
    FeatureStore,
    Manifest,
    finished_shard,
    plan_shards,
    write_manifest,
    write_shard,
)
from taps.plumbing.artefacts import write_json, write_tensors
from taps.plumbing.errors import ArtefactError
from taps.plumbing.provenance import digest_of

LENGTHS = [5, 1, 9, 4, 4, 12, 2]
HIDDEN = 8


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(length, HIDDEN, generator=generator) for length in LENGTHS]


def make_store(folder, rows, *, shard_tokens=10, kind=MANIFEST_KIND, **belongs_to):
    facts: dict[str, Any] = {
        "target": "t",
        "template": "c",
        "tokens": "k",
        "dtype": "float32",
        "batch_tokens": 64,
    } | belongs_to
    manifest = Manifest(hidden_size=HIDDEN, num_rows=len(rows), num_tokens=sum(map(len, rows)), **facts)
    shards = []
    for shard in plan_shards([len(row) for row in rows], shard_tokens):
        part = rows[shard.first_row : shard.first_row + shard.num_rows]
        shards.append(write_shard(folder, shard, part, manifest=manifest, provenance={}))
    manifest = dataclasses.replace(manifest, shards=tuple(shards))
    write_manifest(folder, manifest, kind=kind, provenance={})
    return manifest


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=40), shard_tokens=st.integers(1, 120))
def test_shards_tile_the_rows_and_close_when_full(lengths, shard_tokens):
    shards = plan_shards(lengths, shard_tokens)
    assert [row for shard in shards for row in shard.row_range] == list(range(len(lengths)))
    for shard in shards:
        held = [lengths[row] for row in shard.row_range]
        assert shard.num_tokens == sum(held)
        assert sum(held[:-1]) < shard_tokens
    assert all(shard.num_tokens >= shard_tokens for shard in shards[:-1])


def test_rows_come_back_as_bfloat16(tmp_path, rows):
    make_store(tmp_path, rows)
    store = FeatureStore(tmp_path)
    assert len(store) == len(LENGTHS)
    assert len(store.manifest.shards) > 2
    for index, row in enumerate(rows):
        assert store.row(index).dtype == torch.bfloat16
        assert torch.equal(store.row(index), row.to(torch.bfloat16))
    assert [len(row) for row in store.rows([5, 0, 5])] == [12, 5, 12]
    with pytest.raises(IndexError):
        store.row(len(rows))


def test_a_caller_may_write_into_its_row(tmp_path, rows):
    make_store(tmp_path, rows)
    store = FeatureStore(tmp_path)
    store.row(3).zero_()
    assert torch.equal(store.row(3), rows[3].to(torch.bfloat16))


def test_bytes_on_disk_stay_within_two_per_number_and_sixteen_per_token(tmp_path):
    rows = [torch.zeros(300, HIDDEN) for _ in range(20)]
    manifest = make_store(tmp_path, rows, shard_tokens=3000)
    on_disk = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert on_disk <= manifest.num_bytes
    assert on_disk <= (2 * HIDDEN + 16) * manifest.num_tokens


@pytest.mark.parametrize("harm", ["truncate", "flip", "foreign", "remove"])
def test_a_harmed_shard_is_named_with_the_command_that_rebuilds_it(tmp_path, rows, harm):
    manifest = make_store(tmp_path / "f", rows)
    path = tmp_path / "f" / manifest.shards[1].file
    match harm:
        case "truncate":
            path.write_bytes(path.read_bytes()[:-20])
        case "flip":
            path.write_bytes(path.read_bytes()[:-20] + b"x" * 20)
        case "foreign":
            make_store(tmp_path / "g", [row + 1 for row in rows])
            path.write_bytes((tmp_path / "g" / path.name).read_bytes())
        case "remove":
            path.unlink()
    store = FeatureStore(tmp_path / "f")
    named = re.escape(shlex.quote(str(tmp_path / "f")))
    with pytest.raises(ArtefactError, match=rf"{path.name}.*--force {named}$"):
        store.verify()
    recognised = finished_shard(tmp_path / "f", manifest.shards[1], manifest=manifest) is not None
    assert recognised == (harm == "foreign")  # another run's shard of the same tokens will do for a rerun
    with pytest.raises(ArtefactError, match=path.name):
        store.row(manifest.shards[1].first_row)
    assert torch.equal(store.row(0), rows[0].to(torch.bfloat16))  # its neighbours are as good as before


def test_an_intact_store_verifies(tmp_path, rows):
    make_store(tmp_path, rows)
    FeatureStore(tmp_path).verify()


def test_a_finished_shard_is_known_by_what_it_belongs_to(tmp_path, rows):
    manifest = make_store(tmp_path, rows)
    planned = plan_shards(LENGTHS, 10)
    assert [finished_shard(tmp_path, shard, manifest=manifest) for shard in planned] == list(manifest.shards)
    for change in ({"target": "other"}, {"tokens": "other"}, {"dtype": "bfloat16"}, {"batch_tokens": 65}):
        other = dataclasses.replace(manifest, **change)
        assert finished_shard(tmp_path, planned[0], manifest=other) is None


def test_a_part_is_no_store_and_an_edited_manifest_is_refused(tmp_path, rows):
    make_store(tmp_path / "part", rows, kind=PART_KIND)
    with pytest.raises(ArtefactError, match=r"expected features, found feature_part"):
        FeatureStore(tmp_path / "part")
    make_store(tmp_path / "f", rows)
    path = tmp_path / "f" / "manifest.json"
    path.write_text(path.read_text().replace('"hidden_size": 8', '"hidden_size": 9'))
    with pytest.raises(ArtefactError, match="changed or truncated since it was written"):
        FeatureStore(tmp_path / "f")


def test_features_of_another_corpus_template_or_target_are_refused(tmp_path, rows):
    target, tokens = tmp_path / "target", tmp_path / "tokens.safetensors"
    write_json(target / "provenance.json", {"source": 1}, kind="target", provenance={})
    write_tensors(
        tokens,
        {"tokens": np.zeros(sum(LENGTHS), np.int32), "offsets": np.cumsum([0, *LENGTHS])},
        kind="tokens",
        provenance={},
        meta={"template_digest": "c"},
    )
    right = {"target": digest_of(target), "tokens": digest_of(tokens), "template": "c"}
    make_store(tmp_path / "right", rows, **right)
    FeatureStore(tmp_path / "right").check_matches(tokens=tokens, target=target)
    for name in right:
        folder = tmp_path / f"other_{name}"
        make_store(folder, rows, **{**right, name: "other"})
        named = re.escape(shlex.quote(str(folder)))
        with pytest.raises(ArtefactError, match=rf"features of another {name}.*--force {named}$"):
            FeatureStore(folder).check_matches(tokens=tokens, target=target)
