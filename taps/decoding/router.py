"""A router that costs nothing: which drafter suits a prompt, said by the target's feature of the prompt's last token.

Prefill has computed that feature before anything is drafted, and traces hold it. Multinomial logistic regression with
an L2 penalty on standardised features; labels are the drafters with the larger acceptance length of their own on
held-out answers. The fit is convex; PyTorch's L-BFGS finds its one minimum (no other library is in the environment).

Shape letters: S prompts, K drafters, h hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from taps.plumbing.artefacts import read_json
from taps.plumbing.lineage import check_fitted_for


def read_router(path: Path, drafters: Mapping[str, str | None]) -> dict[str, list[float]]:
    """Returns drafter -> bias and weights [1 + h] of a router file; arguments and errors as of `check_fitted_for`."""
    check_fitted_for(path, drafters, kind="router")
    weights: dict[str, list[float]] = read_json(path, kind="router")["weights"]
    return weights


def fit_router(features: np.ndarray, labels: np.ndarray, *, num_drafters: int, penalty: float) -> np.ndarray:
    """Returns float64 [K, 1 + h]: bias and weights on raw features whose largest product names the drafter.

    Args:
        features: float [S, h] of each prompt's last token.
        labels: int [S] the better drafter.
        num_drafters: K, some of which may win no prompt.
        penalty: Half the weight on the squared weights (not on biases), per prompt; features are standardised.
    """
    import torch

    centre, scale = features.mean(axis=0, dtype=np.float64), features.std(axis=0, dtype=np.float64)
    scale = np.where(scale > 0, scale, 1.0)
    x = torch.from_numpy((features - centre) / scale)
    y = torch.from_numpy(labels.astype(np.int64))
    weights = torch.zeros((num_drafters, x.shape[1]), dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(num_drafters, dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS([weights, bias], max_iter=500, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        solver.zero_grad()
        fit = torch.nn.functional.cross_entropy(x @ weights.T + bias, y)
        value = fit + 0.5 * penalty * (weights.square().sum() + 1e-6 * bias.square().sum())
        value.backward()
        return value

    solver.step(loss)
    raw = weights.detach().numpy() / scale
    return np.concatenate([(bias.detach().numpy() - raw @ centre)[:, None], raw], axis=1)


def choose(features: np.ndarray, router: np.ndarray) -> np.ndarray:
    """Returns int64 [S]: the drafter chosen for each prompt."""
    return (features.astype(np.float64) @ router[:, 1:].T + router[:, 0]).argmax(axis=1)


def left_out_accuracy(features: np.ndarray, labels: np.ndarray, *, num_drafters: int, penalty: float) -> float:
    """Returns the share of prompts whose label a router fitted on all others finds; NaN for fewer than two."""
    if len(labels) < 2:
        return float("nan")
    every = np.arange(len(labels))
    hits = [
        choose(features[place : place + 1], fit_router(
            features[every != place], labels[every != place], num_drafters=num_drafters, penalty=penalty
        ))[0] == labels[place]
        for place in every
    ]  # fmt: skip
    return float(np.mean(hits))
