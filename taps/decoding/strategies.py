"""What to verify in a cycle: one pure function per strategy, shared by replay (P sequences) and live decoding (P = 1).

A strategy maps (one batch of trees per drafter, what this answer has shown so far, options) to the trees to verify. To
add one, write a function under `@strategy(...)` and name it in the config. A name with `_calibrated` behind it runs the
same function after scaling each drafter's log-probabilities by its fitted inverse temperature.

    name                      verifies, per cycle
    single, single_double     one drafter's tree; with twice the nodes
    routed_confidence_*       the tree with the larger mean of exp(score); _step: every cycle, _turn: the first decides
    routed_entropy_*          the tree with the smaller mean entropy
    routed_history            the tree of the drafter that would have accepted more in this answer so far
    merged_concat             all trees under one root, nothing removed
    merged_dedup              the same with equal paths counted once
    merged_matched            the best nodes of the union, as many as one drafter has
    merged_adaptive           merged_matched, each drafter weighted by its share of what was accepted so far
    random                    the tree of a drafter drawn anew every cycle
    oracle                    the tree with the longest accepted path            (knows the future: replay only)
    posthoc                   per question, the drafter more confident over its own whole answer  (likewise)
    best_single               the drafter with the largest tau on this benchmark                  (likewise)

`posthoc` is the published router: its percentages come from comparing finished runs, so it could not be deployed.

Shape letters: P trees (positions), N nodes, K drafters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from taps.decoding.history import MERGED, Hindsight, History
from taps.decoding.merging import concatenate, merge
from taps.decoding.registry import REGISTRY, Options, Proposal, Strategy, strategy
from taps.decoding.trees import Trees, select
from taps.plumbing.errors import TapsError


def find(name: str, *, live: bool = False) -> Strategy:
    """Returns the strategy of that name.

    Args:
        live: Whether it will run without a recording.

    Raises:
        TapsError: unknown, or in need of the future while live.
    """
    if name not in REGISTRY:
        raise TapsError(f"strategy {name!r}", "unknown", expected=f"one of {', '.join(REGISTRY)}")
    if live and REGISTRY[name].needs_future:
        allowed = [other.name for other in REGISTRY.values() if not other.needs_future]
        raise TapsError(
            f"strategy {name!r}", "needs the recorded future, so it runs in replay only", remedy=f"use {allowed}"
        )
    return REGISTRY[name]


# --- which drafters draft --------------------------------------------------------------------------------------------


def _first_choice(history: History, options: Options) -> np.ndarray:
    """Returns True for every drafter before the first cycle, then for its choice only."""
    return (history.num_cycles == 0)[:, None] | _one_hot(history.choice, history)


def _drawn(history: History, options: Options) -> np.ndarray:
    return _one_hot(_draw(history, options.seed), history)


def _most_confident_run(history: History, options: Options) -> np.ndarray:
    return _one_hot(_known_future(history).confidence.argmax(axis=1), history)


def _longest_run(history: History, options: Options) -> np.ndarray:
    return _one_hot(_known_future(history).tau.argmax(axis=1), history)


def _one_hot(choice: np.ndarray, history: History) -> np.ndarray:
    return choice[:, None] == np.arange(history.num_accepted.shape[1])


# --- the strategies --------------------------------------------------------------------------------------------------


@strategy(one_drafter=True)
def single(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the only drafter's trees; the score is their confidence."""
    return Proposal(trees=trees[0], chosen=np.zeros(len(trees[0]), dtype=np.int64), score=confidence(trees[0]))


@strategy(one_drafter=True, node_factor=2)
def single_double(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the only drafter's trees of twice the nodes: what merging two trees must beat."""
    return single(trees, history, options)


@strategy(calibratable=True)
def routed_confidence_step(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree with the larger mean over its nodes of exp(cumulative log-probability)."""
    signals = np.stack([confidence(batch) for batch in trees], axis=1)
    return _routed(trees, signals.argmax(axis=1), signals)


@strategy(calibratable=True, uses_history=True, drafts=_first_choice)
def routed_confidence_turn(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree of the drafter that was more confident in the first cycle of the answer."""
    return _keep_first_choice(routed_confidence_step(trees, history, options), trees, history, confidence)


@strategy(calibratable=True)
def routed_entropy_step(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree with the smaller mean entropy of its nodes (nats)."""
    signals = np.stack([mean_entropy(batch) for batch in trees], axis=1)
    return _routed(trees, signals.argmin(axis=1), signals)


@strategy(calibratable=True, uses_history=True, drafts=_first_choice)
def routed_entropy_turn(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree of the drafter with the smaller entropy in the first cycle of the answer."""
    return _keep_first_choice(routed_entropy_step(trees, history, options), trees, history, mean_entropy)


@strategy(uses_history=True)
def routed_history(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree of the drafter that would have accepted more so far; if equal, the more confident one."""
    leads = history.num_accepted == history.num_accepted.max(axis=1, keepdims=True)
    confidences = np.stack([confidence(batch) for batch in trees], axis=1)
    return _routed(trees, np.where(leads, confidences, -np.inf).argmax(axis=1), history.num_accepted)


@strategy()
def merged_concat(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns all drafters' nodes under one root, duplicates kept: the published form, k times the nodes."""
    return _merged(concatenate(trees, _equal_weights(trees)))


@strategy()
def merged_dedup(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the union of the drafters' trees; accepts what merged_concat accepts, with fewer nodes."""
    return _merged(merge(trees, _equal_weights(trees)))


@strategy(calibratable=True)
def merged_matched(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the best nodes of the union, as many as one drafter's tree has."""
    return _merged(merge(trees, _equal_weights(trees), options.num_draft_tokens))


@strategy(calibratable=True, uses_history=True)
def merged_adaptive(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns merged_matched with each drafter weighted by its share of the accepted tokens so far (plus the prior)."""
    credit = history.num_accepted + options.prior
    return _merged(merge(trees, credit / credit.sum(axis=1, keepdims=True), options.num_draft_tokens))


@strategy(uses_history=True, drafts=_drawn)
def random(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree of a drafter drawn uniformly from (seed, answer, cycle), whatever else is in the batch."""
    return _routed(trees, _draw(history, options.seed), None)


@strategy(needs_future=True)
def oracle(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree with the longest accepted path; equal: the more confident."""
    lengths = _known_future(history).num_accepted
    confidences = np.stack([confidence(batch) for batch in trees], axis=1)
    leads = lengths == lengths.max(axis=1, keepdims=True)
    return _routed(trees, np.where(leads, confidences, -np.inf).argmax(axis=1), lengths)


@strategy(needs_future=True, drafts=_most_confident_run)
def posthoc(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree of the drafter whose own run over this question was more confident."""
    signals = _known_future(history).confidence
    return _routed(trees, signals.argmax(axis=1), signals)


@strategy(needs_future=True, drafts=_longest_run)
def best_single(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree of the drafter with the largest tau over the benchmark."""
    signals = _known_future(history).tau
    return _routed(trees, signals.argmax(axis=1), signals)


# --- signals and helpers ---------------------------------------------------------------------------------------------


def confidence(trees: Trees) -> np.ndarray:
    """Returns float64 [P]: mean over a tree's nodes of exp(cumulative log-probability); 0 for a tree without nodes."""
    return np.exp(trees.scores, dtype=np.float64).sum(axis=1) / np.maximum(trees.exists().sum(axis=1), 1)


def mean_entropy(trees: Trees) -> np.ndarray:
    """Returns float64 [P]: mean over a tree's nodes of their entropy (nats); inf for a tree without nodes."""
    exists = trees.exists()
    total = np.where(exists, trees.entropies, 0).sum(axis=1, dtype=np.float64)
    count = exists.sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.inf)


def _routed(trees: Sequence[Trees], chosen: np.ndarray, signals: np.ndarray | None) -> Proposal:
    chosen = chosen.astype(np.int64)
    score = np.full(len(chosen), np.nan) if signals is None else signals[np.arange(len(chosen)), chosen]
    return Proposal(trees=select(trees, chosen), chosen=chosen, score=score.astype(np.float64))


def _keep_first_choice(
    step: Proposal, trees: Sequence[Trees], history: History, signal: Callable[[Trees], np.ndarray]
) -> Proposal:
    """Returns the step's proposal for answers that begin, else the tree of the drafter chosen then."""
    chosen = np.where(history.num_cycles == 0, step.chosen, history.choice)
    return _routed(trees, chosen, np.stack([signal(batch) for batch in trees], axis=1))


def _merged(trees: Trees) -> Proposal:
    return Proposal(trees=trees, chosen=np.full(len(trees), MERGED), score=np.full(len(trees), np.nan))


def _equal_weights(trees: Sequence[Trees]) -> np.ndarray:
    return np.full(len(trees), 1 / len(trees))


def _known_future(history: History) -> Hindsight:
    assert history.hindsight is not None, "find(name, live=True) refuses strategies that need the future"
    return history.hindsight


def _draw(history: History, seed: int) -> np.ndarray:
    """Returns int64 [P]: a drafter drawn from (seed, sequence, cycle) by a counter-based generator (splitmix64)."""
    state = history.sequences.astype(np.uint64) << np.uint64(32) | history.num_cycles.astype(np.uint64)
    for shift in (np.uint64(seed), np.uint64(0x9E3779B97F4A7C15)):
        state = state + shift
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return (state % np.uint64(history.num_accepted.shape[1])).astype(np.int64)
