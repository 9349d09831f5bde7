"""What a strategy is: a function from trees and history to the trees to verify, registered with its traits.

The strategies themselves are in `taps.decoding.strategies`; `find` gives one by name.

Shape letters: P trees (positions), K drafters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from taps.decoding.history import History
from taps.decoding.trees import Trees
from taps.plumbing.catalogue import Catalogue
from taps.plumbing.errors import TapsError

CALIBRATED = "_calibrated"


class Kind(StrEnum):
    """What a strategy verifies, in the order of the report."""

    SINGLE = "single"  # the tree of the one drafter it takes
    ROUTED = "routed"  # the tree of one of several drafters, chosen by what can be known
    MERGED = "merged"  # one tree made of several drafters' trees
    BOUND = "bound"  # the tree of one of several drafters, chosen by chance or by hindsight: something to compare with


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of all strategies.

    Attributes:
        num_draft_tokens: Nodes of one drafter's tree (root not counted).
        decay: Factor per cycle on what earlier cycles accepted (history strategies).
        prior: Accepted tokens that every drafter is credited with before the first cycle (merged_adaptive).
        seed: Seed of `random`.
        inverse_temperatures: One factor per drafter for the `_calibrated` forms; from `taps.calibrate`.
        target_s: Seconds of a target forward over a root and 0, 1, 2 ... nodes, for the `_costed` strategies.
        draft_s: Seconds in which one drafter drafts 1, 2 ... levels, for the same.
        overhead_s: Seconds of a cycle outside the models, for the same.
        router: One row per drafter, bias before weights, for `routed_prompt`; from `taps.fit_router`.
    """

    num_draft_tokens: int
    decay: float = 0.9
    prior: float = 1.0
    seed: int = 0
    inverse_temperatures: tuple[float, ...] = ()
    target_s: tuple[float, ...] = ()
    draft_s: tuple[float, ...] = ()
    overhead_s: float = 0.0
    router: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The trees to verify.

    Attributes:
        trees: One tree per position, P of them.
        chosen: int64 [P] index of the drafter the tree belongs to, MERGED for a merged one.
        score: float64 [P] the signal of the choice; NaN where there is none.
        num_levels: int64 [P] levels that all drafters together drafted; None if each drafted all of its own.
    """

    trees: Trees
    chosen: np.ndarray
    score: np.ndarray
    num_levels: np.ndarray | None = None


Propose = Callable[[Sequence[Trees], History, Options], Proposal]
Drafts = Callable[[History, Options], np.ndarray]
GoesOn = Callable[[Trees, int, Options], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """A registered strategy; call it like its function.

    Attributes:
        name: As in the config.
        title: In print.
        kind: Whose tree it verifies.
        propose: The function that makes the tree.
        drafts: (history, options) -> bool [P, K], which drafters must draft in the coming cycle. The others' trees may
            be left empty (`trees.no_trees`).
        goes_on: (one drafter's trees so far, levels drafted, options) -> bool [P], whether it drafts another level;
            None: always. It must not depend on nodes that a larger budget would add.
        look: (colour, marker) in figures; grey dots by default.
        node_factor: Nodes that it wants of each drafter, in units of `Options.num_draft_tokens`.
        swept: Whether the study's further node budgets are replayed, too.
        uses_history: Whether the proposal depends on earlier cycles; if not, replay evaluates all positions at once.
        needs_future: Whether it reads `History.hindsight`; live decoding refuses it.
        constant: Whether it picks one drafter for a whole benchmark, so that its shares say nothing.
        uses_prompt: Whether it reads `History.prompt_features`.
        calibrated: Whether scores are scaled by `Options.inverse_temperatures` first.
    """

    name: str
    title: str
    kind: Kind
    propose: Propose
    drafts: Drafts
    goes_on: GoesOn | None = None
    look: tuple[str, str] | None = None
    node_factor: int = 1
    swept: bool = False
    uses_history: bool = False
    needs_future: bool = False
    constant: bool = False
    uses_prompt: bool = False
    calibrated: bool = False

    @property
    def costed(self) -> bool:
        """Whether it needs the costs in `Options`."""
        return self.goes_on is not None

    @property
    def one_drafter(self) -> bool:
        """Whether it takes exactly one drafter; the others take two or more."""
        return self.kind is Kind.SINGLE

    def num_nodes(self, options: Options) -> int:
        """Returns the nodes that each drafter must draft."""
        return self.node_factor * options.num_draft_tokens

    def __call__(self, trees: Sequence[Trees], history: History, options: Options) -> Proposal:
        """Returns the trees to verify; `trees` is one batch per drafter, `num_nodes(options)` columns each."""
        if self.calibrated:
            trees = [scaled(batch, factor) for batch, factor in zip(trees, options.inverse_temperatures, strict=True)]
        return self.propose(trees, history, options)

    def drafts_on(self, trees: Trees, levels: int, drafter: int, options: Options) -> bool:
        """Returns whether a drafter drafts another level of its tree [1, N], of which `levels` are drafted."""
        if self.goes_on is None:
            return True
        if self.calibrated:
            trees = scaled(trees, options.inverse_temperatures[drafter])
        return bool(self.goes_on(trees, levels, options)[0])


STRATEGIES: Catalogue[Strategy] = Catalogue("taps.decoding.strategies", what="strategy")


def find(name: str, *, live: bool = False) -> Strategy:
    """Returns the strategy of that name.

    Args:
        name: As in the config.
        live: Whether it will run without a recording.

    Raises:
        TapsError: unknown, or in need of the future while live.
    """
    found = STRATEGIES.find(name)
    if live and found.needs_future:
        allowed = ", ".join(other.name for other in STRATEGIES.values() if not other.needs_future)
        raise TapsError(
            f"strategy {name!r}", "needs the recorded future, so it runs in replay only", expected=f"one of {allowed}"
        )
    return found


def all_drafters(history: History, options: Options) -> np.ndarray:
    """Returns True for every drafter."""
    return np.ones(history.num_accepted.shape, dtype=bool)


def strategy(
    *,
    title: str,
    kind: Kind,
    look: tuple[str, str] | None = None,
    drafts: Drafts = all_drafters,
    goes_on: GoesOn | None = None,
    node_factor: int = 1,
    swept: bool = False,
    uses_history: bool = False,
    needs_future: bool = False,
    constant: bool = False,
    uses_prompt: bool = False,
    calibrated: bool = False,
    calibratable: bool = False,
) -> Callable[[Propose], Strategy]:
    """Makes a strategy of a function and registers it under its name and, if `calibratable`, its `_calibrated` form.

    Arguments as in Strategy.
    """

    def register(propose: Propose) -> Strategy:
        entry = Strategy(
            name=propose.__name__,
            title=title,
            kind=kind,
            propose=propose,
            drafts=drafts,
            goes_on=goes_on,
            look=look,
            node_factor=node_factor,
            swept=swept,
            uses_history=uses_history,
            needs_future=needs_future,
            constant=constant,
            uses_prompt=uses_prompt,
            calibrated=calibrated,
        )
        forms = [entry]
        if calibratable:
            name = entry.name + CALIBRATED
            forms.append(replace(entry, name=name, title=f"{title}, calibrated", calibrated=True, swept=False))
        for form in forms:
            STRATEGIES.register(form.name, form, module=propose.__module__)
        return entry

    return register


def scaled(trees: Trees, inverse_temperature: float) -> Trees:
    """Returns the same trees with all log-probabilities multiplied; the order of nodes stays.

    Entropies are means of minus log-probabilities, so they take the same factor.
    """
    factor = np.float32(inverse_temperature)
    return replace(trees, scores=trees.scores * factor, entropies=trees.entropies * factor)
