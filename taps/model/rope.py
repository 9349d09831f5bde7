"""Rotary position embedding (RoPE) of the draft model: the target's own frequencies, without importing transformers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import torch

from taps.plumbing.errors import TapsError

_NEEDED = {
    "default": ("rope_theta",),
    "linear": ("rope_theta", "factor"),
    "llama3": ("rope_theta", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
"""RoPE type -> the settings that it takes. Others (yarn, dynamic, longrope) also scale the attention: refused."""

PARTIAL = "partial_rotary_factor"  # the share of each head's channels that is rotated, the first ones
_UNUSED = {"type", "original_max_position_embeddings", "mrope_section", "mrope_interleaved"}  # no part in text alone


def rope_parameters(config: Mapping[str, Any], *, where: object = "target config") -> dict[str, Any]:
    """Returns the RoPE settings of a config.json that change something, whichever generation of the library wrote it.

    Newer files hold `rope_parameters` with `rope_theta` inside, perhaps one set per kind of layer; older ones
    `rope_theta` beside `rope_scaling`, and the rotated share of each head as `partial_rotary_factor` or `rotary_pct`.

    Args:
        config: Content of a target's or a draft model's config.json.
        where: What error messages name.

    Raises:
        TapsError: a type, a setting or a number that `inverse_frequencies` does not implement.
    """
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(given, Mapping):
        raise TapsError(where, "its RoPE settings are no table", expected="name: value", found=given)
    found = dict(given)
    if any(isinstance(value, Mapping) for value in found.values()):
        found = dict(found.get("full_attention") or {})
    kind = found.get("rope_type") or found.get("type") or "default"
    kind = "default" if kind == "mrope" else kind  # positions of text are the same in all its sections
    if kind not in _NEEDED:
        expected = "default, linear or llama3"
        raise TapsError(where, "this RoPE scaling is not supported", expected=expected, found=kind)
    found["rope_type"] = kind
    found["rope_theta"] = found.get("rope_theta") or config.get("rope_theta") or 10000.0
    found[PARTIAL] = found.get(PARTIAL) or config.get(PARTIAL) or config.get("rotary_pct") or 1.0
    used = {"rope_type", PARTIAL, *_NEEDED[kind]}
    if unknown := sorted(name for name in set(found) - used - _UNUSED if found[name] is not None):
        raise TapsError(where, f"RoPE setting {unknown[0]} is not supported", found=found[unknown[0]])
    for name in sorted(used - {"rope_type"}):
        _check_positive(where, name, found.get(name))
    if found[PARTIAL] > 1:
        raise TapsError(where, f"{PARTIAL} is out of range", expected="at most 1", found=found[PARTIAL])
    return {name: value for name, value in found.items() if name in used and (name, value) != (PARTIAL, 1.0)}


def _check_positive(where: object, name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        found = "nothing" if value is None else value
        raise TapsError(where, f"{name} of its RoPE is no positive number", expected="a number above 0", found=found)


def inverse_frequencies(parameters: Mapping[str, Any], head_dim: int) -> torch.Tensor:
    """Returns fp32 [R / 2], radians per position of the R rotated channels of a head.

    Args:
        parameters: As `rope_parameters` returns them.
        head_dim: Channels of a head; all are rotated, or the share `partial_rotary_factor`.

    Source: Llama 3.1's frequency-dependent scaling for `llama3`; position interpolation for `linear`.
    """
    rotated = int(head_dim * parameters.get(PARTIAL, 1.0))
    # on the CPU whatever the default: `arange` on the meta device imports two seconds of torch's compiler
    exponents = torch.arange(0, rotated, 2, dtype=torch.float32, device="cpu") / rotated
    frequencies = 1.0 / parameters["rope_theta"] ** exponents
    match parameters["rope_type"]:
        case "linear":
            return frequencies / parameters["factor"]
        case "llama3":
            return _llama3(frequencies, parameters)
    return frequencies


def _llama3(frequencies: torch.Tensor, parameters: Mapping[str, Any]) -> torch.Tensor:
    """Long waves are slowed by `factor`, short ones kept, those between blended linearly in their count of turns."""
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    turns = parameters["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    share_kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies * (share_kept + (1.0 - share_kept) / parameters["factor"])


def rotate(states: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Returns `states` rotated by position; channels behind the rotated ones pass as they are.

    Args:
        states: [T, heads, head_dim] queries or keys.
        angles: fp32 [T, R / 2], position times inverse frequency.
    """
    cos, sin = angles.cos()[:, None].to(states.dtype), angles.sin()[:, None].to(states.dtype)
    rotated, passed = states.tensor_split([2 * angles.shape[-1]], dim=-1)
    first, second = rotated.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, passed), dim=-1)
