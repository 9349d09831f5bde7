"""Rotary position embedding (RoPE) of the draft model: the target's own frequencies, without importing transformers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from taps.plumbing.errors import TapsError


def rope_parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the RoPE settings of a target's config.json, whichever generation of the library wrote it.

    Newer files hold `rope_parameters` with `rope_theta` inside; older ones `rope_theta` beside `rope_scaling`.
    """
    found = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    found["rope_type"] = found.get("rope_type") or found.pop("type", None) or "default"
    found.setdefault("rope_theta", config.get("rope_theta") or 10000.0)
    return {name: value for name, value in found.items() if value is not None and name != "type"}


def inverse_frequencies(parameters: Mapping[str, Any], head_dim: int) -> torch.Tensor:
    """Returns fp32 [head_dim / 2], radians per position.

    Raises:
        TapsError: a `rope_type` other than default, linear or llama3.
    Source: Llama 3.1's frequency-dependent scaling for `llama3`; position interpolation for `linear`.
    """
    # on the CPU whatever the default: `arange` on the meta device imports two seconds of torch's compiler
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
    frequencies = 1.0 / parameters["rope_theta"] ** exponents
    match parameters["rope_type"]:
        case "default":
            return frequencies
        case "linear":
            return frequencies / parameters["factor"]
        case "llama3":
            return _llama3(frequencies, parameters)
        case other:
            raise TapsError(
                "target config", "this RoPE scaling is not supported", expected="default, linear or llama3", found=other
            )


def _llama3(frequencies: torch.Tensor, parameters: Mapping[str, Any]) -> torch.Tensor:
    """Long waves are slowed by `factor`, short ones kept, those between blended linearly in their count of turns."""
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    turns = parameters["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    share_kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies * (share_kept + (1.0 - share_kept) / parameters["factor"])


def rotate(states: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Returns `states` rotated by position.

    Args:
        states: [T, heads, head_dim] queries or keys.
        angles: fp32 [T, head_dim / 2], position times inverse frequency.
    """
    cos, sin = angles.cos()[:, None].to(states.dtype), angles.sin()[:, None].to(states.dtype)
    first, second = states.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
