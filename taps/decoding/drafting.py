"""Draft trees from the draft model, for many positions of one sequence at once.

All positions of a recorded text can be drafted together: the draft model's keys and values of accepted tokens come from
the target's features, so the tree at a position depends on the text before it and on nothing that was drafted earlier.
Level by level, each position expands its `top_k` best nodes of the last level into `top_k` children; all candidates are
remembered and the best `num_nodes` by cumulative log-probability are the tree.

A beam node that scores below the `num_nodes`-th best candidate so far cannot have a descendant in the tree (scores only
fall along a path), so it is not expanded: exact, and a good part of the work.

Shape letters: P positions, A beam rows expanded at a level, L tokens of the prefix, W candidates of a level, k top_k,
N num_nodes, H heads, G key-value heads, d head size, h hidden size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from taps.decoding.trees import PAD_TOKEN, ROOT, Trees
from taps.model.drafter import DraftModel
from taps.model.target_head import TargetHead
from taps.model.top_k import top_k_rows

_CPU_ROWS = 128  # rows of logits at a time on a CPU: few enough to stay in its cache


@dataclass(frozen=True, kw_only=True)
class DraftOptions:
    """Shape of a draft tree.

    Attributes:
        depth: Expansions after the first level; the longest path has depth + 1 nodes.
        top_k: Children per expanded node, and nodes expanded per level.
        num_nodes: Nodes kept, root not counted.
    """

    depth: int
    top_k: int
    num_nodes: int

    @property
    def num_candidates(self) -> int:
        """Nodes drafted before the best are chosen."""
        return self.top_k + self.depth * self.top_k**2


@torch.inference_mode()
def draft_trees(
    model: DraftModel,
    head: TargetHead,
    *,
    keys: torch.Tensor,
    values: torch.Tensor,
    hidden: torch.Tensor,
    num_seen: torch.Tensor,
    options: DraftOptions,
    goes_on: Callable[[Trees, int], bool] | None = None,
) -> Trees:
    """Returns the draft trees at P positions of one sequence.

    Args:
        model: The draft model.
        head: The target's embedding and head, perhaps over a draft vocabulary.
        keys: [L, G, d] draft keys of the sequence, from the target's features.
        values: [L, G, d] draft values that belong to them.
        hidden: [P, h] the draft model's output at the last token before each tree: it predicts the first level.
        num_seen: int64 [P] keys visible to each tree; a node of depth n has position num_seen + n - 1.
        options: Shape of the trees.
        goes_on: (the best `num_nodes` nodes so far, levels drafted) -> whether to draft another level.
    """
    k = options.top_k
    level = _first_level(head, hidden, k)
    levels, states, offset = [level], _Rows.root(hidden, keys), 0
    for num_levels in range(1, options.depth + 1):
        if goes_on is not None and not goes_on(_best(levels, options.num_nodes), num_levels):
            break
        beam_scores, beam = _beam(level.scores, k)
        keep = beam_scores >= _threshold(levels, options.num_nodes)
        position, slot = torch.where(keep & beam_scores.isfinite())
        chosen = beam[position, slot]
        states = _expand(
            model,
            head.embed(level.tokens[position, chosen]),
            states.select(level.rows[position, chosen]),
            keys=keys,
            values=values,
            num_seen=num_seen[position],
        )
        next_level = _children(head, states.hidden, k, position, slot, shape=(len(hidden), k, k))
        next_level.scores += beam_scores[:, :, None].expand(-1, -1, k).flatten(1)
        next_level.parents += (beam + offset).repeat_interleave(k, dim=1)
        offset += level.scores.shape[1]
        levels.append(next_level)
        level = next_level
    return _best(levels, options.num_nodes)


@dataclass
class _Level:
    """Candidates of one level, [P, W] each; `rows` is the row of `_Rows` that a candidate continues."""

    tokens: torch.Tensor
    scores: torch.Tensor
    parents: torch.Tensor
    entropies: torch.Tensor
    rows: torch.Tensor


@dataclass
class _Rows:
    """Expanded nodes: output [A, h], and keys and values [A, nodes on the path, G, d] of their paths."""

    hidden: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor

    @classmethod
    def root(cls, hidden: torch.Tensor, keys: torch.Tensor) -> _Rows:
        empty = keys.new_empty((len(hidden), 0, *keys.shape[1:]))
        return cls(hidden, empty, empty)

    def select(self, rows: torch.Tensor) -> _Rows:
        return _Rows(self.hidden[rows], self.keys[rows], self.values[rows])


def _first_level(head: TargetHead, hidden: torch.Tensor, k: int) -> _Level:
    every = torch.arange(len(hidden), device=hidden.device)
    level = _children(head, hidden, k, every, torch.zeros_like(every), shape=(len(hidden), 1, k))
    level.parents += ROOT
    return level


def _children(
    head: TargetHead,
    hidden: torch.Tensor,
    k: int,
    position: torch.Tensor,
    slot: torch.Tensor,
    shape: tuple[int, int, int],
) -> _Level:
    """Returns the k best continuations of each expanded node, laid out [P, slots * k]; scores are conditional."""
    log_probs, columns, entropies = _top_children(head, hidden, k)
    width = columns.shape[1]  # fewer than k in a tiny vocabulary

    def lay_out(values: torch.Tensor, fill: float) -> torch.Tensor:
        laid = torch.full(shape, fill, dtype=values.dtype, device=values.device)
        laid[position, slot, :width] = values
        return laid.flatten(1)

    rows = torch.arange(len(hidden), device=hidden.device)[:, None].expand(-1, width)
    return _Level(
        tokens=lay_out(head.to_tokens(columns), 0),
        scores=lay_out(log_probs, -torch.inf),
        parents=torch.zeros((shape[0], shape[1] * shape[2]), dtype=torch.int64, device=hidden.device),
        entropies=lay_out(entropies[:, None].expand(-1, width), 0.0),
        rows=lay_out(rows, 0),
    )


def _top_children(head: TargetHead, hidden: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns (log-probabilities fp32 [A, k], columns int64 [A, k], entropy fp32 [A] in nats) of the next token."""
    num_rows = len(hidden) if hidden.is_cuda else _CPU_ROWS
    parts = [_top_of_logits(head.logits(rows).float(), k) for rows in hidden.split(max(num_rows, 1))]
    log_probs, columns, entropies = map(torch.cat, zip(*parts, strict=True))
    return log_probs, columns, entropies


def _top_of_logits(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns what `_top_children` does, from logits [A, V] that it overwrites: one exponential serves all three."""
    top, columns = top_k_rows(logits, min(k, logits.shape[1]))
    peak = top[:, :1]
    weights = logits.sub_(peak).exp()
    total = weights.sum(-1)
    log_total = total.log()
    entropies = log_total - weights.mul_(logits).sum(-1) / total
    return top - peak - log_total[:, None], columns, entropies


def _expand(
    model: DraftModel,
    embeddings: torch.Tensor,
    parents: _Rows,
    *,
    keys: torch.Tensor,
    values: torch.Tensor,
    num_seen: torch.Tensor,
) -> _Rows:
    """Returns the nodes run through the draft model: each sees its prefix, its ancestors and itself."""
    x = model.inputs(embeddings, parents.hidden)
    queries, own_keys, own_values = model.qkv(x, num_seen + parents.keys.shape[1])
    path_keys = torch.cat((parents.keys, own_keys[:, None]), dim=1)
    path_values = torch.cat((parents.values, own_values[:, None]), dim=1)
    attended = _tree_attention(queries, keys, values, path_keys, path_values, num_seen)
    return _Rows(model.finish(x, attended), path_keys, path_values)


def _tree_attention(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    path_keys: torch.Tensor,
    path_values: torch.Tensor,
    num_seen: torch.Tensor,
) -> torch.Tensor:
    """Returns [A, H, d]: attention to the first `num_seen` prefix keys and to the node's path, one softmax over both.

    Args:
        queries: [A, H, d] one per row, rotated.
        keys: [L, G, d] shared by all rows, as are `values`.
        path_keys: [A, n, G, d] of each row's ancestors and itself, as are `path_values`.
        num_seen: int64 [A] prefix keys that each row may see.
    """
    num_groups = keys.shape[1]
    grouped = queries.unflatten(1, (num_groups, -1)) * queries.shape[-1] ** -0.5  # [A, G, H/G, d]
    hidden_keys = torch.arange(len(keys), device=keys.device) >= num_seen[:, None]  # [A, L]
    on_prefix = torch.einsum("agrd,lgd->agrl", grouped, keys).masked_fill_(hidden_keys[:, None, None], -torch.inf)
    on_path = torch.einsum("agrd,angd->agrn", grouped, path_keys)
    weights = torch.cat((on_prefix, on_path), dim=-1).float().softmax(-1).to(queries.dtype)
    prefix_weights, path_weights = weights.split((len(keys), path_keys.shape[1]), dim=-1)
    attended = torch.einsum("agrl,lgd->agrd", prefix_weights, values)
    return (attended + torch.einsum("agrn,angd->agrd", path_weights, path_values)).flatten(1, 2)


def _beam(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (scores, columns) of the k best candidates of a level, of equal ones the first.

    A rule for equal scores makes a level's beam depend on that level alone (`taps.decoding.views`).
    """
    ranked, order = scores.sort(dim=1, descending=True, stable=True)
    return ranked[:, :k], order[:, :k]


def _threshold(levels: list[_Level], num_nodes: int) -> torch.Tensor:
    """Returns fp32 [P, 1]: the `num_nodes`-th best score so far, -inf while there are fewer candidates."""
    scores = torch.cat([level.scores for level in levels], dim=1)
    if scores.shape[1] < num_nodes:
        return scores.new_full((len(scores), 1), -torch.inf)
    return scores.topk(num_nodes).values[:, -1:]


def _best(levels: list[_Level], num_nodes: int) -> Trees:
    """Returns the best candidates as trees; the stable sort keeps a parent before a child of equal score."""
    tokens, scores, parents, entropies = (
        torch.cat([getattr(level, name) for level in levels], dim=1).cpu()
        for name in ("tokens", "scores", "parents", "entropies")
    )
    ranked, order = scores.sort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(order.shape[1]).expand_as(order))
    order = order[:, :num_nodes]
    chosen = parents.gather(1, order)
    places = torch.where(chosen == ROOT, ROOT, rank.gather(1, chosen.clamp(min=0)))
    exists = ranked[:, :num_nodes].isfinite()
    trees = Trees(
        tokens=torch.where(exists, tokens.gather(1, order), PAD_TOKEN).numpy().astype(np.int32),
        parents=torch.where(exists, places, ROOT).numpy().astype(np.int16),
        scores=ranked[:, :num_nodes].numpy(),
        entropies=entropies.gather(1, order).numpy(),
    )
    return _padded(trees, num_nodes)


def _padded(trees: Trees, num_nodes: int) -> Trees:
    """Returns trees of exactly `num_nodes` columns, where fewer candidates exist."""
    short = num_nodes - trees.num_nodes
    if short <= 0:
        return trees

    def pad(array: np.ndarray, fill: float) -> np.ndarray:
        return np.pad(array, ((0, 0), (0, short)), constant_values=fill)

    return Trees(
        tokens=pad(trees.tokens, PAD_TOKEN),
        parents=pad(trees.parents, ROOT),
        scores=pad(trees.scores, -np.inf),
        entropies=pad(trees.entropies, 0.0),
    )
