"""Bounds and baselines: the tree of a drafter chosen by chance, or by what only a finished recording can tell.

Shape letters: P trees (positions), K drafters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taps.decoding.choice import one_hot, tree_of
from taps.decoding.history import Hindsight, History
from taps.decoding.signals import confidence
from taps.decoding.strategy import Kind, Options, Proposal, strategy
from taps.decoding.trees import Trees


def _drawn(history: History, options: Options) -> np.ndarray:
    return one_hot(_draw(history, options.seed), history)


def _most_confident_run(history: History, options: Options) -> np.ndarray:
    return one_hot(_known_future(history).confidence.argmax(axis=1), history)


def _longest_run(history: History, options: Options) -> np.ndarray:
    return one_hot(_known_future(history).tau.argmax(axis=1), history)


@strategy(title="random drafter", kind=Kind.BOUND, look=("#BBBBBB", "x"), uses_history=True, drafts=_drawn)
def random(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree of a drafter drawn uniformly from (seed, answer, cycle), whatever else is in the batch."""
    return tree_of(_draw(history, options.seed), trees, None)


@strategy(title="oracle router", kind=Kind.BOUND, look=("#555555", "+"), needs_future=True)
def oracle(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree with the longest accepted path; equal: the more confident."""
    lengths = _known_future(history).num_accepted
    confidences = np.stack([confidence(batch) for batch in trees], axis=1)
    leads = lengths == lengths.max(axis=1, keepdims=True)
    return tree_of(np.where(leads, confidences, -np.inf).argmax(axis=1), trees, lengths)


@strategy(title="best drafter in hindsight", kind=Kind.BOUND, needs_future=True, constant=True, drafts=_longest_run)
def best_single(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree of the drafter with the largest tau over the benchmark."""
    signals = _known_future(history).tau
    return tree_of(signals.argmax(axis=1), trees, signals)


@strategy(title="routed per question in hindsight", kind=Kind.BOUND, needs_future=True, drafts=_most_confident_run)
def posthoc(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree of the drafter whose own run over this question was more confident."""
    signals = _known_future(history).confidence
    return tree_of(signals.argmax(axis=1), trees, signals)


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
