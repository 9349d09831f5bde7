"""Verification of one tree: the target's forward over it, the path that its words take, the cache that is left.

Shape letters: N nodes, L tokens in the cache, h hidden size, V vocabulary, G key-value heads, d head size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from taps.decoding.trees import ROOT, Trees, depths, path_to, tree_attention_mask
from taps.model.target import Target


@dataclass(frozen=True, kw_only=True)
class Tree:
    """One tree without padding.

    Attributes:
        tokens: int [N].
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


class TargetText:
    """The target with its cache of one text."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.cache = target.new_cache()
        self.length = 0

    def read(self, tokens: Sequence[int]) -> torch.Tensor:
        """Returns the features [T, h] of T more tokens of the text."""
        features = self.target.features(torch.tensor([list(tokens)], device=self.target.device), cache=self.cache)[0]
        self.length += len(tokens)
        return features

    def verify(self, root: int, tree: Tree) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns (features [N + 1, h], logits [N + 1, V]) of root and nodes; `keep` must follow.

        The mask [N + 1, L + N + 1]: all columns of the text, then `trees.tree_attention_mask`.
        """
        device = self.target.device
        tokens = torch.tensor([[root, *tree.tokens.tolist()]], device=device)
        positions = self.length + torch.tensor([[0, *tree.depths.tolist()]], device=device)
        among = torch.from_numpy(tree_attention_mask(tree.parents)).to(device)
        mask = torch.cat((among.new_ones((len(among), self.length)), among), dim=1)
        features = self.target.features(tokens, attention_mask=mask[None, None], positions=positions, cache=self.cache)[
            0
        ]
        return features, self.target.logits(features)

    def keep(self, path: Sequence[int]) -> None:
        """Leaves in the cache the text, the root and the nodes of `path`, in this order."""
        first = self.length + 1
        self.length = first + len(path)
        places = first + torch.tensor(path, dtype=torch.int64, device=self.target.device)
        in_place = list(path) == list(range(len(path)))
        for layer in self.cache.layers:
            for name in ("keys", "values"):
                states = getattr(layer, name)  # [1, G, L + N + 1, d]
                if not in_place:
                    states[:, :, first : self.length] = states[:, :, places]
                setattr(layer, name, states[:, :, : self.length])
