"""The draft layer against the library's own decoder layer, and the shapes it reads from targets' configs."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, Qwen2Config
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RotaryEmbedding

from taps.model.checkpoint import expected_shapes
from taps.model.drafter import DrafterConfig, DraftModel, packed_positions
from taps.model.flops import num_parameters
from taps.plumbing.errors import TapsError
from tests.support.draft_models import CONFIG

LENGTH = 40
FAMILIES: dict[str, Any] = {
    "llama": (LlamaConfig, LlamaDecoderLayer, LlamaRotaryEmbedding),
    "qwen2": (Qwen2Config, Qwen2DecoderLayer, Qwen2RotaryEmbedding),
}
SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "attn_implementation": "eager",
}
ROPES: dict[str, Any] = {
    "default": {"rope_type": "default", "rope_theta": 500.0},
    "linear": {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 500.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}


def library_layer(family, rope):
    """Returns (config, decoder layer without its input norm, its rotary embedding)."""
    torch.manual_seed(1)
    make_config, make_layer, make_rotary = FAMILIES[family]
    config = make_config(**SIZES, rope_parameters=dict(ROPES[rope]))
    layer, rotary = make_layer(config, 0), make_rotary(config)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    layer.input_layernorm = nn.Identity()
    return config, layer.eval(), rotary


@pytest.mark.parametrize(("family", "rope"), [*(("llama", rope) for rope in ROPES), ("qwen2", "default")])
def test_equals_the_librarys_layer_without_its_input_norm(family, rope):
    config, layer, rotary = library_layer(family, rope)
    model = DraftModel(DrafterConfig.from_json(config.to_dict()))
    model.layer.load_state_dict(layer.state_dict())
    embeddings, features = torch.randn(2, LENGTH, 32)
    hidden = model.fc(torch.cat((embeddings, features), dim=-1))[None]
    mask = torch.full((LENGTH, LENGTH), -torch.inf).triu(1)[None, None]
    angles = rotary(hidden, torch.arange(LENGTH)[None])
    with torch.no_grad():
        expected = layer(hidden, attention_mask=mask, position_embeddings=angles)
        expected = expected[0] if isinstance(expected, tuple) else expected
        found, _, _ = model(embeddings, features, [LENGTH])
    torch.testing.assert_close(found, expected.reshape(LENGTH, 32), atol=2e-5, rtol=1e-4)


def test_the_embedding_is_the_first_half_of_fc():
    model = DraftModel(replace(CONFIG, bias=True))
    embeddings, features = torch.randn(2, 5, 32)
    weight, bias = model.fc.weight, model.fc.bias
    expected = embeddings @ weight[:, :32].T + features @ weight[:, 32:].T + bias
    torch.testing.assert_close(model.inputs(embeddings, features), expected, atol=1e-6, rtol=1e-5)


def test_neighbours_in_a_batch_change_nothing():
    torch.manual_seed(0)
    model, lengths = DraftModel(CONFIG), [7, 1, 12]
    embeddings, features = torch.randn(2, 20, 32)
    together, _, _ = model(embeddings, features, lengths)
    alone = [
        model(*parts, [len(parts[0])])[0]
        for parts in zip(embeddings.split(lengths), features.split(lengths), strict=True)
    ]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-6, rtol=1e-5)
    assert packed_positions(lengths, "cpu").tolist() == [*range(7), 0, *range(12)]


def test_angles_stay_precise_in_bfloat16():
    model = DraftModel(CONFIG).to(torch.bfloat16)
    assert model._inverse_frequencies.dtype == torch.float32
    assert "_inverse_frequencies" not in dict(model.named_buffers())
    keys = model.qkv(torch.ones(2, 32, dtype=torch.bfloat16), torch.tensor([100, 101]))[1].float()
    assert (keys[0] - keys[1]).abs().max() > 0.01  # neighbours far into a text are told apart


@pytest.mark.parametrize("change", [{}, {"bias": True}, {"attention_bias": True}])
def test_a_config_survives_its_file(change):
    config = replace(CONFIG, **change)
    assert DrafterConfig.from_json(config.to_json()) == config
    shapes = expected_shapes(config)
    assert ("fc.bias" in shapes) == config.bias
    assert ("layers.0.self_attn.q_proj.bias" in shapes) == config.attention_bias
    assert not [name for name in shapes if "embed" in name or "lm_head" in name or "input_layernorm" in name]


def test_what_older_configs_leave_out_is_filled_in():
    old = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "vocab_size": 100,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "rope_scaling": None,
        "head_dim": None,
    }
    config = DrafterConfig.from_json(old)
    assert (config.num_key_value_heads, config.head_dim, config.attention_bias) == (4, 16, False)
    assert config.rope == {"rope_type": "default", "rope_theta": 1e6}
    assert DrafterConfig.from_json(old | {"model_type": "qwen2"}).attention_bias  # its file does not say so
    assert num_parameters(config) == 2 * 64 * 64 + 4 * 64 * 64 + 3 * 64 * 96 + 64


@pytest.mark.parametrize(
    "change", [{}, {"attention_bias": True}, {"bias": True}, {"head_dim": 24}, {"num_key_value_heads": 1}]
)
def test_parameters_are_counted_as_the_module_has_them(change):
    config = DrafterConfig.from_json(CONFIG.to_json() | change)
    with torch.device("meta"):
        assert num_parameters(config) == sum(tensor.numel() for tensor in DraftModel(config).parameters())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "gelu"}, "unsupported activation, expected silu, found gelu"),
        ({"rms_norm_eps": None}, "lacks 'rms_norm_eps'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "RoPE scaling is not supported"),
    ],
)
def test_other_families_are_refused(change, message):
    config = {name: value for name, value in (CONFIG.to_json() | change).items() if value is not None}
    with pytest.raises(TapsError, match=message):
        DraftModel(DrafterConfig.from_json(config))
