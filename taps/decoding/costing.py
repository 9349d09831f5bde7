"""The tree that brings most tokens per second: how many nodes to verify, and when to stop drafting.

A node is accepted with the probability of its path, as the drafter says and calibration corrects it, so a tree of
nodes with probabilities p_1 >= p_2 >= ... emits 1 + p_1 + ... + p_n tokens in expectation when its first n are
verified (a prefix is a tree). That costs draft_s[levels] + target_s[n] + overhead_s, and n is chosen to make the
quotient largest.

Drafting goes on while one more level is expected to bring more than its time brings otherwise:

    m_l (m_l / m_(l-1))  >  rate x (draft_s[l + 1] - draft_s[l] + target_s[n + 1] - target_s[n])

with m_l the probability that lies in level l (m_0 = 1): as much is taken to survive into the next level as did so in
the last step. Nodes that are less likely than FLOOR never pay; leaving them out makes the decision independent of how
many nodes a drafter remembers, so replay over a bank and live decoding decide alike.

Source: the expected acceptance length of a tree from path probabilities, and drafting until its growth falls below a
threshold: OPT-Tree (Wang et al. 2024, arXiv 2406.17276); trees sized by measured hardware costs: Sequoia (Chen et al.
2024, arXiv 2402.12374); stopping by predicted acceptance: SpecDec++ (Huang et al. 2024, arXiv 2405.19715); a node's
confidence as its chance of acceptance: EAGLE-2 (Li et al. 2024, arXiv 2406.16858). New here: the threshold is what the
time would bring otherwise.

Shape letters: P trees (positions), N nodes, L levels.
"""

from __future__ import annotations

import numpy as np

from taps.decoding.strategy import Options
from taps.decoding.trees import Trees, depths
from taps.decoding.views import keep_first, view

FLOOR = 0.02  # of a path's probability


def path_probs(trees: Trees) -> np.ndarray:
    """Returns float64 [P, N]: the probability of each node's path, 0 for padding and below FLOOR."""
    probs = np.exp(trees.scores, dtype=np.float64)
    return np.where(probs >= FLOOR, probs, 0.0)


def likely(trees: Trees) -> Trees:
    """Returns the trees without the nodes less likely than FLOOR, in as few columns as that takes; one at least.

    Each position loses its own: what a merged tree makes of a node does not depend on the rest of the batch.
    """
    number = (path_probs(trees) > 0).sum(axis=1)
    return keep_first(trees.prefix(max(int(number.max(initial=0)), 1)), number)


def best_prefix(trees: Trees, drafting_s: np.ndarray | float, options: Options) -> tuple[np.ndarray, np.ndarray]:
    """Returns (int64 [P] number of nodes to verify, float64 [P] expected tokens per second).

    Args:
        trees: Sorted by score, as all are.
        drafting_s: float [P] seconds already spent on drafting.
        options: With costs; never more nodes than `target_s` has times for.
    """
    most = len(options.target_s) - 1
    probs = path_probs(trees)[:, :most]
    expected = 1 + np.concatenate([np.zeros((len(probs), 1)), probs.cumsum(axis=1)], axis=1)
    seconds = np.asarray(options.target_s[: expected.shape[1]]) + options.overhead_s
    rates = expected / (seconds + np.asarray(drafting_s, dtype=np.float64).reshape(-1, 1))
    rates[:, 1:][probs == 0] = -np.inf
    best = rates.argmax(axis=1)
    return best, rates[np.arange(len(rates)), best]


def goes_on(trees: Trees, levels: int, options: Options) -> np.ndarray:
    """Returns bool [P]: whether another level is expected to pay, `levels` being drafted."""
    if levels >= len(options.draft_s):
        return np.zeros(len(trees), dtype=bool)
    trees = likely(trees)
    number, rate = best_prefix(trees, options.draft_s[levels - 1], options)
    probs, depth = path_probs(trees), depths(trees.parents)
    mass = np.where(depth == levels, probs, 0).sum(axis=1)
    before = np.where(depth == levels - 1, probs, 0).sum(axis=1) if levels > 1 else np.ones(len(trees))
    gain = np.divide(mass * mass, before, out=np.zeros_like(mass), where=before > 0)
    target_s = np.asarray(options.target_s)
    node_s = target_s[np.minimum(number + 1, len(target_s) - 1)] - target_s[number]
    level_s = options.draft_s[levels] - options.draft_s[levels - 1]
    return np.minimum(gain, mass) > rate * (level_s + node_s)


def drafted_levels(trees: Trees, options: Options) -> np.ndarray:
    """Returns int64 [P]: the levels that a drafter drafts, seen from a tree of all levels or of those alone."""
    trees = likely(trees)
    levels, going = np.ones(len(trees), dtype=np.int64), np.arange(len(trees))
    depth = depths(trees.parents)
    for level in range(1, len(options.draft_s)):
        seen = view(trees.rows(going), level, trees.num_nodes, depth=depth[going])
        going = going[goes_on(seen, level, options)]
        levels[going] = level + 1
    return levels
