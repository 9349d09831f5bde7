"""Published checkpoints come in bit for bit, or are refused with one line that says what is wrong."""

import json
import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from taps import import_draft
from taps.model.checkpoint import load_drafter, read_drafter_config, read_drafter_tensors, save_drafter
from taps.model.drafter import DraftModel
from taps.plumbing.errors import TapsError
from taps.plumbing.lineage import inputs_of
from taps.plumbing.provenance import digest_of
from tests.support.draft_models import CONFIG
from tests.support.target_fixtures import write_target

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
SHAPE: dict[str, Any] = {
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 48,
    "max_position_embeddings": 64,  # shorter than the target's 128: how far the head was trained
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_scaling": None,
    "vocab_size": 300,
}


class Bomb:
    """Unpickles into a call."""

    def __reduce__(self):
        return (print, ("boom",))


@pytest.fixture
def target(tmp_path):
    return write_target(tmp_path / "target")


def head(bias: bool = False) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    tensors = DraftModel(replace(CONFIG, bias=bias)).state_dict()
    return {name: tensor.to(torch.float16) for name, tensor in tensors.items()}


def checkpoint(tmp_path, tensors: dict[str, Any], config: dict[str, Any], *, file: str = "model.safetensors"):
    """Writes a folder as the official training code leaves it."""
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(SHAPE | config))
    if file.endswith(".safetensors"):
        save_file(tensors, folder / file)
    else:
        torch.save(tensors, folder / file)
    return folder


def run(tmp_path, folder, target):
    output = tmp_path / "drafter"
    import_draft.main([f"--source={folder}", f"--target={target}", f"--output={output}"])
    return output


@pytest.mark.parametrize("file", WEIGHT_FILES)
@pytest.mark.parametrize(("bias", "config"), [(True, {"bias": True}), (True, {}), (False, {"bias": False})])
def test_official_folders_load(tmp_path, target, bias, config, file):
    tensors = head(bias)
    embedding = load_file(target / "model.safetensors")["model.embed_tokens.weight"].to(torch.float16)
    extra = {"embed_tokens.weight": embedding, "layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    output = run(tmp_path, checkpoint(tmp_path, tensors | extra, config, file=file), target)
    read = read_drafter_tensors(output)
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read[name].dtype == torch.float16
        assert torch.equal(read[name], tensor)
    assert read_drafter_config(output) == replace(CONFIG, bias=bias)
    assert inputs_of(output, kind="drafter")["target"] == digest_of(target)
    load_drafter(output, target_config=json.loads((target / "config.json").read_text()))


def test_our_own_folders_come_back_bit_equal(tmp_path, target):
    tensors = head()
    save_drafter(tmp_path / "ours", tensors, CONFIG, provenance={})
    read = read_drafter_tensors(run(tmp_path, tmp_path / "ours", target))
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_shards_are_one_head(tmp_path, target, suffix, indexed):
    tensors, stem = head(), {"safetensors": "model", "bin": "pytorch_model"}[suffix]
    folder = checkpoint(tmp_path, tensors, {"bias": False}, file=f"{stem}.{suffix}")
    (folder / f"{stem}.{suffix}").unlink()
    weight_map: dict[str, str] = {}
    for number, part in enumerate((list(tensors)[::2], list(tensors)[1::2]), start=1):
        shard = f"{stem}-{number:05d}-of-00002.{suffix}"
        own = {name: tensors[name] for name in part}
        save_file(own, folder / shard) if suffix == "safetensors" else torch.save(own, folder / shard)
        weight_map |= dict.fromkeys(part, shard)
    if indexed:
        (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps({"weight_map": weight_map}))
    read = read_drafter_tensors(run(tmp_path, folder, target))
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())
    (folder / shard).unlink()
    with pytest.raises(TapsError, match=f"weights missing, found {shard}"):
        run(tmp_path, folder, target)


def test_an_index_that_leads_outside_is_refused(tmp_path, target):
    folder = checkpoint(tmp_path, head(), {"bias": False}, file="other.safetensors")
    (folder / "other.safetensors").rename(tmp_path / "other.safetensors")
    index = {"weight_map": dict.fromkeys(head(), "../other.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(TapsError, match="names a file that is none"):
        run(tmp_path, folder, target)


def test_a_head_keeps_its_own_rope(tmp_path, target):
    output = run(tmp_path, checkpoint(tmp_path, head(), {"bias": False, "rope_theta": 5e5}), target)
    assert read_drafter_config(output).rope == {"rope_type": "default", "rope_theta": 5e5}
    load_drafter(output, target_config=json.loads((target / "config.json").read_text()))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"mlp_bias": True}, "mlp_bias is not supported in a draft model"),
        ({"hidden_act": "gelu"}, "unsupported activation"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "RoPE scaling is not supported.*found yarn"),
        ({"rope_scaling": {"type": "linear", "factor": None}}, "factor of its RoPE is no positive number"),
        ({"logits_scaling": 8.0}, "logits_scaling is not supported"),
        ({"residual_multiplier": 0.22}, "residual_multiplier is not supported"),
    ],
)
def test_keys_that_we_do_not_implement_are_refused(tmp_path, target, config, message):
    with pytest.raises(TapsError, match=message):
        run(tmp_path, checkpoint(tmp_path, head(), {"bias": False, **config}), target)


def without(tensors, name):
    return {other: tensor for other, tensor in tensors.items() if other != name}


@pytest.mark.parametrize(
    ("change", "config", "message"),
    [
        (lambda t: without(t, "layers.0.mlp.up_proj.weight"), {"bias": False}, r"lacks layers.0.mlp.up_proj.weight"),
        (lambda t: t, {}, r"lacks fc.bias.*add .*false"),
        (lambda t: t, {"bias": True}, r"lacks fc.bias"),
        (lambda t: t | {"fc.bias": torch.zeros(32).half()}, {"bias": False}, "unexpected tensor fc.bias"),
        (lambda t: t | {"midlayer.hidden_norm.weight": torch.ones(32).half()}, {"bias": False}, "unexpected tensor"),
        (lambda t: t | {"fc.weight": torch.zeros(32, 63).half()}, {"bias": False}, r"wrong shape, expected \(32, 64\)"),
        (lambda t: t | {"fc.weight": torch.zeros(32, 64)}, {"bias": False}, r"several dtypes.*float16, torch.float32"),
        (lambda t: t | {"fc.weight": torch.zeros(32, 64).int()}, {"bias": False}, "is quantised"),
        (
            lambda t: {name: tensor.to(torch.float8_e4m3fn) for name, tensor in t.items()},
            {"bias": False},
            "is quantised",
        ),
        (lambda t: t, {"bias": False, "vocab_size": 299}, "another target: vocab_size, expected 300, found 299"),
        (lambda t: t, {"bias": False, "num_hidden_layers": 32}, "not an EAGLE head"),
        (lambda t: t | {"embed_tokens.weight": torch.zeros(300, 32)}, {"bias": False}, "differs from the target's"),
        (lambda t: t | {"embed_tokens.weight": torch.zeros(299, 32)}, {"bias": False}, "is not the target's"),
        (lambda t: t | {"lm_head.weight": torch.zeros(300, 32)}, {"bias": False}, "lm_head.weight differs"),
        (lambda t: t | {"fc.weight": t["fc.weight"] * float("nan")}, {"bias": False}, "fc.weight is not finite"),
    ],
)
def test_what_is_not_an_eagle_head_for_the_target_is_refused(tmp_path, target, change, config, message):
    folder = checkpoint(tmp_path, change(head()), config)
    with pytest.raises(TapsError, match=message) as error:
        run(tmp_path, folder, target)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "drafter").exists()


@pytest.mark.parametrize("wrap", [lambda bomb: bomb, lambda bomb: {"fc.weight": bomb}])
def test_pickles_with_code_are_refused_without_running_it(tmp_path, target, wrap, capsys):
    folder = checkpoint(tmp_path, wrap(Bomb()), {"bias": False}, file="pytorch_model.bin")
    with pytest.raises(TapsError, match="so that code could run; it was not loaded") as error:
        run(tmp_path, folder, target)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(wrap(Bomb()), protocol=2))
    with pytest.raises(TapsError, match="it was not loaded"):
        run(tmp_path, folder, target)
    assert "\n" not in str(error.value)
    assert "boom" not in capsys.readouterr().out


@pytest.mark.parametrize("file", WEIGHT_FILES)
def test_truncated_files_are_refused(tmp_path, target, file):
    folder = checkpoint(tmp_path, head(), {"bias": False}, file=file)
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: len(content) // 2])
    with pytest.raises(TapsError, match=f"{file}: .*(cannot be read|broken)"):
        run(tmp_path, folder, target)


def test_other_contents_are_refused(tmp_path, target):
    folder = checkpoint(tmp_path, {"state_dict": head()}, {"bias": False}, file="pytorch_model.bin")
    with pytest.raises(TapsError, match="not a flat table of tensors"):
        run(tmp_path, folder, target)
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(TapsError, match=r"no weights, expected model\*.safetensors or pytorch_model\*.bin"):
        run(tmp_path, folder, target)
    (folder / "config.json").unlink()
    with pytest.raises(TapsError, match=r"config.json: missing"):
        run(tmp_path, folder, target)


def test_the_hub_needs_a_pinned_revision(tmp_path, target):
    for revision in ([], ["--revision=main"]):
        with pytest.raises(TapsError, match="not pinned"):
            import_draft.main(["--hub=a/b", *revision, f"--target={target}", f"--output={tmp_path / 'd'}"])


def test_the_hub_copy_is_imported(tmp_path, target, monkeypatch):
    def download(hub, folder):
        assert (hub.repo, hub.revision) == ("a/b", "0" * 40)
        (folder / "config.json").write_text(json.dumps(SHAPE | {"bias": False}))
        save_file(head(), folder / "model.safetensors")

    monkeypatch.setattr("taps.data.downloads.download_hub", download)
    output = tmp_path / "d"
    import_draft.main(["--hub=a/b", f"--revision={'0' * 40}", f"--target={target}", f"--output={output}"])
    assert torch.equal(read_drafter_tensors(output)["fc.weight"], head()["fc.weight"])
