"""Which targets can be drafted for: decoders with full attention in every layer, judged by their config.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taps.plumbing.errors import TapsError

_RECURRENT_KEYS = ("ssm_cfg", "state_size", "lru_width", "rescale_every", "linear_num_key_heads", "attn_layer_period")


def check_architecture(config: Mapping[str, Any], *, where: object) -> None:
    """Checks that a target is a decoder with full attention in every layer.

    Args:
        config: The content of a config.json.
        where: What error messages name.

    Raises:
        TapsError: encoder-decoder, sliding-window, chunked or recurrent layers, nested (multimodal) or quantised model.
    """

    def refuse(problem: str, found: object) -> None:
        raise TapsError(
            where,
            problem,
            expected="a causal language model with full attention in every layer",
            found=found,
            remedy="choose another target",
        )

    if config.get("is_encoder_decoder"):
        refuse("encoder-decoder models cannot be drafted for", config.get("model_type"))
    if "text_config" in config:
        refuse("multimodal models are not supported", config.get("model_type"))
    kinds = config.get("layer_types") or []
    others = sorted({str(kind) for kind in (kinds if isinstance(kinds, list) else [kinds])} - {"full_attention"})
    if others:
        refuse("some layers have no full attention", ", ".join(others))
    recurrent = sorted(key for key in config if key in _RECURRENT_KEYS or key.startswith("mamba"))
    if recurrent or not config.get("num_attention_heads", config.get("n_head")):
        refuse("recurrent layers cannot verify a tree", ", ".join(recurrent) or "no attention heads")
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        refuse("sliding-window attention", f"sliding_window {config['sliding_window']}")
    if config.get("quantization_config"):
        quantised = config["quantization_config"]
        method = quantised.get("quant_method", "unknown") if isinstance(quantised, Mapping) else quantised
        refuse("quantised weights: the draft model needs the plain embedding and head", method)
