"""Keys of a config.json that change a model's mathematics: what our draft layer implements, and what is refused.

The draft layer is Llama's: SiLU, RMS norm, no bias in MLP and output projection, scores scaled by 1 / sqrt(head size),
logits = lm_head(feature). A *head* whose config.json asks for anything else would silently be another model; a *target*
may scale what it likes inside its own layers, since only its ends and its sizes are borrowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taps.plumbing.errors import TapsError

ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "activation")
SILU = ("silu", "swish")
LOGIT_SCALES = ("final_logit_softcapping", "logits_scaling", "logit_scale", "logits_soft_cap", "lm_head_multiplier")

NEEDED = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
    "rms_norm_eps",
)
_COUNTS = (  # whole numbers, where they are given
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "num_hidden_layers",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
)
_MOST = 2**31 - 1
_OFF = (  # of a head: absent, null or false
    "mlp_bias",
    "use_bias",
    "clip_qkv",
    "attn_logit_softcapping",
    "use_qk_norm",
    "qk_norm",
    "qk_layernorm",
    "alibi",
    "parallel_attn",
    "use_parallel_residual",
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "kv_lora_rank",
    "rotary_dim",
    "rope_interleave",
    "no_rope_layers",
    "attn_temperature_tuning",
    "quantization_config",
    "eagle_config",  # of EAGLE-3, whose heads read several layers
    "norm_before_fc",
    "norm_before_residual",
    "norm_output",
)
_ONE = ("embedding_multiplier", "residual_multiplier", "scale_emb", "scale_depth")  # of a head: absent, null or 1


def check_layer_sizes(where: object, config: Mapping[str, Any]) -> None:
    """Checks what a draft layer's shape follows from, in a target's or a draft model's config.json.

    Raises:
        TapsError: a size is missing or no positive number, heads do not divide, or the activation is not SiLU.
    """
    for name in NEEDED:
        if config.get(name) is None:
            raise TapsError(where, f"lacks '{name}'", remedy="only Llama-like decoders can be drafted")
    check_numbers(where, config)
    heads, groups = config["num_attention_heads"], config.get("num_key_value_heads") or config["num_attention_heads"]
    if heads % groups:
        problem = "num_key_value_heads does not divide num_attention_heads"
        raise TapsError(where, problem, expected=f"a divisor of {heads}", found=groups)
    for name in ACTIVATIONS:
        if config.get(name) not in (None, *SILU):
            raise TapsError(where, "unsupported activation", expected="silu", found=config[name])


def check_numbers(where: object, config: Mapping[str, Any]) -> None:
    """Checks the sizes that a config.json gives, before a library takes them at their word.

    Raises:
        TapsError: one is no whole number from 1 to 2^31 - 1, or the norms' epsilon is not small and positive.
    """
    for name in _COUNTS:
        value = config.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MOST):
            raise TapsError(where, f"{name} is no positive number", expected=f"1 to {_MOST}", found=_short(value))
    epsilon = config.get("rms_norm_eps")
    is_number = isinstance(epsilon, int | float) and not isinstance(epsilon, bool)
    if epsilon is not None and not (is_number and 0 < epsilon < 1):
        raise TapsError(where, "rms_norm_eps is no positive number", expected="above 0, below 1", found=_short(epsilon))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def check_logits(where: object, config: Mapping[str, Any]) -> None:
    """Checks that a config.json scales or caps no logits.

    Raises:
        TapsError: it does, so that they are not a plain product with lm_head.
    """
    for name in LOGIT_SCALES:
        if config.get(name) not in (None, 1, 1.0):
            problem = f"{name} is not supported"
            raise TapsError(where, problem, expected="logits = lm_head(feature)", found=config[name])


def check_head(where: object, config: Mapping[str, Any]) -> None:
    """Checks that a draft model's config.json asks for our draft layer and nothing else.

    Raises:
        TapsError: a key asks for other mathematics.
    """
    check_layer_sizes(where, config)
    check_logits(where, config)
    head_size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    neutral = {
        **dict.fromkeys(_OFF),
        **dict.fromkeys(_ONE, 1),
        "query_pre_attn_scalar": head_size,
        "draft_vocab_size": config["vocab_size"],
        "attention_multiplier": head_size**-0.5,
    }
    for name, value in neutral.items():
        found = config.get(name)
        if found and found != value:
            raise TapsError(where, f"{name} is not supported in a draft model", expected=value, found=found)
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        raise TapsError(where, "a draft model with sliding-window attention", found=config["sliding_window"])
    if config.get("layer_types") not in (None, [], ["full_attention"]):
        raise TapsError(where, "a draft model without full attention", found=config["layer_types"])
    if not isinstance(config.get("family", ""), str):
        raise TapsError(where, "its draft family is no name", found=config["family"])
