"""Weighted mean of draft models: theta = sum_k w_k theta_k, in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import torch


def weighted_mean(models: Sequence[Mapping[str, torch.Tensor]], weights: Sequence[float]) -> dict[str, torch.Tensor]:
    """Returns the weighted mean of each tensor, in that tensor's own dtype.

    Models of weight 0 are left out, so a single model of weight 1 comes back bit for bit.

    Args:
        models: Name -> tensor each, the same names, shapes and dtypes.
        weights: One per model; they sum to 1.
    """
    counted = [(model, weight) for model, weight in zip(models, weights, strict=True) if weight != 0]
    mean = {}
    for name, like in models[0].items():
        parts = [weight * model[name].to(torch.float32) for model, weight in counted]
        mean[name] = reduce(torch.add, parts).to(like.dtype)  # torch.sum would start at +0 and lose the sign of -0
    return mean
