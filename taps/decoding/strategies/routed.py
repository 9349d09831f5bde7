"""Routing: the tree of one of several drafters, chosen by a signal that is at hand while decoding.

Shape letters: P trees (positions), K drafters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from taps.decoding.choice import one_hot, tree_of
from taps.decoding.history import History
from taps.decoding.signals import confidence, mean_entropy
from taps.decoding.strategy import Kind, Options, Proposal, strategy
from taps.decoding.trees import Trees

_CONFIDENCE, _ENTROPY = ("#CC79A7", "D"), ("#E69F00", "P")


def _first_choice(history: History, options: Options) -> np.ndarray:
    """Returns True for every drafter before the first cycle, then for its choice only."""
    return (history.num_cycles == 0)[:, None] | one_hot(history.choice, history)


@strategy(title="routed by confidence", kind=Kind.ROUTED, look=_CONFIDENCE, calibratable=True)
def routed_confidence_step(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree with the larger mean over its nodes of exp(cumulative log-probability)."""
    signals = np.stack([confidence(batch) for batch in trees], axis=1)
    return tree_of(signals.argmax(axis=1), trees, signals)


@strategy(
    title="routed by confidence (per answer)",
    kind=Kind.ROUTED,
    look=_CONFIDENCE,
    calibratable=True,
    uses_history=True,
    drafts=_first_choice,
)
def routed_confidence_turn(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree of the drafter that was more confident in the first cycle of the answer."""
    return _keep_first_choice(routed_confidence_step(trees, history, options), trees, history, confidence)


@strategy(title="routed by entropy", kind=Kind.ROUTED, look=_ENTROPY, calibratable=True)
def routed_entropy_step(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree with the smaller mean entropy of its nodes (nats)."""
    signals = np.stack([mean_entropy(batch) for batch in trees], axis=1)
    return tree_of(signals.argmin(axis=1), trees, signals)


@strategy(
    title="routed by entropy (per answer)",
    kind=Kind.ROUTED,
    look=_ENTROPY,
    calibratable=True,
    uses_history=True,
    drafts=_first_choice,
)
def routed_entropy_turn(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree of the drafter with the smaller entropy in the first cycle of the answer."""
    return _keep_first_choice(routed_entropy_step(trees, history, options), trees, history, mean_entropy)


@strategy(title="routed by history", kind=Kind.ROUTED, look=("#7F3C8D", "h"), uses_history=True)
def routed_history(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree of the drafter that would have accepted more so far; if equal, the more confident one."""
    leads = history.num_accepted == history.num_accepted.max(axis=1, keepdims=True)
    confidences = np.stack([confidence(batch) for batch in trees], axis=1)
    return tree_of(np.where(leads, confidences, -np.inf).argmax(axis=1), trees, history.num_accepted)


def _keep_first_choice(
    step: Proposal, trees: Sequence[Trees], history: History, signal: Callable[[Trees], np.ndarray]
) -> Proposal:
    """Returns the step's proposal for answers that begin, else the tree of the drafter chosen then."""
    chosen = np.where(history.num_cycles == 0, step.chosen, history.choice)
    return tree_of(chosen, trees, np.stack([signal(batch) for batch in trees], axis=1))
