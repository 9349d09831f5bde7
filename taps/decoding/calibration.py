"""How far a drafter's probabilities can be believed, and the one temperature that makes them most believable.

A node that the target judged (`taps.decoding.node_groups.judged_nodes`) is a bet: the drafter gave it probability
exp(s) under its parent, and the recorded text either went on with it or did not. Scaling every log-probability by one
inverse temperature b turns the bet into exp(b s): b < 1 mends a timid drafter, b > 1 an over-confident one. Products
along a path scale alike, so b applies to the cumulative scores of a tree, whose order it keeps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from taps.decoding.node_groups import conditional_scores, judged_nodes
from taps.decoding.walk import Bank, Text
from taps.plumbing.artefacts import read_json
from taps.plumbing.lineage import check_fitted_for

NEUTRAL = 1.0  # inverse temperature that leaves all as it is
LARGEST_SCORE = -1e-6  # nats; a probability of 1 would make a single miss infinitely unlikely
BOUNDS = (1 / 64, 64.0)  # of the inverse temperature
_BISECTIONS = 60


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """Predicted against true acceptance in equal-width bins of the prediction; empty bins are left out.

    Attributes:
        expected_calibration_error: Mean over nodes of |acceptance - confidence| of their bin; NaN without nodes.
        nll_nats: Mean negative log-likelihood per node; NaN without nodes.
        bins: (lower edge, nodes, mean confidence, share accepted) of each bin.
    """

    expected_calibration_error: float
    nll_nats: float
    bins: list[tuple[float, int, float, float]]

    def to_json(self) -> dict[str, Any]:
        """Returns the fields, ready for JSON."""
        return asdict(self)


def read_factors(path: Path, drafters: Mapping[str, str | None]) -> dict[str, float]:
    """Returns drafter -> inverse temperature of a calibration file; arguments and errors as of `check_fitted_for`."""
    check_fitted_for(path, drafters, kind="calibration")
    fits = read_json(path, kind="calibration")["drafters"]
    return {name: fit["inverse_temperature"] for name, fit in fits.items()}


def bets(bank: Bank, text: Text) -> tuple[np.ndarray, np.ndarray]:
    """Returns (float64 [B] log-probability given the parent, bool [B] whether accepted) of all judged nodes."""
    judged = judged_nodes(bank.trees, bank.matched, bank.depth, text.remaining)
    return conditional_scores(bank.trees)[judged].astype(np.float64), bank.matched[judged]


def fit_inverse_temperature(scores: np.ndarray, accepted: np.ndarray) -> float:
    """Returns the inverse temperature under which the bets' outcomes are most likely, within BOUNDS.

    The negative log-likelihood, -sum over accepted of b s - sum over rejected of log(1 - exp(b s)), is convex in b; its
    slope is bisected.

    Args:
        scores: float [B] log-probabilities (nats).
        accepted: bool [B] whether the text went that way.

    Raises:
        ValueError: all bets have the same outcome, so the likelihood has no maximum.
    """
    if accepted.all() or not accepted.any():
        raise ValueError("all nodes have the same outcome")
    scores = np.minimum(scores, LARGEST_SCORE)
    won, lost = -scores[accepted].sum(), scores[~accepted]

    def slope(factor: float) -> float:
        return won + (lost / np.expm1(-factor * lost)).sum()

    low, high = BOUNDS
    for _ in range(_BISECTIONS):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return float(np.sqrt(low * high))


def reliability(scores: np.ndarray, accepted: np.ndarray, factor: float = 1.0, num_bins: int = 10) -> Reliability:
    """Returns how well exp(factor * scores) predicts `accepted`; arguments as in `fit_inverse_temperature`."""
    if not len(scores):
        return Reliability(expected_calibration_error=math.nan, nll_nats=math.nan, bins=[])
    scaled = np.minimum(scores, LARGEST_SCORE) * factor
    confidence = np.exp(scaled)
    index = np.minimum((confidence * num_bins).astype(np.int64), num_bins - 1)
    count = np.bincount(index, minlength=num_bins)
    predicted = np.bincount(index, weights=confidence, minlength=num_bins)
    happened = np.bincount(index, weights=accepted, minlength=num_bins)
    return Reliability(
        expected_calibration_error=float(np.abs(predicted - happened).sum() / len(scores)),
        nll_nats=float(-np.where(accepted, scaled, np.log(-np.expm1(scaled))).mean()),
        bins=[
            (b / num_bins, int(count[b]), float(predicted[b] / count[b]), float(happened[b] / count[b]))
            for b in np.flatnonzero(count).tolist()
        ],
    )
