"""Keys that change the mathematics are implemented or refused, in targets, in heads that come in, and going out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import PhiConfig
from transformers.models.phi.modeling_phi import PhiRotaryEmbedding, apply_rotary_pos_emb

from taps import export_draft
from taps.model.checkpoint import head_config, load_drafter, save_drafter
from taps.model.config_keys import check_logits
from taps.model.drafter import DrafterConfig, DraftModel
from taps.model.rope import inverse_frequencies, rope_parameters, rotate
from taps.plumbing.errors import TapsError
from tests.support.draft_models import CONFIG
from tests.support.target_fixtures import write_target

PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}


# --- RoPE ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, PLAIN),
        ({"rope_theta": 7.0, "rope_scaling": None}, PLAIN | {"rope_theta": 7.0}),
        ({"rope_parameters": {"rope_theta": 7.0}}, PLAIN | {"rope_theta": 7.0}),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, PLAIN | {"rope_type": "linear", "factor": 2.0}),
        ({"rope_parameters": PLAIN | {"partial_rotary_factor": 0.5}}, PLAIN | {"partial_rotary_factor": 0.5}),
        ({"partial_rotary_factor": 0.25}, PLAIN | {"partial_rotary_factor": 0.25}),
        ({"rotary_pct": 0.25}, PLAIN | {"partial_rotary_factor": 0.25}),
        ({"partial_rotary_factor": 1.0, "rotary_pct": None}, PLAIN),
        ({"rope_parameters": {"full_attention": PLAIN | {"rope_theta": 5.0}}}, PLAIN | {"rope_theta": 5.0}),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [1, 2]}}, PLAIN),
        (
            {"rope_scaling": LLAMA3 | {"original_max_position_embeddings": 512}},
            PLAIN | LLAMA3 | {"original_max_position_embeddings": 512},
        ),
    ],
)
def test_rope_is_read_in_every_spelling(config, expected):
    assert rope_parameters(config) == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        *(
            ({"rope_scaling": {"type": kind, "factor": 2.0}}, f"found {kind}")
            for kind in ("yarn", "dynamic", "longrope")
        ),
        ({"rope_parameters": {"rope_type": "proportional", "partial_rotary_factor": 0.25}}, "found proportional"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "found yarn"),
        ({"rope_scaling": {"type": "linear"}}, "factor of its RoPE is no positive number.*found nothing"),
        ({"rope_scaling": LLAMA3}, "original_max_position_embeddings of its RoPE"),
        ({"rope_theta": float("nan")}, "rope_theta of its RoPE is no positive number"),
        ({"rope_theta": -1.0}, "rope_theta of its RoPE"),
        ({"rope_parameters": PLAIN | {"attention_factor": 0.7}}, "RoPE setting attention_factor is not supported"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor is out of range"),
        ({"rope_scaling": "linear"}, "its RoPE settings are no table"),
    ],
)
def test_other_ropes_are_refused(config, message):
    with pytest.raises(TapsError, match=message):
        rope_parameters(config)


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_a_part_of_each_head_is_rotated_as_the_library_does(share):
    config = PhiConfig(hidden_size=64, num_attention_heads=4, rope_parameters=PLAIN | {"partial_rotary_factor": share})
    states, positions = torch.randn(9, 4, 16), torch.arange(9) * 7
    cos, sin = PhiRotaryEmbedding(config)(states, positions[None])
    rotated = int(16 * share)
    first, _ = apply_rotary_pos_emb(*[states[..., :rotated].transpose(0, 1)[None]] * 2, cos, sin)
    expected = torch.cat((first[0].transpose(0, 1), states[..., rotated:]), dim=-1)
    frequencies = inverse_frequencies(rope_parameters(config.to_dict()), 16)
    found = rotate(states, positions[:, None].float() * frequencies)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_a_head_has_a_rope_of_its_own(tmp_path):
    own = PLAIN | {"rope_theta": 7.0, "partial_rotary_factor": 0.5}
    config = replace(CONFIG, rope=own)
    save_drafter(tmp_path / "drafter", DraftModel(config).state_dict(), config, provenance={})
    target = write_target(tmp_path / "target")
    loaded = load_drafter(tmp_path / "drafter", target_config=json.loads((target / "config.json").read_text()))
    assert loaded.config.rope == own
    flags = [f"--drafter={tmp_path / 'drafter'}", f"--target={target}", f"--output={tmp_path / 'out'}"]
    with pytest.raises(TapsError, match=r"rotates whole heads only, expected no partial_rotary_factor, found 0\.5"):
        export_draft.main([*flags, "--flavour=eagle"])


def test_an_exported_head_keeps_its_own_rope(tmp_path):
    config = replace(CONFIG, rope=PLAIN | {"rope_theta": 7.0})
    save_drafter(tmp_path / "drafter", DraftModel(config).state_dict(), config, provenance={})
    flags = [f"--target={write_target(tmp_path / 'target')}", "--flavour=vllm"]
    export_draft.main([f"--drafter={tmp_path / 'drafter'}", f"--output={tmp_path / 'out'}", *flags])
    content = json.loads((tmp_path / "out" / "config.json").read_text())
    assert content["rope_theta"] == content["rope_parameters"]["rope_theta"] == 7.0
    export_draft.main([f"--check={tmp_path / 'out'}", *flags])


# --- a head's own config ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(
            ({name: value}, name)
            for name, value in {
                "mlp_bias": True,
                "attn_logit_softcapping": 50.0,
                "final_logit_softcapping": 30.0,
                "logit_scale": 0.0625,
                "attention_multiplier": 0.5,
                "residual_multiplier": 0.22,
                "query_pre_attn_scalar": 224,
                "use_qk_norm": True,
                "rope_interleave": True,
                "num_local_experts": 4,
                "draft_vocab_size": 16,
                "quantization_config": {"quant_method": "fp8"},
                "eagle_config": {"use_aux_hidden_state": True},
                "norm_before_residual": True,
            }.items()
        ),
        ({"hidden_act": "gelu"}, "unsupported activation.*found gelu"),
        ({"hidden_activation": "gelu_pytorch_tanh"}, "unsupported activation.*found gelu_pytorch_tanh"),
        ({"sliding_window": 512}, "sliding-window attention, found 512"),
        ({"layer_types": ["sliding_attention"]}, "without full attention"),
        ({"family": ["eagle2"]}, "its draft family is no name"),
    ],
)
def test_a_head_that_is_another_model_is_refused(change, message):
    with pytest.raises(TapsError, match=f"here: .*{message}"):
        head_config("here", CONFIG.to_json() | change)


@pytest.mark.parametrize(
    "change",
    [
        {"mlp_bias": False, "attention_dropout": 0.0, "pretraining_tp": 1, "use_cache": True},
        {"sliding_window": 512, "use_sliding_window": False},
        {"query_pre_attn_scalar": 8, "attention_multiplier": 8**-0.5, "residual_multiplier": 1.0},
        {"hidden_act": "swish", "logit_scale": 1},
        {"num_local_experts": 0, "qk_norm": None},
        {"layer_types": ["full_attention"], "draft_vocab_size": CONFIG.vocab_size, "quantization_config": None},
    ],
)
def test_keys_that_change_nothing_pass(change):
    assert head_config("here", CONFIG.to_json() | change) == CONFIG


@pytest.mark.parametrize("content", [[], None, "x", 1])
def test_a_config_that_is_no_object_is_refused(content):
    with pytest.raises(TapsError, match=r"not the config\.json of a model, expected an object"):
        head_config("here", content)


# --- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hidden_size", "rms_norm_eps", "vocab_size", "max_position_embeddings"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "64", [64]])
def test_sizes_are_positive_numbers(name, value):
    config: dict[str, Any] = CONFIG.to_json() | {name: value}
    with pytest.raises(TapsError, match=f"{name} is no positive number"):
        DrafterConfig.from_json(config)


def test_heads_divide():
    with pytest.raises(TapsError, match="num_key_value_heads does not divide"):
        DrafterConfig.from_json(CONFIG.to_json() | {"num_key_value_heads": 3})


@pytest.mark.parametrize("name", ["logits_scaling", "logit_scale", "final_logit_softcapping", "lm_head_multiplier"])
def test_scaled_logits_are_refused_and_plain_ones_are_not(name):
    for value in (None, 1, 1.0):
        check_logits("here", {name: value})
    with pytest.raises(TapsError, match=f"{name} is not supported"):
        check_logits("here", {name: 8.0})
