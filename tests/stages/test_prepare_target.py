"""A model folder, a GGUF file or pickled weights become a target that gives the same logits; others are refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from taps import prepare_target
from taps.model.target import load_target
from taps.model.target_folder import save_model
from taps.model.target_head import load_target_head
from taps.plumbing.artefacts import read_json
from taps.plumbing.errors import TapsError
from taps.tiny_target import byte_tokenizer, tiny_llama

TEXT = ["Ann has 12  apples and buys 3 more.", "How many apples has she?", "She has 12 + 3 = 15 apples."]
PLAIN_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|im_end|>{% endfor %}"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return byte_tokenizer(TEXT * 50)


@pytest.fixture(scope="module")
def model(tokenizer) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return tiny_llama(len(tokenizer)).eval()


@pytest.fixture
def source(model, tokenizer, tmp_path) -> Path:
    """A Hugging Face folder with weights, tokenizer and chat template."""
    folder = tmp_path / "source"
    folder.mkdir()
    save_model(model, tokenizer, folder)
    return folder


def prepare(source: Path, output: Path, *flags: str) -> Path:
    prepare_target.main(["--source", str(source), "--output", str(output), *flags])
    return output


def edit_json(path: Path, **changes: object) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **changes}))


def logits(folder: Path) -> torch.Tensor:
    ids = torch.arange(5, 45)[None]
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()(ids).logits


# --- Hugging Face folders --------------------------------------------------------------------------------------------


def test_folder_is_linked_and_recorded(source, tmp_path):
    output = prepare(source, tmp_path / "target")
    assert (output / "model.safetensors").samefile(source / "model.safetensors")
    assert not (output / "config.json").samefile(source / "config.json")
    record = read_json(output / "provenance.json", kind="target")
    assert record["eos_ids"] == [2]
    assert set(record["files"]) == {path.name for path in output.iterdir()} - {"provenance.json"}


def test_preparing_again_replaces_the_folder_and_leaves_nothing_behind(source, tmp_path):
    output = prepare(source, tmp_path / "target")
    (output / "stray").write_text("x")
    prepare(source, output)
    assert not (output / "stray").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]


def test_failure_keeps_the_old_folder(source, tmp_path):
    output = prepare(source, tmp_path / "target")
    (source / "model.safetensors").unlink()
    with pytest.raises(TapsError, match=r"no weights, expected model\*\.safetensors or pytorch_model\*\.bin"):
        prepare(source, output)
    assert (output / "model.safetensors").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]


def test_missing_shard_is_named(source, tmp_path):
    index = {"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "other.safetensors"}}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    (source / "other.safetensors").write_bytes(b"")
    with pytest.raises(TapsError, match=r"weights missing, found model-00001-of-00002\.safetensors"):
        prepare(source, tmp_path / "target")


@pytest.mark.parametrize("num_files", [1, 2])
def test_pickled_weights_become_safetensors_with_the_same_logits(model, source, tmp_path, num_files):
    expected = logits(source)
    weights = list(load_file(source / "model.safetensors").items())
    (source / "model.safetensors").unlink()
    for number in range(num_files):
        suffix = "" if num_files == 1 else f"-{number + 1:05d}-of-{num_files:05d}"
        torch.save(dict(weights[number::num_files]), source / f"pytorch_model{suffix}.bin")
    output = prepare(source, tmp_path / "target")
    assert not list(output.glob("*.bin"))
    assert torch.equal(logits(output), expected)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn, torch.bool])
@pytest.mark.parametrize("pickled", [False, True])
def test_weights_whose_scale_lies_elsewhere_are_refused(source, tmp_path, dtype, pickled):
    weights = load_file(source / "model.safetensors")
    weights["model.layers.0.mlp.up_proj.weight"] = weights["model.layers.0.mlp.up_proj.weight"].to(dtype)
    if pickled:
        (source / "model.safetensors").unlink()
        torch.save(weights, source / "pytorch_model.bin")
    else:
        save_file(weights, source / "model.safetensors")
    with pytest.raises(TapsError, match=r"source/\w+\.\w+: model\.layers\.0\.mlp\.up_proj\.weight is quantised"):
        prepare(source, tmp_path / "target")


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n"


@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (POINTER, "a Git-LFS pointer"),
        ("<!DOCTYPE html><html>Access denied", "an HTML page"),
        ("[" * 100_000, "not a JSON object|cannot be read"),
        ("[]", "not a JSON object|cannot be read"),
        ("null", "not a JSON object|cannot be read"),
        ("", "not a JSON object|cannot be read"),
    ],
    ids=["pointer", "page", "deep", "list", "null", "empty"],
)
def test_a_file_that_is_something_else_is_named_in_its_own_place(source, tmp_path, name, content, message):
    (source / name).write_text(content)
    with pytest.raises(TapsError, match=rf"^{re.escape(str(source / name))}: ({message})"):
        prepare(source, tmp_path / "target")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("index", [b"\0\xff", b"[" * 100_000, b"{"])
def test_an_index_that_is_none_is_named(source, tmp_path, index):
    (source / "model.safetensors.index.json").write_bytes(index)
    with pytest.raises(TapsError, match=r"model\.safetensors\.index\.json: not a JSON object"):
        prepare(source, tmp_path / "target")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": -1}, "num_hidden_layers is no positive number, .*found -1"),
        ({"head_dim": 0}, "head_dim is no positive number"),
        ({"num_key_value_heads": 0}, "num_key_value_heads is no positive number"),
        ({"hidden_size": 10**12}, "hidden_size is no positive number"),
        ({"hidden_size": "64"}, "hidden_size is no positive number, .*found '64'"),
        ({"max_position_embeddings": 10**30}, "max_position_embeddings is no positive number"),
        ({"rms_norm_eps": 1e308}, "rms_norm_eps is no positive number"),
        ({"num_attention_heads": 10**9}, "a config.json that the library cannot read"),
        ({"vocab_size": None}, "a config.json that the library cannot read"),
        ({"rope_parameters": "yarn"}, "a config.json that the library cannot read"),
        ({"rope_parameters": [1]}, "a config.json that the library cannot read"),
        ({"dtype": "float7"}, "a config.json that the library cannot read, found AttributeError"),
        ({"model_type": ["llama"]}, "a config.json that the library cannot read"),
        ({"quantization_config": "awq"}, "quantised weights.*found awq"),
        ({"quantization_config": [1]}, "quantised weights"),
        ({"layer_types": "full"}, "some layers have no full attention"),
        ({"auto_map": "m.M"}, "its own Python code, found m.M"),
        ({"eos_token_id": "</s>"}, "a config.json that the library cannot read"),
    ],
)
def test_absurd_configs_are_one_line(source, tmp_path, changes, message):
    edit_json(source / "config.json", **changes)
    with pytest.raises(TapsError, match=message) as caught:
        prepare(source, tmp_path / "target")
    assert "\n" not in str(caught.value)


def test_pickle_with_code_is_refused(source, tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "owned",))

    (source / "model.safetensors").unlink()
    torch.save({"a": Evil()}, source / "pytorch_model.bin")
    with pytest.raises(TapsError, match="so that code could run; it was not loaded"):
        prepare(source, tmp_path / "target")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_encoder_decoder": True, "model_type": "t5"}, "encoder-decoder models cannot be drafted for.*found t5"),
        ({"sliding_window": 4096}, "sliding-window attention.*found sliding_window 4096"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "no full attention.*found sliding_attention"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "no full attention.*found linear_attention"),
        ({"mamba_d_state": 16}, "recurrent layers cannot verify a tree.*found mamba_d_state"),
        ({"num_attention_heads": None}, "recurrent layers cannot verify a tree.*found no attention heads"),
        ({"text_config": {}}, "multimodal models are not supported"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised weights.*found awq"),
        ({"auto_map": {"AutoModel": "m.M"}}, r"its own Python code, found \['m.M'\]; .*--trust-remote-code"),
    ],
)
def test_unusable_models_are_refused_in_one_line(source, tmp_path, changes, message):
    edit_json(source / "config.json", **changes)
    with pytest.raises(TapsError, match=message) as caught:
        prepare(source, tmp_path / "target")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"sliding_window": None},
        {"sliding_window": 4096, "use_sliding_window": False},
        {"layer_types": ["full_attention", "full_attention"]},
    ],
)
def test_full_attention_by_any_spelling_passes(source, changes):
    config = json.loads((source / "config.json").read_text())
    prepare_target.check_architecture({**config, **changes}, where="config.json")


# --- weights that are missing, left over, broken or somewhere else ---------------------------------------------------


def rewrite(source: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    tensors = change(load_file(source / "model.safetensors"))
    save_file({name: value.contiguous().clone() for name, value in tensors.items()}, source / "model.safetensors")


def without(part: str) -> Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]:
    return lambda tensors: {name: value for name, value in tensors.items() if part not in name}


def prefixed(prefix: str) -> Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]:
    return lambda tensors: {prefix + name: value for name, value in tensors.items()}


def spoilt(name: str, value: float) -> Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]:
    def change(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        tensors[name].view(-1)[7] = value
        return tensors

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            without("layers.1.self_attn"),
            "weights missing, which would be random.*layers.1.self_attn.* and 1 more; fetch",
        ),
        (without("embed_tokens"), "weights missing, which would be random, found model.embed_tokens.weight"),
        (without("model.norm"), "weights missing, which would be random, found model.norm.weight"),
        (
            prefixed("base_model.model."),
            "are missing.* have other names.*found base_model.model.lm_head.weight",
        ),
        (prefixed("module."), "weights are missing.* have other names.*found module.lm_head.weight"),
        (
            lambda t: t | {"model.layers.2.mlp.up_proj.weight": torch.ones(192, 64)},
            "does not use, found model.layers.2",
        ),
        (lambda t: t | {"lora_A.weight": torch.ones(2)}, "weights that the model does not use, found lora_A.weight"),
        (lambda t: t | {"lm_head.weight": torch.ones(3, 64)}, "another shape"),
        (spoilt("model.layers.0.mlp.up_proj.weight", float("nan")), "layers.0.mlp.up_proj.weight is not finite"),
        (spoilt("lm_head.weight", float("inf")), "lm_head.weight is not finite; fetch the model again"),
    ],
)
def test_weights_that_would_be_made_up_or_passed_over_are_refused(source, tmp_path, change, message):
    rewrite(source, change)
    with pytest.raises(TapsError, match=message) as caught:
        prepare(source, tmp_path / "target")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(source))
    assert not (tmp_path / "target").exists()


def test_a_head_of_its_own_beside_a_config_that_ties_it_is_refused(source, tmp_path):
    """The model would use its own head, draft models the embedding."""
    edit_json(source / "config.json", tie_word_embeddings=True)
    with pytest.raises(TapsError, match=r"logits are not lm_head\(feature\)"):
        prepare(source, tmp_path / "target")


@pytest.mark.parametrize("with_index", [True, False])
def test_shards_need_no_index_and_get_one(model, source, tmp_path, with_index):
    expected = logits(source)
    (source / "model.safetensors").unlink()
    model.save_pretrained(source, max_shard_size="100KB")
    shards = {path.name for path in source.glob("model-*.safetensors")}
    assert len(shards) > 2
    if not with_index:
        (source / "model.safetensors.index.json").unlink()
    output = prepare(source, tmp_path / "target")
    assert torch.equal(logits(output), expected)
    assert {path.name for path in output.glob("*.safetensors")} == shards
    assert load_target_head(output).head.shape == (len(load_target_head(output).embedding), 64)
    (source / sorted(shards)[1]).unlink()
    with pytest.raises(TapsError, match=f"weights missing, found {sorted(shards)[1]}"):
        prepare(source, tmp_path / "other")


def test_a_lone_shard_is_the_whole_model(source, tmp_path):
    expected = logits(source)
    (source / "model.safetensors").rename(source / "model-00001-of-00001.safetensors")
    output = prepare(source, tmp_path / "target")
    assert torch.equal(logits(output), expected)
    assert [path.name for path in output.glob("model*")] == ["model.safetensors"]


def test_an_index_cannot_link_files_from_elsewhere(source, tmp_path):
    (tmp_path / "secret.safetensors").write_bytes(b"secret")
    index = {"weight_map": {"a": "../secret.safetensors"}}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(TapsError, match="names a file that is none"):
        prepare(source, tmp_path / "target")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.safetensors", "source"]


def test_a_pickled_shard_that_is_missing_is_named(source, tmp_path):
    weights = list(load_file(source / "model.safetensors").items())
    (source / "model.safetensors").unlink()
    torch.save(dict(weights[::2]), source / "pytorch_model-00001-of-00002.bin")
    with pytest.raises(TapsError, match=r"weights missing, found pytorch_model-00002-of-00002\.bin"):
        prepare(source, tmp_path / "target")
    torch.save(dict(weights[3::2]), source / "pytorch_model-00002-of-00002.bin")
    with pytest.raises(TapsError, match=f"weights missing, which would be random, found {weights[1][0]}"):
        prepare(source, tmp_path / "target")


def test_an_adapter_is_no_model(source, tmp_path):
    (source / "model.safetensors").rename(source / "adapter_model.safetensors")
    (source / "adapter_config.json").write_text("{}")
    with pytest.raises(TapsError, match="an adapter, not a model"):
        prepare(source, tmp_path / "target")


def test_a_target_that_lost_weights_later_is_not_loaded(source, tmp_path):
    """A folder of somebody else's making, which no record guards."""
    rewrite(source, without("layers.1.mlp.up"))
    with pytest.raises(TapsError, match=r"weights missing, which would be random, found model\.layers\.1\.mlp"):
        load_target(source)


# --- what draft models, features and templates would trip over -------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "gelu"}, "unsupported activation, expected silu, found gelu"),
        ({"hidden_act": "relu2"}, "unsupported activation"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}}, "not supported.*found yarn"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}}, "found dynamic"),
        ({"logit_scale": 0.5}, "logit_scale is not supported"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping is not supported"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is no positive number"),
        ({"model_type": "unheard_of", "architectures": ["Unheard"]}, "config.json that the library cannot read"),
    ],
)
def test_what_drafting_would_refuse_is_refused_before_any_weight(source, tmp_path, changes, message):
    (source / "model.safetensors").write_bytes(b"never read")
    edit_json(source / "config.json", **changes)
    with pytest.raises(TapsError, match=message) as caught:
        prepare(source, tmp_path / "target")
    assert "\n" not in str(caught.value)


def test_what_a_config_leaves_to_the_library_is_written_down(source, tmp_path):
    whole = json.loads((source / "config.json").read_text())
    short = {name: value for name, value in whole.items() if name not in ("hidden_act", "tie_word_embeddings")}
    (source / "config.json").write_text(json.dumps(short))
    output = json.loads((prepare(source, tmp_path / "target") / "config.json").read_text())
    assert (output["hidden_act"], output["tie_word_embeddings"]) == ("silu", False)


def test_a_template_whose_markers_have_no_embedding_is_refused(model, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    longer = byte_tokenizer(TEXT * 50)
    longer.add_special_tokens({"additional_special_tokens": ["<|turn|>"]})
    save_model(model, longer, source)
    prepare(source, tmp_path / "unused")  # the model never meets the token
    template = PLAIN_TEMPLATE.replace("{{ m['role'] }}", "<|turn|>")
    (source / "chat_template.jinja").write_text(template)
    with pytest.raises(TapsError, match=r"tokens beyond the embedding, expected ids below \d+, found \d+ <\|turn\|>"):
        prepare(source, tmp_path / "target")


def test_code_comes_along_only_when_trusted(source, tmp_path):
    edit_json(source / "config.json", auto_map={"AutoUnused": "modeling_x.X"})
    (source / "modeling_x.py").write_text("class X: ...\n")
    output = prepare(source, tmp_path / "target", "--trust-remote-code")
    assert (output / "modeling_x.py").exists()


def test_tokenizer_without_its_file_names_what_is_needed(source, tmp_path):
    (source / "tokenizer.json").unlink()
    (source / "tokenizer.model").write_bytes(b"not read without sentencepiece")
    with pytest.raises(TapsError, match=r"no usable tokenizer.*pip install sentencepiece protobuf") as caught:
        prepare(source, tmp_path / "target")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("found", "message"), [("nothing", "found nothing; fetch it"), ("empty", "found neither"), ("two", "found neither")]
)
def test_no_model(tmp_path, found, message):
    source = tmp_path / "source"
    if found != "nothing":
        source.mkdir()
    if found == "two":
        (source / "a.gguf").touch()
        (source / "b.gguf").touch()
    with pytest.raises(TapsError, match=f"no model here.*{message}"):
        prepare(source, tmp_path / "target")


# --- chat template and stop tokens -----------------------------------------------------------------------------------


def test_template_file_replaces_the_models_own(source, tmp_path):
    template = tmp_path / "plain.jinja"
    template.write_text(PLAIN_TEMPLATE)
    output = prepare(source, tmp_path / "target", "--chat-template", str(template))
    tokenizer = AutoTokenizer.from_pretrained(output)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "user: hi<|im_end|>"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "has no chat template; give one with --chat-template"),
        ("{{ raise_exception('no') }}", "cannot render a conversation"),
        ("{% if %}", "cannot render a conversation"),
        ("{{ 'hello' }}", "drops what was said"),
        ("{{ 1 / 0 }}" + PLAIN_TEMPLATE, "cannot render a conversation, found division by zero"),
        ("{% include 'x' %}" + PLAIN_TEMPLATE, "cannot render a conversation, found no loader"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "cannot render a conversation, found maximum recursion"),
        ("{{ lipsum() }}" + PLAIN_TEMPLATE, "renders the same conversation in several ways"),
        ("{{ [1, 2, 3, 4, 5, 6, 7, 8, 9] | shuffled }}", "cannot render a conversation"),
        ("{{ range(90000) | random }}" + PLAIN_TEMPLATE, "renders the same conversation in several ways"),
    ],
)
def test_bad_templates(source, tmp_path, template, message):
    (source / "chat_template.jinja").unlink()
    if template is not None:
        (source / "chat_template.jinja").write_text(template)
    with pytest.raises(TapsError, match=message):
        prepare(source, tmp_path / "target")


@pytest.mark.parametrize(
    ("declared", "expected"),
    [(2, 2), (0, [0, 2]), ([0, 7], [0, 2, 7]), (None, 2)],
    ids=["own", "other", "list", "none"],
)
def test_stop_tokens_are_the_models_and_the_templates(source, tmp_path, declared, expected):
    (source / "generation_config.json").unlink()
    edit_json(source / "config.json", eos_token_id=declared)
    output = prepare(source, tmp_path / "target")
    assert json.loads((output / "generation_config.json").read_text())["eos_token_id"] == expected


@pytest.mark.parametrize("declared", [-1, "2", True, 2.0, [[2]], {"a": 2}, [2, None]])
def test_a_stop_token_that_is_none_is_refused(source, tmp_path, declared):
    edit_json(source / "generation_config.json", eos_token_id=declared)
    with pytest.raises(TapsError, match=r"source/generation_config\.json: eos_token_id is no token"):
        prepare(source, tmp_path / "target")


def test_a_stop_token_beyond_the_embedding_is_refused(source, tmp_path):
    edit_json(source / "generation_config.json", eos_token_id=[2, 10**6])
    with pytest.raises(TapsError, match=r"a stop token beyond the embedding, expected ids below \d+, found 1000000"):
        prepare(source, tmp_path / "target")


def test_a_turn_that_ends_with_no_token_is_warned_of(source, tmp_path, capsys):
    (source / "chat_template.jinja").write_text(PLAIN_TEMPLATE.replace("<|im_end|>", "\n###\n"))
    prepare(source, tmp_path / "target")
    assert "its chat template ends a turn with no token; answers end at <|im_end|>" in capsys.readouterr().err


def test_no_stop_token_is_an_error(source, tmp_path):
    (source / "generation_config.json").unlink()
    edit_json(source / "config.json", eos_token_id=None)
    edit_json(source / "tokenizer_config.json", eos_token=None)
    (source / "chat_template.jinja").write_text(PLAIN_TEMPLATE.replace("<|im_end|>", ""))
    with pytest.raises(TapsError, match="no stop token"):
        prepare(source, tmp_path / "target")


# --- GGUF ------------------------------------------------------------------------------------------------------------


def write_gguf(path: Path, model: LlamaForCausalLM, tokenizer: Any, *, pre: str) -> None:
    """Writes a float32 GGUF file as llama.cpp lays it out: rotary halves interleaved in queries and keys."""
    import gguf

    config: Any = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    tokens = tokenizer.convert_ids_to_tokens(list(range(config.vocab_size)))
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in tokenizer.all_special_tokens else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in backend["model"]["merges"]])
    writer.add_eos_token_id(2)
    writer.add_bos_token_id(1)
    writer.add_chat_template(tokenizer.chat_template)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, value in model.state_dict().items():
        if ".q_proj." in name or ".k_proj." in name:
            num_heads = len(value) // config.head_dim
            value = value.view(num_heads, 2, -1, value.shape[1]).transpose(1, 2).reshape(value.shape)
        writer.add_tensor(str(names.get_name(name, try_suffixes=(".weight",))), value.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_gguf_gives_the_same_logits_and_is_plain_afterwards(model, tokenizer, source, tmp_path):
    gguf_file = tmp_path / "in" / "tiny.gguf"
    gguf_file.parent.mkdir()
    write_gguf(gguf_file, model, tokenizer, pre="smollm")
    output = prepare(gguf_file, tmp_path / "target")
    assert torch.allclose(logits(output), logits(source), atol=1e-5)
    config = json.loads((output / "config.json").read_text())
    assert "quantization_config" not in config
    assert str(tmp_path) not in (output / "config.json").read_text() + (output / "tokenizer_config.json").read_text()
    assert read_json(output / "provenance.json", kind="target")["eos_ids"] == [2]
    converted = AutoTokenizer.from_pretrained(output)
    # Digits are cut off before the byte-level rule sees the blanks in front of them.
    pieces = converted.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a  12")
    assert [piece for piece, _ in pieces] == ["a", "ĠĠ", "1", "2"]
    assert converted.decode(converted(TEXT[0])["input_ids"]) == TEXT[0]


def test_gguf_inside_a_folder_is_found(tmp_path):
    (tmp_path / "only.gguf").touch()
    assert prepare_target.find_source(tmp_path) == tmp_path / "only.gguf"


def test_broken_gguf_is_one_line(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 8)
    with pytest.raises(TapsError, match=r"broken\.gguf: not a GGUF model that transformers can read"):
        prepare(broken, tmp_path / "target")
    shutil.rmtree(tmp_path / "target", ignore_errors=True)
    assert [path.name for path in tmp_path.iterdir()] == ["broken.gguf"]
