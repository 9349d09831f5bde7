"""What a strategy is: a function from trees and history to the trees to verify, registered with its traits.

Shape letters: P trees (positions), K drafters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from taps.decoding.history import History
from taps.decoding.trees import Trees

CALIBRATED = "_calibrated"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of all strategies.

    Attributes:
        num_draft_tokens: Nodes of one drafter's tree (root not counted).
        decay: Factor per cycle on what earlier cycles accepted (history strategies).
        prior: Accepted tokens that every drafter is credited with before the first cycle (merged_adaptive).
        seed: Seed of `random`.
        inverse_temperatures: One factor per drafter for the `_calibrated` forms; from `taps.calibrate`.
    """

    num_draft_tokens: int
    decay: float = 0.9
    prior: float = 1.0
    seed: int = 0
    inverse_temperatures: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The trees to verify.

    Attributes:
        trees: P trees.
        chosen: int64 [P] index of the drafter the tree belongs to, MERGED for a merged one.
        score: float64 [P] the signal of the choice; NaN where there is none.
    """

    trees: Trees
    chosen: np.ndarray
    score: np.ndarray


Propose = Callable[[Sequence[Trees], History, Options], Proposal]
Drafts = Callable[[History, Options], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """A registered strategy; call it like its function.

    Attributes:
        name: As in the config.
        propose: The function.
        drafts: (history, options) -> bool [P, K], which drafters must draft in the coming cycle. The others' trees may
            be left empty (`trees.no_trees`).
        one_drafter: Whether it takes exactly one drafter; the others take two or more.
        node_factor: Nodes that it wants of each drafter, in units of `Options.num_draft_tokens`.
        uses_history: Whether the proposal depends on earlier cycles; if not, replay evaluates all positions at once.
        needs_future: Whether it reads `History.hindsight`; live decoding refuses it.
        calibrated: Whether scores are scaled by `Options.inverse_temperatures` first.
    """

    name: str
    propose: Propose
    drafts: Drafts
    one_drafter: bool = False
    node_factor: int = 1
    uses_history: bool = False
    needs_future: bool = False
    calibrated: bool = False

    def num_nodes(self, options: Options) -> int:
        """Returns the nodes that each drafter must draft."""
        return self.node_factor * options.num_draft_tokens

    def __call__(self, trees: Sequence[Trees], history: History, options: Options) -> Proposal:
        """Returns the trees to verify; `trees` is one batch per drafter, `num_nodes(options)` columns each."""
        if self.calibrated:
            trees = [_scaled(batch, factor) for batch, factor in zip(trees, options.inverse_temperatures, strict=True)]
        return self.propose(trees, history, options)


REGISTRY: dict[str, Strategy] = {}


def all_drafters(history: History, options: Options) -> np.ndarray:
    """Returns True for every drafter."""
    return np.ones(history.num_accepted.shape, dtype=bool)


def strategy(
    *,
    drafts: Drafts = all_drafters,
    one_drafter: bool = False,
    node_factor: int = 1,
    uses_history: bool = False,
    needs_future: bool = False,
    calibratable: bool = False,
) -> Callable[[Propose], Propose]:
    """Registers a function under its name and, if `calibratable`, its `_calibrated` form; arguments as in Strategy."""

    def register(propose: Propose) -> Propose:
        entry = Strategy(
            name=propose.__name__,
            propose=propose,
            drafts=drafts,
            one_drafter=one_drafter,
            node_factor=node_factor,
            uses_history=uses_history,
            needs_future=needs_future,
        )
        REGISTRY[entry.name] = entry
        if calibratable:
            REGISTRY[entry.name + CALIBRATED] = replace(entry, name=entry.name + CALIBRATED, calibrated=True)
        return propose

    return register


def _scaled(trees: Trees, inverse_temperature: float) -> Trees:
    """Returns the same trees with all log-probabilities multiplied; the order of nodes stays.

    Entropies are means of minus log-probabilities, so they take the same factor.
    """
    factor = np.float32(inverse_temperature)
    return replace(trees, scores=trees.scores * factor, entropies=trees.entropies * factor)
