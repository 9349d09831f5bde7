"""Replay: walks a strategy over draft banks along recorded text, all answers at once, no model in memory.

Answer s has n generated tokens g_0 ... g_(n-1); g_0 comes from prefill. A cycle with root g_j (j = 0 ... n-2) drafts
what follows g_j and emits the accepted tokens and one more of the target's, as far as the text goes; the last of them
is the next root. The position of root g_j of answer s is row `offsets[s] + j` of every array here.

    text    g_0  g_1  g_2  g_3  g_4  g_5  (end)
    cycle 1  root + accepted 2 -> emits g_1 g_2 g_3
    cycle 2                root + accepted 2 -> emits g_4 g_5: the end leaves no room for the target's own token

What a strategy proposes at a position depends on the position alone (then all are evaluated first and walked after) or
also on the history of the answer (then all answers take their next cycle together).

Shape letters: P positions, S answers, K drafters, N nodes of a bank, D longest path, C cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from taps.decoding.history import Hindsight, History
from taps.decoding.strategies.single import single
from taps.decoding.strategy import Options, Strategy
from taps.decoding.trees import NO_FUTURE, Trees, depths, match, num_accepted

_BLOCK = 4096  # positions evaluated at a time: bounds memory, changes nothing else


@dataclass(frozen=True, kw_only=True)
class Text:
    """The recorded answers, seen from every position.

    Attributes:
        offsets: int64 [S + 1] first position of each answer.
        future: int64 [P, D] tokens that follow the root, NO_FUTURE behind the end.
        remaining: int64 [P] tokens that follow the root.
        prompt_features: float32 [S, h] the target's feature of each prompt's last token, if they have been read.
    """

    offsets: np.ndarray
    future: np.ndarray
    remaining: np.ndarray
    prompt_features: np.ndarray | None = None


def read_text(tokens: np.ndarray, offsets: np.ndarray, prompt_lengths: np.ndarray, depth: int) -> Text:
    """Returns the text of a trace; an answer of fewer than two tokens has no position.

    Args:
        tokens: int [T] prompts and answers, flat.
        offsets: int [S + 1] first token of each sequence.
        prompt_lengths: int [S] tokens of each prompt.
        depth: D, tokens wanted behind each root.
    """
    ends = np.asarray(offsets[1:], dtype=np.int64)
    first = offsets[:-1] + prompt_lengths.astype(np.int64)
    counts = np.maximum(ends - first - 1, 0)
    starts = np.concatenate([[0], np.cumsum(counts)])
    answer = np.repeat(np.arange(len(counts)), counts)
    root = first[answer] + np.arange(starts[-1]) - starts[answer]
    following = root[:, None] + 1 + np.arange(depth)
    inside = following < ends[answer][:, None]
    future = np.where(inside, tokens[np.where(inside, following, 0)], NO_FUTURE)
    return Text(offsets=starts, future=future, remaining=ends[answer] - 1 - root)


@dataclass(frozen=True, kw_only=True)
class Bank:
    """One drafter's trees at all positions and how they agree with the text.

    Attributes:
        name: Of the drafter whose trees they are.
        trees: P trees of N nodes.
        depth: int16 [P, N] of each node.
        matched: bool [P, N] whether the node's path is the text.
        lengths: int16 [P, N] what the prefix tree up to and including this node accepts.
    """

    name: str
    trees: Trees
    depth: np.ndarray
    matched: np.ndarray
    lengths: np.ndarray

    @staticmethod
    def of(name: str, trees: Trees, text: Text) -> Bank:
        """Returns the bank of `trees`, scored against `text`."""
        depth, matched = depths(trees.parents), match(trees, text.future)
        lengths = np.maximum.accumulate(np.where(matched, depth, 0), axis=1)
        return Bank(name=name, trees=trees, depth=depth, matched=matched, lengths=lengths)

    def accepted(self, num_nodes: int) -> np.ndarray:
        """Returns int64 [P]: accepted tokens of the tree of `num_nodes` nodes."""
        return self.lengths[:, num_nodes - 1].astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Cycles:
    """The cycles of a walk, sorted by answer, then cycle; every array [C].

    Attributes:
        sequence: Index of the answer.
        cycle: From 1 within an answer.
        start: j, index of the root among the answer's tokens.
        accepted: Length of the accepted path.
        emitted: Tokens emitted: accepted + 1, or fewer at the end of the text.
        chosen: Index of the drafter, MERGED for none.
        num_nodes: Nodes verified, root not counted.
        num_drafted: How many drafters drafted a tree.
        num_levels: Levels that they drafted together; 0 if each drafted all of its own.
        score: The strategy's signal, NaN for none.
    """

    sequence: np.ndarray
    cycle: np.ndarray
    start: np.ndarray
    accepted: np.ndarray
    emitted: np.ndarray
    chosen: np.ndarray
    num_nodes: np.ndarray
    num_drafted: np.ndarray
    num_levels: np.ndarray
    score: np.ndarray

    def __len__(self) -> int:
        return len(self.sequence)


def walk(
    strategy: Strategy,
    banks: Sequence[Bank],
    text: Text,
    options: Options,
    *,
    groups: np.ndarray | None = None,
) -> Cycles:
    """Returns the cycles that `strategy` takes over every answer.

    Args:
        banks: One per drafter, of at least `strategy.num_nodes(options)` nodes.
        groups: int [S] question of each answer, for strategies that need the future; each answer its own by default.
    """
    num_nodes = strategy.num_nodes(options)
    evaluator = _Evaluator(
        strategy=strategy,
        trees=[bank.trees.prefix(num_nodes) for bank in banks],
        lengths=np.stack([bank.accepted(num_nodes) for bank in banks], axis=1),
        future=text.future,
        options=options,
    )
    counts = np.diff(text.offsets)
    table = None
    if not strategy.uses_history:
        hindsight = _hindsight(banks, text, options, groups) if strategy.needs_future else None
        answer = np.repeat(np.arange(len(counts)), counts)
        table = evaluator.everywhere(History.start(answer, len(banks), hindsight, _of_prompts(text, answer)))

    sequence = np.flatnonzero(counts)
    start = np.zeros(len(sequence), dtype=np.int64)
    history = History.start(sequence, len(banks), prompt_features=_of_prompts(text, sequence))
    steps: list[Cycles] = []
    while len(sequence):
        rows = text.offsets[sequence] + start
        verdict = table.rows(rows) if table is not None else evaluator.at(rows, history)
        emitted = np.minimum(verdict.accepted + 1, text.remaining[rows])
        steps.append(
            Cycles(
                sequence=sequence,
                cycle=history.num_cycles + 1,
                start=start,
                emitted=emitted,
                **{field.name: getattr(verdict, field.name) for field in fields(verdict)},
            )
        )
        history = history.updated(
            num_accepted=evaluator.lengths[rows], num_emitted=emitted, chosen=verdict.chosen, decay=options.decay
        )
        start = start + emitted
        going = np.flatnonzero(start < counts[sequence])
        sequence, start, history = sequence[going], start[going], history.rows(going)
    return _in_order(steps)


def _of_prompts(text: Text, answers: np.ndarray) -> np.ndarray | None:
    return None if text.prompt_features is None else text.prompt_features[answers]


@dataclass(frozen=True, kw_only=True)
class _Verdicts:
    """What a strategy verifies and what is accepted of it, per row; fields as in Cycles."""

    accepted: np.ndarray
    chosen: np.ndarray
    num_nodes: np.ndarray
    num_drafted: np.ndarray
    num_levels: np.ndarray
    score: np.ndarray

    def rows(self, index: np.ndarray) -> _Verdicts:
        return _Verdicts(**{field.name: getattr(self, field.name)[index] for field in fields(self)})


@dataclass(frozen=True, kw_only=True)
class _Evaluator:
    """A strategy at given positions; `lengths` int64 [P, K] is what each drafter's own tree accepts there."""

    strategy: Strategy
    trees: list[Trees]
    lengths: np.ndarray
    future: np.ndarray
    options: Options

    def at(self, rows: np.ndarray, history: History) -> _Verdicts:
        proposal = self.strategy([batch.rows(rows) for batch in self.trees], history, self.options)
        own_tree = (proposal.chosen >= 0) & (not self.strategy.costed)  # a prefix accepts less than the whole tree
        accepted = self.lengths[rows, np.maximum(proposal.chosen, 0)]
        if not own_tree.all():
            accepted = np.where(own_tree, accepted, num_accepted(proposal.trees, self.future[rows]))
        return _Verdicts(
            accepted=accepted.astype(np.int64),
            chosen=proposal.chosen,
            num_nodes=proposal.trees.exists().sum(axis=1),
            num_drafted=self.strategy.drafts(history, self.options).sum(axis=1),
            num_levels=np.zeros(len(rows), np.int64) if proposal.num_levels is None else proposal.num_levels,
            score=proposal.score,
        )

    def everywhere(self, history: History) -> _Verdicts:
        """Returns the verdicts at all positions, `history` holding one row for each."""
        blocks = [
            np.arange(begin, min(begin + _BLOCK, len(self.future))) for begin in range(0, len(self.future), _BLOCK)
        ]
        parts = [self.at(rows, history.rows(rows)) for rows in blocks or [np.arange(0)]]
        names = [field.name for field in fields(_Verdicts)]
        return _Verdicts(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def _in_order(steps: list[Cycles]) -> Cycles:
    """Returns the cycles sorted by answer; within an answer they are in order already."""
    names = [field.name for field in fields(Cycles)]
    columns = {
        name: np.concatenate([getattr(step, name) for step in steps] or [np.empty(0, np.int64)]) for name in names
    }
    order = np.argsort(columns["sequence"], kind="stable")
    return Cycles(**{name: column[order] for name, column in columns.items()})


def _hindsight(banks: Sequence[Bank], text: Text, options: Options, groups: np.ndarray | None) -> Hindsight:
    """Returns what the finished walks of the single drafters tell, at every position."""
    counts = np.diff(text.offsets)
    groups = np.arange(len(counts)) if groups is None else groups
    shape = (len(text.future), len(banks))
    confidence, tau = np.empty(shape), np.empty(shape)
    for index, bank in enumerate(banks):
        own = walk(single, [bank], text, options)
        tau[:, index] = own.emitted.sum() / max(len(own), 1)
        size = int(groups.max(initial=-1)) + 1
        total = np.bincount(groups[own.sequence], weights=own.score, minlength=size)
        number = np.bincount(groups[own.sequence], minlength=size)
        confidence[:, index] = np.repeat((total / np.maximum(number, 1))[groups], counts)
    accepted = np.stack([bank.accepted(options.num_draft_tokens) for bank in banks], axis=1)
    return Hindsight(num_accepted=accepted, confidence=confidence, tau=tau)
