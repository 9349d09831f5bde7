"""Verification of one tree: the target's forward over it, the path that its words take, the cache that is left.

Shape letters: N nodes, L tokens in the cache, h hidden size, V vocabulary, G key-value heads, d head size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from taps.decoding.trees import ROOT, Trees, depths, path_to, tree_attention_mask
from taps.model.sampling import Draws, Sampling, next_tokens
from taps.model.target import Target

_ROWS_AT_ONCE = 8  # rows of the head that cost about what one costs
_ALIGNED = 8  # columns; fused kernels want a mask's rows to begin at such places


@dataclass(frozen=True, kw_only=True)
class Tree:
    """One tree without padding.

    Attributes:
        tokens: int [N] token of each node.
        parents: int [N], parents before children, ROOT for the first level.
        depths: int [N], from 1.
    """

    tokens: np.ndarray
    parents: np.ndarray
    depths: np.ndarray


def one_tree(trees: Trees, *, max_depth: int) -> Tree:
    """Returns the only tree of a batch of one, its padding and what lies deeper than `max_depth` left out.

    A deeper node could not be emitted any more, and its position might lie behind the context.
    """
    parents, depth = trees.parents[0], depths(trees.parents)[0]
    kept = trees.exists()[0] & (depth <= max_depth)
    place = np.cumsum(kept) - 1
    new_parents = np.where(parents == ROOT, ROOT, place[parents])
    return Tree(tokens=trees.tokens[0][kept], parents=new_parents[kept], depths=depth[kept])


def follow(
    tree: Tree, next_token: Callable[[int, int], int], *, room: int, stop_ids: Collection[int]
) -> tuple[list[int], list[int]]:
    """Returns (accepted nodes from the first level on, emitted tokens).

    A path is what its tokens are: where several nodes stand for the same path, the children of all of them are asked.

    Args:
        next_token: (node or ROOT, number of tokens emitted before in this cycle) -> what the target says there.
        room: Most tokens to emit, at least 1.
        stop_ids: Tokens behind which nothing follows.
    """
    emitted: list[int] = []
    same_path = np.array([ROOT])
    while True:
        emitted.append(next_token(int(same_path[0]), len(emitted)))
        children = np.flatnonzero(np.isin(tree.parents, same_path) & (tree.tokens == emitted[-1]))
        if len(children):
            same_path = children
        if not len(children) or emitted[-1] in stop_ids or len(emitted) == room:
            return path_to(tree.parents, int(same_path[0])), emitted


class Chooser:
    """What the target says, given its logits.

    Args:
        sampling: Greedy at temperature 0.
        draws: For temperature > 0: the answer's random numbers.
    """

    def __init__(self, sampling: Sampling, draws: Draws | None) -> None:
        self._sampling, self._draws = sampling, None if sampling.temperature == 0.0 else draws

    def __call__(self, logits: torch.Tensor, position: int) -> int:
        """Returns generated token number `position` from its logits [V]."""
        noise = None if self._draws is None else self._draws.noise(position, logits.shape[-1], logits.device)
        return int(next_tokens(logits[None], self._sampling, noise))


class NodeLogits:
    """The target's logits at the root and the nodes of a tree, computed when somebody asks.

    An accepted path asks at two or three of 40 nodes, and the head is a fifth of a small target. On a CPU a few rows
    cost what one costs, so a row comes with those that may be asked next: the root with the likeliest nodes, a node
    with its descendants. On a GPU all come at once: there a wait for each answer would cost more.

    Args:
        target: Whose head it is.
        features: [N + 1, h] of root and nodes.
        tree: The nodes that were verified.
    """

    def __init__(self, target: Target, features: torch.Tensor, tree: Tree) -> None:
        self._target, self._features, self._parents = target, features, tree.parents
        self._rows: dict[int, torch.Tensor] = {}

    def at(self, node: int) -> torch.Tensor:
        """Returns the logits [V] at a node, or at ROOT."""
        if node not in self._rows:
            nodes = self._asked_with(node)
            places = torch.tensor(nodes, device=self._features.device) + 1
            self._rows |= zip(nodes, self._target.logits(self._features[places]), strict=True)
        return self._rows[node]

    def _asked_with(self, node: int) -> list[int]:
        if self._features.device.type != "cpu":
            return list(range(ROOT, len(self._parents)))
        if node == ROOT:
            return list(range(ROOT, min(len(self._parents), _ROWS_AT_ONCE - 1)))
        family = [node]
        for other in range(node + 1, len(self._parents)):
            if self._parents[other] in family and other not in self._rows:
                family.append(other)
        return family[:_ROWS_AT_ONCE]


class TargetText:
    """The target with its cache of one text."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.cache = target.new_text_cache()
        self.length = 0
        self._mask = torch.zeros((0, 0))  # additive, kept between trees; columns of the text are 0
        self._masked_from = 0  # first column that a tree has written

    @torch.inference_mode()
    def read(self, tokens: Sequence[int]) -> torch.Tensor:
        """Returns the features [T, h] of T more tokens of the text."""
        features = self.target.features(torch.tensor([list(tokens)], device=self.target.device), cache=self.cache)[0]
        self.length += len(tokens)
        return features

    @torch.inference_mode()
    def verify(self, root: int, tree: Tree) -> torch.Tensor:
        """Returns the features [N + 1, h] of root and nodes; `keep` must follow.

        The mask [N + 1, L + N + 1]: all columns of the text, then `trees.tree_attention_mask`.
        """
        rows = [[root, *tree.tokens.tolist()], [self.length, *(self.length + tree.depths).tolist()]]
        tokens, positions = torch.tensor(rows, device=self.target.device)
        return self.target.features(
            tokens[None], attention_mask=self._tree_mask(tree), positions=positions[None], cache=self.cache
        )[0]

    @torch.inference_mode()
    def keep(self, path: Sequence[int]) -> None:
        """Leaves in the cache the text, the root and the nodes of `path`, in this order."""
        first = self.length + 1
        self.cache.keep(first, [first + node for node in path])
        self.length = first + len(path)

    def forget(self) -> None:
        """Drops what was read last and not kept: root and tree."""
        self.cache.keep(self.length, [])

    def _tree_mask(self, tree: Tree) -> torch.Tensor | None:
        """Returns [1, 1, N + 1, L + N + 1], 0 where a row may attend and -inf elsewhere; None for the root alone."""
        size = len(tree.tokens) + 1
        if size == 1:
            return None
        end = self.length + size
        if self._mask.shape[0] < size or self._mask.shape[1] < end:
            columns = -(-2 * end // _ALIGNED) * _ALIGNED
            self._masked_from = self.length
            self._mask = torch.zeros((size, columns), dtype=self.target.model.dtype, device=self.target.device)
        among = torch.from_numpy(np.where(tree_attention_mask(tree.parents), np.float32(0), np.float32(-np.inf)))
        self._mask[:, self._masked_from : self.length] = 0
        self._mask[:size, self.length : end] = among.to(self._mask)
        self._masked_from = self.length
        return self._mask[None, None, :size, :end]
