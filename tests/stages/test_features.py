"""The target's features: those of a plain forward pass, whatever the batch, the shard count or an interruption."""

import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from taps import features, join_features
from taps.model.alignment import aligned_passes
from taps.model.batches import Conversations, RowId
from taps.model.drafter import DrafterConfig, DraftModel
from taps.model.feature_store import FeatureStore
from taps.model.features import OnlineFeatures, compute_features, head_agreement, length_batches
from taps.model.losses import LossWeights, draft_losses
from taps.model.target import load_target
from taps.model.target_head import load_target_head
from taps.plumbing.artefacts import write_tensors
from taps.plumbing.errors import TapsError
from tests.support.chat_fixtures import make_tokenizer

LENGTHS = [17, 3, 64, 40, 9, 25, 64, 5, 31, 12]


@pytest.fixture(scope="module")
def target_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("features") / "target"
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.2,  # logits of a few nats, as a trained model has
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    make_tokenizer("chatml").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def target(target_folder):
    return load_target(target_folder)


@pytest.fixture(scope="module")
def rows():
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, 256, (length,), generator=generator, dtype=torch.int32) for length in LENGTHS]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("tokens") / "math.safetensors"
    write_tokens(path, rows)
    return path


def write_tokens(path, rows):
    tensors = {"tokens": np.concatenate([row.numpy() for row in rows]), "offsets": np.cumsum([0, *map(len, rows)])}
    tensors["supervised"] = np.ones(len(tensors["tokens"]), dtype=np.uint8)
    meta = {"template_digest": "c", "ids": [f"row{i}" for i in range(len(rows))]}
    write_tensors(path, tensors, kind="tokens", provenance={}, meta=meta)


@pytest.fixture
def run(target_folder, tokens):
    def stage(output, *more):
        flags = ["--target", target_folder, "--tokens", tokens, "--shard-tokens", 60, "--output", output, *more]
        features.main([str(flag) for flag in flags])
        return output

    return stage


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.glob("shard-*")}


@given(lengths=st.lists(st.integers(1, 60), min_size=1, max_size=40), budget=st.integers(1, 200))
def test_batches_hold_every_row_once_within_the_budget(lengths, budget):
    batches = length_batches(lengths, budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= budget
    assert [lengths[i] for batch in batches for i in batch] == sorted(lengths, reverse=True)


def test_padding_and_neighbours_change_no_feature(target, rows):
    alone = [target.features(row[None].long())[0] for row in rows]
    together = compute_features(target, rows, batch_tokens=10_000)  # one batch, padded to 64
    for plain, batched in zip(alone, together, strict=True):
        assert batched.dtype == torch.bfloat16
        torch.testing.assert_close(batched, plain.to(torch.bfloat16), rtol=2**-7, atol=1e-6)  # a bit of bfloat16


def test_features_are_normed_states_that_the_head_turns_to_logits(target, target_folder, rows):
    head = load_target_head(target_folder)
    (found,) = compute_features(target, rows[2:3], batch_tokens=1)
    agreement = head_agreement(target, head, rows[2], found)
    assert agreement.num_positions == 64
    assert 0 < agreement.max_difference < 0.02  # bfloat16 rounding is seen, and is all that is seen
    assert agreement.num_equal_argmax >= 60
    with pytest.raises(TapsError, match=r"logits are not lm_head\(feature\)"):
        head_agreement(target, head, rows[2], found * 1.05)


def test_online_features_are_those_on_disk(run, tmp_path, target, tokens, rows):
    store = FeatureStore(run(tmp_path / "f"))
    online = OnlineFeatures(target, tokens)
    assert len(store) == len(online) == len(rows)
    asked = [4, 2, 9, 2]
    for offline, computed in zip(store.rows(asked), online.rows(asked), strict=True):
        torch.testing.assert_close(computed, offline, rtol=2**-7, atol=1e-6)
    assert torch.equal(online.row(3), online.rows([3])[0])


def test_online_losses_are_those_offline(run, tmp_path, target, target_folder, tokens):
    head = load_target_head(target_folder)
    torch.manual_seed(3)
    drafter = DraftModel(DrafterConfig.from_json(head.config))
    found = []
    for source in (FeatureStore(run(tmp_path / "f")), OnlineFeatures(target, tokens)):
        batch = Conversations({"math": tokens}, {"math": source}).batch([RowId("math", i) for i in (2, 3, 4)])
        passes = aligned_passes(drafter, head.embed(batch.next_tokens), batch.features, batch.lengths, num_passes=3)
        kept = torch.stack([states[batch.supervised] for states in passes])
        found.append(draft_losses(kept, batch.targets, head.head, LossWeights(top_k=1.0)))
    offline, online = found
    assert online.total.item() == pytest.approx(offline.total.item(), rel=1e-3)
    assert online.value == pytest.approx(offline.value, rel=1e-3)


def test_stage_writes_every_row_in_order_and_says_what_it_needs(run, tmp_path, target, target_folder, tokens, capsys):
    store = FeatureStore(run(tmp_path / "f"))
    out = capsys.readouterr().out
    assert f"{store.manifest.num_bytes / 1e6:,.1f} MB needed" in out
    assert re.search(r"against the target's logits at \d+ positions: largest difference 0\.0\d+", out)
    store.verify()
    store.check_matches(tokens=tokens, target=target_folder)
    assert len(store.manifest.shards) == 4
    assert [len(store.row(i)) for i in range(len(LENGTHS))] == LENGTHS
    assert store.manifest.num_tokens == sum(LENGTHS)
    assert sum(shard.num_positions_checked for shard in store.manifest.shards) > 100
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("num_shards", [2, 4, 7])  # 7: some jobs have nothing to do
def test_several_jobs_write_the_bytes_of_one(run, tmp_path, num_shards):
    one = run(tmp_path / "one")
    parts = [run(tmp_path / f"part{i}", "--shard", i, "--num-shards", num_shards) for i in reversed(range(num_shards))]
    flags = [flag for part in parts for flag in ("--shard", str(part))]
    join_features.main([*flags, "--output", str(tmp_path / "joined")])
    assert contents(tmp_path / "joined") == contents(one)
    joined = FeatureStore(tmp_path / "joined")
    assert joined.manifest == FeatureStore(one).manifest
    joined.verify()


def test_parts_that_do_not_make_a_whole_are_refused(run, tmp_path):
    half, other = run(tmp_path / "a", "--num-shards", 2), run(tmp_path / "b", "--num-shards", 2, "--batch-tokens", 99)
    join = ["--output", str(tmp_path / "joined"), "--shard", str(half), "--shard"]
    with pytest.raises(TapsError, match=r"expected 10 rows, each once, found 12 rows, 4 of the 10 missing"):
        join_features.main([*join, str(shutil.copytree(half, tmp_path / "copy"))])
    with pytest.raises(TapsError, match="a part of other features"):
        join_features.main([*join, str(other)])
    with pytest.raises(TapsError, match=r"--shard: no such part, expected 0 to --num-shards - 1 = 1, found 2"):
        run(tmp_path / "c", "--shard", 2, "--num-shards", 2)
    assert not (tmp_path / "joined").exists()


def test_a_killed_run_goes_on_with_its_finished_shards(run, tmp_path, monkeypatch, capsys):
    whole = run(tmp_path / "whole")

    def interrupted(*args, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return compute_features(*args, **options)

    calls: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr("taps.model.features.compute_features", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "f")
    assert not (tmp_path / "f").exists()
    partial = tmp_path / ".f.partial"
    assert len(contents(partial)) == 2
    harmed = next(partial.glob("shard-00001*"))
    harmed.write_bytes(harmed.read_bytes()[:-1])  # as a file system may leave it after a power cut
    capsys.readouterr()
    assert contents(run(tmp_path / "f")) == contents(whole)
    assert "3 shards to compute, 1 finished before" in capsys.readouterr().out
    assert not partial.exists()
    run(tmp_path / "f")
    assert "0 shards to compute, 4 finished before" in capsys.readouterr().out


def test_a_full_disk_is_refused_before_anything_is_computed(run, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    monkeypatch.setattr("taps.features.compute_shards", lambda *_: pytest.fail("computed"))
    with pytest.raises(TapsError, match=r"disk too small, expected 0\.1 MB free, found 0\.0 MB; free some space"):
        run(tmp_path / "f")


def test_features_that_are_not_finite_are_refused(target_folder, rows):
    target = load_target(target_folder)
    target.model.model.norm.weight[3] = torch.inf
    with pytest.raises(TapsError, match="features of row 0 are not finite"):
        compute_features(target, rows[:2], batch_tokens=100)


@pytest.mark.parametrize(
    ("row", "message"), [([300], "token id, expected at most 299, found 300"), ([1] * 129, "row length")]
)
def test_tokens_of_another_target_are_refused(target_folder, tmp_path, row, message):
    write_tokens(tmp_path / "t.safetensors", [torch.tensor(row, dtype=torch.int32)])
    flags = ["--target", str(target_folder), "--tokens", str(tmp_path / "t.safetensors")]
    with pytest.raises(TapsError, match=message):
        features.main([*flags, "--output", str(tmp_path / "f")])
