"""From measured forward times to tokens per second: what makes a longer acceptance a faster decoder, or not.

    tokens/s = emitted tokens / sum over cycles of
               (num_drafted x draft_s(levels, nodes) + target_s(num_nodes) + overhead_s(num_drafted, nodes))

with draft_s the time of one drafter's tree, by the levels it drafts and, less, by the nodes it keeps, target_s that of
one target forward over root and nodes, and overhead_s all that lies outside the models. Prefill is left out, as it is
from tau.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taps.decoding.strategy import Options, Strategy


@dataclass(frozen=True, kw_only=True)
class DraftTimes:
    """Times of one drafter's tree of a number of levels.

    Attributes:
        num_levels: Levels drafted.
        num_nodes: Nodes kept at which it was timed, ascending.
        seconds: Its times.
    """

    num_levels: int
    num_nodes: Sequence[float]
    seconds: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """Times measured on one machine, in seconds.

    Attributes:
        target_tokens: Tokens of a target forward at which it was timed, ascending, from 1.
        target_s: Its times.
        draft: Drafting times by number of levels, ascending.
        overhead_one_s: Times of a cycle outside the models at `overhead_nodes`, when one drafter drafts.
        overhead_many_s: The same when two draft.
        plain_s: Time of a token in plain decoding.
        overhead_nodes: Nodes of a drafter's tree at which the overhead was timed, ascending.
    """

    target_tokens: Sequence[float]
    target_s: Sequence[float]
    draft: Sequence[DraftTimes]
    overhead_one_s: Sequence[float]
    overhead_many_s: Sequence[float]
    plain_s: float
    overhead_nodes: Sequence[float] = (0,)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> CostModel:
        """Returns the model from the content of a cost file."""
        default = content.get("depth", 5) + 1  # of files that know one depth
        levels = sorted({row.get("num_levels", default) for row in content["draft"]})
        draft = []
        for level in levels:
            rows = [row for row in content["draft"] if row.get("num_levels", default) == level]
            nodes, seconds = [row["num_nodes"] for row in rows], [row["median_s"] for row in rows]
            draft.append(DraftTimes(num_levels=level, num_nodes=nodes, seconds=seconds))
        overhead = content.get("overhead") or {  # files that know one size
            name: [{"num_nodes": 0, "median_s": content[f"overhead_{name}_s"]}] for name in ("one", "many")
        }
        return cls(
            target_tokens=[row["num_tokens"] for row in content["target"]],
            target_s=non_decreasing([row["median_s"] for row in content["target"]]),
            draft=draft,
            overhead_one_s=[row["median_s"] for row in overhead["one"]],
            overhead_many_s=[row["median_s"] for row in overhead["many"]],
            plain_s=content["plain_s"],
            overhead_nodes=[row["num_nodes"] for row in overhead["one"]],
        )

    @property
    def plain_tokens_per_s(self) -> float:
        """Speed of plain decoding."""
        return 1 / self.plain_s

    def overhead_s(self, strategy: Strategy, num_nodes: int) -> float:
        """Returns the time of a cycle outside the models if all drafters draft, each keeping `num_nodes` nodes."""
        return self._overhead_s(num_nodes, many=not strategy.one_drafter)

    def _overhead_s(self, num_nodes: int, *, many: bool) -> float:
        return float(interpolate(num_nodes, self.overhead_nodes, self.overhead_many_s if many else self.overhead_one_s))

    def target_forward_s(self, num_nodes: Any) -> np.ndarray:
        """Returns float, as `num_nodes`: the time of a target forward over a root and these nodes."""
        return interpolate(np.asarray(num_nodes) + 1, self.target_tokens, self.target_s)

    def draft_tree_s(self, num_levels: Any, num_nodes: int) -> np.ndarray:
        """Returns float, as `num_levels`: the time in which one drafter drafts so many levels and keeps the nodes."""
        known = [times.num_levels for times in self.draft]
        seconds = [float(interpolate(num_nodes, times.num_nodes, times.seconds)) for times in self.draft]
        return interpolate(num_levels, known, non_decreasing(seconds))

    def cycle_s(
        self,
        strategy: Strategy,
        num_draft_tokens: int,
        *,
        num_nodes: np.ndarray,
        num_drafted: np.ndarray,
        num_levels: np.ndarray | None = None,
        depth: int | None = None,
    ) -> np.ndarray:
        """Returns float [C]: the time of each cycle.

        Args:
            strategy: Decides how large a tree each drafter makes.
            num_draft_tokens: As in `Options`.
            num_nodes: int [C] nodes verified, root not counted.
            num_drafted: int [C] drafters that drafted.
            num_levels: int [C] levels that they drafted together, 0 for all of their own; all by default.
            depth: Of the drafters' trees; the deepest that was timed by default.
        """
        kept = strategy.num_nodes(Options(num_draft_tokens=num_draft_tokens))
        drafted = np.asarray(num_drafted)
        own = self.draft[-1].num_levels if depth is None else depth + 1
        total = np.zeros(len(drafted)) if num_levels is None else np.asarray(num_levels)
        levels = np.where(total > 0, total / np.maximum(drafted, 1), own)
        return (
            drafted * self.draft_tree_s(levels, kept)
            + self.target_forward_s(num_nodes)
            + np.where(drafted > 1, self._overhead_s(kept, many=True), self._overhead_s(kept, many=False))
        )

    def tokens_per_s(
        self, strategy: Strategy, num_draft_tokens: int, *, emitted: np.ndarray, depth: int | None = None, **cycles: Any
    ) -> float:
        """Returns the predicted speed over these cycles, NaN without any; arguments as in `cycle_s` and Cycles."""
        seconds = self.cycle_s(strategy, num_draft_tokens, depth=depth, **cycles).sum()
        return float(np.sum(emitted) / seconds) if len(emitted) else float("nan")

    def settings(self, strategy: Strategy, num_draft_tokens: int, *, depth: int) -> dict[str, Any]:
        """Returns the fields of `Options` that tell a `_costed` strategy what things cost, {} for any other.

        It verifies at most `num_draft_tokens` nodes, whatever the number of drafters: what one of them may.
        """
        if not strategy.costed:
            return {}
        kept = strategy.num_nodes(Options(num_draft_tokens=num_draft_tokens))
        levels = self.draft_tree_s(np.arange(1, depth + 2), kept)
        target_s = np.maximum.accumulate(self.target_forward_s(np.arange(num_draft_tokens + 1)))
        return {
            "target_s": tuple(target_s.tolist()),
            "draft_s": tuple(levels.tolist()),
            "overhead_s": self.overhead_s(strategy, kept),
        }


def non_decreasing(values: Sequence[float]) -> list[float]:
    """Returns the non-decreasing values that are nearest to these by least squares: more work never costs less.

    Source: the max-min formula of isotonic regression (Barlow et al., "Statistical Inference under Order Restrictions",
    1972).
    """
    size = len(values)
    means = [[float(np.mean(values[first:end])) for end in range(first + 1, size + 1)] for first in range(size)]
    return [max(min(means[first][at - first :]) for first in range(at + 1)) for at in range(size)]


def interpolate(at: Any, known: Sequence[float], values: Sequence[float]) -> np.ndarray:
    """Returns `values` between the `known` points by straight lines; beyond the last by the last two, before the first
    the first value."""
    at, last = np.asarray(at, dtype=np.float64), known[-1]
    inside = np.interp(at, known, values)
    if len(known) < 2:
        return inside
    slope = max((values[-1] - values[-2]) / (last - known[-2]), 0.0)  # noise must not make large trees free
    return inside + np.maximum(at - last, 0) * slope
