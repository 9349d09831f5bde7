"""Exported folders obey every rule of their reader; the validator notices each rule broken."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from taps import export_draft, import_draft
from taps.model.checkpoint import read_drafter_config, read_drafter_tensors, save_drafter
from taps.model.drafter import DraftModel
from taps.model.flavours import FLAVOURS
from taps.plumbing.errors import TapsError
from tests.support.draft_models import CONFIG
from tests.support.target_fixtures import write_target

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def drafter(tmp_path, config=CONFIG):
    torch.manual_seed(0)
    save_drafter(tmp_path / "drafter", DraftModel(config).state_dict(), config, provenance={})
    return tmp_path / "drafter"


def export(tmp_path, flavour, *, config=CONFIG, options=()):
    """Returns (folder, tensors, content of config.json)."""
    target = write_target(tmp_path / "target", config)
    source, output = drafter(tmp_path, config), tmp_path / flavour
    flags = [f"--drafter={source}", f"--target={target}", f"--flavour={flavour}", f"--output={output}", *options]
    export_draft.main(flags)
    return output, load_file(output / "model.safetensors"), json.loads((output / "config.json").read_text())


def check(tmp_path, folder, flavour):
    export_draft.main([f"--check={folder}", f"--target={tmp_path / 'target'}", f"--flavour={flavour}"])


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_unbiased_head(tmp_path, flavour):
    _, tensors, content = export(tmp_path, flavour)
    embedding = load_file(tmp_path / "target" / "model.safetensors")["model.embed_tokens.weight"]
    head = read_drafter_tensors(tmp_path / "drafter")
    assert all(torch.equal(tensors.pop(name), tensor) for name, tensor in head.items())
    expected = {
        "eagle": {"embed_tokens.weight": embedding},
        "vllm": {},
        "sglang": {"embed_tokens.weight": embedding, "fc.bias": torch.zeros(32)},
    }[flavour]
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in expected.items())
    assert content["architectures"] == ["LlamaForCausalLMEagle" if flavour == "sglang" else "LlamaForCausalLM"]
    assert content["bias"] is False
    assert content["max_position_embeddings"] == 128
    assert content["rope_theta"] == 10000.0 == content["rope_parameters"]["rope_theta"]
    assert (content["bos_token_id"], content["eos_token_id"]) == (1, [2, 3])
    assert "null" not in json.dumps(content)
    assert content["torch_dtype"] == "float32"


@pytest.mark.parametrize("flavour", ["eagle", "sglang"])
def test_biased_head_keeps_its_bias(tmp_path, flavour):
    _, tensors, content = export(tmp_path, flavour, config=replace(CONFIG, bias=True))
    assert torch.equal(tensors["fc.bias"], read_drafter_tensors(tmp_path / "drafter")["fc.bias"])
    assert content["bias"] is (flavour == "eagle")  # SGLang would look for biases in its attention


def test_biased_head_is_refused_for_vllm(tmp_path):
    with pytest.raises(TapsError, match=r"--flavour vllm: cannot read fc.bias"):
        export(tmp_path, "vllm", config=replace(CONFIG, bias=True))
    assert not (tmp_path / "vllm").exists()


def test_heads_of_another_family_are_refused(tmp_path):
    with pytest.raises(TapsError, match="reads Llama heads only"):
        export(tmp_path, "eagle", config=replace(CONFIG, attention_bias=True, model_type="qwen2"))


def test_scaled_rope_is_written_in_both_forms(tmp_path):
    _, _, content = export(tmp_path, "eagle", config=replace(CONFIG, rope=LLAMA3_ROPE))
    assert content["rope_parameters"] == LLAMA3_ROPE
    assert content["rope_scaling"] == {name: value for name, value in LLAMA3_ROPE.items() if name != "rope_theta"}


def test_dtype(tmp_path):
    _, tensors, content = export(tmp_path, "sglang", options=["--dtype=bfloat16"])
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert content["torch_dtype"] == "bfloat16"


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("flavour", ["eagle", "sglang"])
def test_an_exported_head_is_imported_bit_equal(tmp_path, flavour, bias):
    folder, _, _ = export(tmp_path, flavour, config=replace(CONFIG, bias=bias))
    back = tmp_path / "back"
    import_draft.main([f"--source={folder}", f"--target={tmp_path / 'target'}", f"--output={back}"])
    ours, again = read_drafter_tensors(tmp_path / "drafter"), read_drafter_tensors(back)
    assert read_drafter_config(back).bias is bias
    assert ours.keys() == again.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in ours.items())


def broken(tmp_path, folder, *, tensors=None, drop=(), config=None, forget=()):
    """Rewrites an exported folder with a fault."""
    kept = load_file(folder / "model.safetensors") | (tensors or {})
    save_file({name: value for name, value in kept.items() if name not in drop}, folder / "model.safetensors")
    content = json.loads((folder / "config.json").read_text()) | (config or {})
    (folder / "config.json").write_text(json.dumps({k: v for k, v in content.items() if k not in forget}))
    return folder


EMBEDDING = {"embed_tokens.weight": torch.zeros(300, 32)}
FAULTS = [
    ("eagle", {"config": {"architectures": ["LlamaForCausalLMEagle"]}}, "architectures"),
    ("vllm", {"config": {"architectures": ["EagleLlamaForCausalLM"]}}, "architectures"),
    ("sglang", {"config": {"architectures": ["LlamaForCausalLM"]}}, "architectures"),
    ("eagle", {"tensors": {"fc.bias": torch.zeros(32)}}, '"bias", expected True, found False'),
    ("eagle", {"config": {"bias": True}}, '"bias", expected False, found True'),
    ("eagle", {"forget": ["bias"]}, '"bias", expected False, found nothing'),
    ("vllm", {"tensors": {"fc.bias": torch.zeros(32)}, "config": {"bias": True}}, r"fc.bias, expected False"),
    ("sglang", {"drop": ["fc.bias"]}, r"fc.bias, expected True"),
    ("sglang", {"config": {"bias": True}}, '"bias", expected False, found True'),
    ("eagle", {"drop": EMBEDDING}, r"embed_tokens.weight, expected True"),
    ("vllm", {"tensors": EMBEDDING}, r"embed_tokens.weight, expected False"),
    ("sglang", {"drop": EMBEDDING}, r"embed_tokens.weight, expected True"),
    ("eagle", {"tensors": {"embed_tokens.weight": torch.zeros(299, 32)}}, r"the shape of embed_tokens.weight"),
    *((flavour, {"tensors": {"lm_head.weight": torch.zeros(300, 32)}}, "lm_head") for flavour in FLAVOURS),
    *((flavour, {"config": {"max_position_embeddings": 64}}, "max_position_embeddings") for flavour in FLAVOURS),
    *((flavour, {"forget": ["rope_theta"]}, "rope_theta, expected 10000.0, found nothing") for flavour in FLAVOURS),
    *((flavour, {"forget": ["rope_parameters"]}, "rope_parameters") for flavour in FLAVOURS),
    ("eagle", {"config": {"rope_theta": 500000.0}}, "rope_theta, expected 10000.0, found 500000.0"),
    *((flavour, {"config": {"pad_token_id": None}}, r"null values.*pad_token_id") for flavour in FLAVOURS),
    ("eagle", {"config": {"rope_parameters": {"factor": None}}}, r"null values.*rope_parameters.factor"),
]


@pytest.mark.parametrize(("flavour", "fault", "rule"), FAULTS)
def test_the_validator_names_the_broken_rule(tmp_path, flavour, fault, rule):
    folder, _, _ = export(tmp_path, flavour)
    check(tmp_path, folder, flavour)
    with pytest.raises(TapsError, match=f"breaks the {flavour} rule for {rule}"):
        check(tmp_path, broken(tmp_path, folder, **fault), flavour)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_validator_checks_names_and_shapes(tmp_path, flavour):
    folder, _, _ = export(tmp_path, flavour)
    name = "layers.0.mlp.up_proj.weight"
    broken(tmp_path, folder, tensors={name: torch.zeros(2, 2)})
    with pytest.raises(TapsError, match=f"{name} has a wrong shape"):
        check(tmp_path, folder, flavour)
    broken(tmp_path, folder, drop=[name])
    with pytest.raises(TapsError, match=f"lacks {name}"):
        check(tmp_path, folder, flavour)
    (folder / "config.json").unlink()
    with pytest.raises(TapsError, match="incomplete"):
        check(tmp_path, folder, flavour)


def test_a_drafter_of_another_target_is_refused(tmp_path):
    source = drafter(tmp_path)
    target = write_target(tmp_path / "target", replace(CONFIG, vocab_size=299))
    with pytest.raises(TapsError, match="drafts for another target: vocab_size"):
        export_draft.main(
            [f"--drafter={source}", f"--target={target}", "--flavour=eagle", f"--output={tmp_path / 'o'}"]
        )
