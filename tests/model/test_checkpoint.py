"""Draft models on disk: bit for bit what was written, or refused with one line."""

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from taps.model.checkpoint import load_drafter, read_drafter_config, read_drafter_tensors, save_drafter
from taps.model.drafter import DraftModel
from taps.plumbing.errors import ArtefactError, TapsError
from tests.support.draft_models import CONFIG


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    save_drafter(tmp_path / "math", DraftModel(CONFIG).state_dict(), CONFIG, provenance={"stage": "test"})
    return tmp_path / "math"


@given(
    bias=st.booleans(),
    attention_bias=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 99),
)
@settings(max_examples=10, deadline=None)
def test_reads_back_bit_for_bit(tmp_path_factory, bias, attention_bias, dtype, seed):
    folder = tmp_path_factory.mktemp("drafter")
    torch.manual_seed(seed)
    config = replace(CONFIG, bias=bias, attention_bias=attention_bias)
    model = DraftModel(config).to(dtype)
    save_drafter(folder, model.state_dict(), config, provenance={})
    assert read_drafter_config(folder) == config
    read = read_drafter_tensors(folder)
    assert read.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert read[name].dtype == dtype
        assert torch.equal(read[name], tensor)
    loaded = load_drafter(folder, target_config=config.to_json(), dtype=dtype)
    assert not loaded.training
    embeddings, features = torch.randn(2, 6, 32).to(dtype)
    assert torch.equal(loaded(embeddings, features, [6])[0], model(embeddings, features, [6])[0])


def test_equal_weights_give_equal_files(tmp_path, folder):
    save_drafter(tmp_path / "again", read_drafter_tensors(folder), CONFIG, provenance={"stage": "test"})
    for file in folder.iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()
    changed = read_drafter_tensors(folder)
    changed["fc.weight"][0, 0] += 1
    save_drafter(tmp_path / "other", changed, CONFIG, provenance={"stage": "test"})
    assert (folder / "provenance.json").read_bytes() != (tmp_path / "other/provenance.json").read_bytes()


def lack(tensors):
    del tensors["layers.0.mlp.up_proj.weight"]


def reshape(tensors):
    tensors["fc.weight"] = tensors["fc.weight"][:, :-1].contiguous()


def add_bias(tensors):
    tensors["fc.bias"] = torch.zeros(32)


def add_head(tensors):
    tensors["lm_head.weight"] = torch.zeros(300, 32)


def quantise(tensors):
    tensors["fc.weight"] = tensors["fc.weight"].to(torch.int8)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lack, r"lacks layers\.0\.mlp\.up_proj\.weight"),
        (reshape, r"fc\.weight has a wrong shape, expected \(32, 64\), found \(32, 63\)"),
        (add_bias, r'unexpected tensor fc\.bias; set "bias": true'),
        (add_head, r"unexpected tensor lm_head\.weight"),
        (quantise, r"fc\.weight is quantised, expected plain weights, found int8"),
    ],
)
def test_other_tensors_are_refused_when_read_and_when_written(tmp_path, folder, damage, message):
    tensors = load_file(folder / "model.safetensors")
    damage(tensors)
    save_file(tensors, folder / "model.safetensors")
    (folder / "provenance.json").unlink()  # a folder from elsewhere: its digest would refuse the change before this
    with pytest.raises(TapsError, match=message) as refusal:
        load_drafter(folder)
    assert "\n" not in str(refusal.value)
    with pytest.raises(TapsError, match=message):
        save_drafter(tmp_path / "new", tensors, CONFIG, provenance={})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 301}, "drafts for another target: vocab_size, expected 301, found 300"),
        ({"hidden_size": 64}, "drafts for another target: hidden_size"),
    ],
)
def test_another_target_is_refused(folder, change, message):
    with pytest.raises(TapsError, match=message):
        load_drafter(folder, target_config=replace(CONFIG, **change).to_json())


def test_weights_that_diverged_are_not_written(tmp_path):
    tensors = DraftModel(CONFIG).state_dict()
    tensors["fc.weight"][3, 4] = torch.nan
    with pytest.raises(TapsError, match=r"fc\.weight is not finite; lower the learning rate"):
        save_drafter(tmp_path / "new", tensors, CONFIG, provenance={})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_missing_and_truncated_files_are_named(folder, file):
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: len(content) // 2])
    with pytest.raises(ArtefactError, match=file):
        load_drafter(folder)
    (folder / file).unlink()
    with pytest.raises(ArtefactError, match=f"{file}: missing"):
        load_drafter(folder)


def test_the_config_is_one_that_the_official_code_reads(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["num_hidden_layers"] == 1
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["bias"] is False
    assert None not in config.values()
