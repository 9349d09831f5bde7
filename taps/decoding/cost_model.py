"""From measured forward times to tokens per second: what makes a longer acceptance a faster decoder, or not.

    tokens/s = emitted tokens / sum over cycles of (num_drafted x draft_s + target_s(num_nodes + 1) + overhead_s)

with one drafter's tree costing draft_s (by its nodes), one target forward over root and nodes target_s, and all that
lies outside the models overhead_s. Prefill is left out, as it is from tau.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taps.decoding.strategy import Options, Strategy


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """Times measured on one machine, in seconds.

    Attributes:
        target_tokens: Tokens of a target forward at which it was timed, ascending, from 1.
        target_s: Its times.
        draft_nodes: Nodes of a tree at which drafting was timed, ascending.
        draft_s: Its times.
        overhead_one_s: Time of a cycle outside the models, for strategies of one drafter.
        overhead_many_s: The same for strategies that look at the trees of two.
        plain_s: Time of a token in plain decoding.
    """

    target_tokens: Sequence[float]
    target_s: Sequence[float]
    draft_nodes: Sequence[float]
    draft_s: Sequence[float]
    overhead_one_s: float
    overhead_many_s: float
    plain_s: float

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> CostModel:
        """Returns the model from the content of a cost file."""
        return cls(
            target_tokens=[row["num_tokens"] for row in content["target"]],
            target_s=[row["median_s"] for row in content["target"]],
            draft_nodes=[row["num_nodes"] for row in content["draft"]],
            draft_s=[row["median_s"] for row in content["draft"]],
            overhead_one_s=content["overhead_one_s"],
            overhead_many_s=content["overhead_many_s"],
            plain_s=content["plain_s"],
        )

    @property
    def plain_tokens_per_s(self) -> float:
        """Speed of plain decoding."""
        return 1 / self.plain_s

    def cycle_s(
        self, strategy: Strategy, num_draft_tokens: int, *, num_nodes: np.ndarray, num_drafted: np.ndarray
    ) -> np.ndarray:
        """Returns float [C]: the time of each cycle.

        Args:
            strategy: Decides how large a tree each drafter makes.
            num_draft_tokens: As in `Options`.
            num_nodes: int [C] nodes verified, root not counted.
            num_drafted: int [C] drafters that drafted.
        """
        drafted = strategy.num_nodes(Options(num_draft_tokens=num_draft_tokens))
        draft_s = interpolate(drafted, self.draft_nodes, self.draft_s)
        target_s = interpolate(np.asarray(num_nodes) + 1, self.target_tokens, self.target_s)
        overhead_s = self.overhead_one_s if strategy.one_drafter else self.overhead_many_s
        return np.asarray(num_drafted) * draft_s + target_s + overhead_s

    def tokens_per_s(
        self,
        strategy: Strategy,
        num_draft_tokens: int,
        *,
        emitted: np.ndarray,
        num_nodes: np.ndarray,
        num_drafted: np.ndarray,
    ) -> float:
        """Returns the predicted speed over these cycles, NaN without any; arguments as in `cycle_s` and Cycles."""
        seconds = self.cycle_s(strategy, num_draft_tokens, num_nodes=num_nodes, num_drafted=num_drafted).sum()
        return float(np.sum(emitted) / seconds) if len(num_nodes) else float("nan")


def interpolate(at: Any, known: Sequence[float], values: Sequence[float]) -> np.ndarray:
    """Returns `values` between the `known` points by straight lines; beyond the last by the last two, before the first
    the first value."""
    at, last = np.asarray(at, dtype=np.float64), known[-1]
    inside = np.interp(at, known, values)
    if len(known) < 2:
        return inside
    slope = max((values[-1] - values[-2]) / (last - known[-2]), 0.0)  # noise must not make large trees free
    return inside + np.maximum(at - last, 0) * slope
