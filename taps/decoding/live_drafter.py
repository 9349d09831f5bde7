"""A draft model that follows one growing text: its keys and values are extended, never recomputed.

What the draft model knows of accepted tokens always comes from the target's features, so its state after any number of
cycles equals that of one pass over the whole text, and a live tree equals the one in the draft bank.

Shape letters: m new tokens, n tokens read before, H heads, G key-value heads, d head size, h hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from taps.decoding.drafting import DraftOptions, draft_trees
from taps.decoding.trees import Trees
from taps.model.drafter import DraftModel
from taps.model.family import features_read_by
from taps.model.hidden_states import FINAL, select
from taps.model.target_head import TargetHead


class LiveDrafter:
    """A draft model with what it has read of the current answer.

    Args:
        model: The draft model.
        head: The target's embedding and head, perhaps over a draft vocabulary.
        depth: `DraftOptions.depth` of its trees.
        top_k: `DraftOptions.top_k`.
        told: Hidden states that the features hold which it will be told (`Target.hidden_states`).
    """

    def __init__(
        self, model: DraftModel, head: TargetHead, *, depth: int, top_k: int, told: Sequence[str] = (FINAL,)
    ) -> None:
        self.model, self.head, self.depth, self.top_k, self.told = model, head, depth, top_k, told
        self._reads = features_read_by(model.config)
        self.begin()

    def of_depth(self, depth: int) -> LiveDrafter:
        """Returns a drafter of its own, with the same models, whose trees have that depth."""
        return LiveDrafter(self.model, self.head, depth=depth, top_k=self.top_k, told=self.told)

    def begin(self) -> None:
        """Forgets the text."""
        config = self.model.config
        self.keys = self.head.head.new_empty((0, config.num_key_value_heads, config.head_dim))
        self.values = torch.empty_like(self.keys)
        self._hidden = self.head.head.new_empty((0, config.hidden_size))
        self._unread: list[tuple[torch.Tensor, torch.Tensor]] = []

    def read(self, tokens: torch.Tensor, features: torch.Tensor) -> None:
        """Takes note of m more positions; the work is done when a tree is next wanted, if ever.

        Args:
            tokens: int64 [m] the token *behind* each position; the last one is the root of the next tree.
            features: [m, width] the target's features of the positions.
        """
        self._unread.append((tokens, features))

    @torch.inference_mode()
    def catch_up(self) -> None:
        """Extends keys and values by what was read."""
        if self._unread:
            tokens, features = (torch.cat(parts) for parts in zip(*self._unread, strict=True))
            self._extend(tokens, select(features, self.told, self._reads).to(self.head.head))
            self._unread = []

    @torch.inference_mode()
    def draft(self, num_nodes: int, goes_on: Callable[[Trees, int], bool] | None = None) -> Trees:
        """Returns one tree [1, num_nodes] under the last token read.

        Args:
            num_nodes: Most nodes of the tree, root not counted.
            goes_on: As in `draft_trees`.
        """
        self.catch_up()
        return draft_trees(
            self.model,
            self.head,
            keys=self.keys,
            values=self.values,
            hidden=self._hidden,
            num_seen=torch.tensor([len(self.keys)], device=self.keys.device),
            options=DraftOptions(depth=self.depth, top_k=self.top_k, num_nodes=num_nodes),
            goes_on=goes_on,
        )

    def _extend(self, tokens: torch.Tensor, features: torch.Tensor) -> None:
        seen = len(self.keys)
        x = self.model.inputs(self.head.embed(tokens), features)
        positions = torch.arange(seen, seen + len(tokens), device=x.device)
        queries, keys, values = self.model.qkv(x, positions)
        self.keys, self.values = torch.cat((self.keys, keys)), torch.cat((self.values, values))
        # only the last position starts a tree, and it sees all: no mask, one query
        q, k, v = (states.transpose(0, 1)[None] for states in (queries[-1:], self.keys, self.values))
        attended = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)[0].transpose(0, 1)
        self._hidden = self.model.finish(x[-1:], attended)
