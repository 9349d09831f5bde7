"""Live speculative decoding: any target, any number of drafters, any strategy; the text is exactly the target's.

    prefill                      the target reads the prompt and says g_0
    each cycle
      draft                      the drafters that the strategy asks for draft a tree under the last token, the root
      propose                    the strategy makes one tree of theirs
      verify                     one target forward over root and nodes; a node sees the text, its ancestors and itself
      follow                     from the root: what would the target say here? if a child says so, on to that child
      keep                       cache rows of the accepted nodes move to the front, all others go
      remember                   every drafter's tree is scored against the tokens that came out

What the target would say at a node is drawn as in plain decoding: argmax at temperature 0, else with the noise that
belongs to (seed, prompt, turn, position). At temperature > 0 that is the law of EAGLE's rule for
deterministic trees (accept child x with probability p(x), else zero it and renormalise): either way the next token is
drawn from p, and the node survives if it is among the children. So the text is the one that `taps.trace` records, as
far as rounding allows (`taps.live_check` counts where it does not).

Shape letters: N nodes, L tokens in the cache, h hidden size, V vocabulary.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from taps.decoding.history import History
from taps.decoding.strategy import Options, Strategy
from taps.decoding.timing import Clock, Seconds
from taps.decoding.trees import NO_FUTURE, Trees, depths, no_trees, num_accepted
from taps.decoding.verification import Chooser, NodeLogits, TargetText, follow, one_tree
from taps.model.sampling import Draws, Sampling
from taps.model.target import Target
from taps.plumbing.errors import TapsError


class Drafting(Protocol):
    """What the engine asks of a drafter; `taps.decoding.live_drafter.LiveDrafter` is the real one."""

    def begin(self) -> None:
        """Forgets the text."""

    def read(self, tokens: torch.Tensor, features: torch.Tensor) -> None:
        """Takes note of tokens int64 [m] and of the features [m, h] of the positions before them."""

    def catch_up(self) -> None:
        """Does the work of what was noted; `draft` does so, too, if it was not done."""

    def draft(self, num_nodes: int, goes_on: Callable[[Trees, int], bool] | None = None) -> Trees:
        """Returns one tree [1, num_nodes] under the last token read; `goes_on` as in `drafting.draft_trees`."""


@dataclass(frozen=True, kw_only=True)
class Cycle:
    """One cycle, as `taps.decoding.walk.Cycles` has it.

    Attributes:
        start: Index of the root among the generated tokens.
        accepted: Length of the accepted path.
        emitted: Tokens that the cycle emitted.
        chosen: Index of the drafter, MERGED for none.
        num_nodes: Nodes verified, root not counted; near the end fewer than were proposed.
        num_drafted: How many drafters drafted a tree.
        num_levels: Levels that they drafted together; 0 if each drafted all of its own.
        score: The strategy's signal, NaN for none.
    """

    start: int
    accepted: int
    emitted: int
    chosen: int
    num_nodes: int
    num_drafted: int
    num_levels: int
    score: float


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """An answer and how it came about.

    Attributes:
        tokens: int32 [n] generated tokens, the end token included.
        finish: `eos`, `length` or `context`, as in `taps.model.sampler.Answer`.
        cycles: In order; none if prefill gave the whole answer.
        seconds: Where the time went.
    """

    tokens: np.ndarray
    finish: str
    cycles: list[Cycle]
    seconds: Seconds

    @property
    def tau(self) -> float:
        """Acceptance length: emitted tokens per cycle, the prefill token not counted; NaN without a cycle."""
        return sum(cycle.emitted for cycle in self.cycles) / len(self.cycles) if self.cycles else float("nan")


def decode(
    target: Target,
    drafters: Sequence[Drafting],
    prompt: Sequence[int],
    *,
    strategy: Strategy,
    options: Options,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    draws: Draws | None = None,
    stop_ids: Collection[int] | None = None,
    sequence: int = 0,
    on_tokens: Callable[[list[int]], object] = lambda _: None,
) -> Decoded:
    """Returns the target's answer to a prompt, decoded speculatively.

    Args:
        drafters: One for a strategy of one drafter, else two or more.
        prompt: Tokens, not empty; at the context's limit the answer is empty.
        strategy: From `strategies.find(name, live=True)`.
        options: Settings of the strategy.
        max_new_tokens: Most tokens of the answer.
        sampling: Greedy by default.
        draws: For temperature > 0: the answer's random numbers.
        stop_ids: Tokens that end the answer; the target's by default.
        sequence: Index of the answer among its benchmark's (seeds `random`).
        on_tokens: Called with the tokens of each cycle as they come; its time is not counted.

    Raises:
        TapsError: the prompt is empty or longer than the context, or the number of drafters is wrong.
    """
    decoding = Decoding(
        target,
        drafters,
        prompt,
        strategy=strategy,
        options=options,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        draws=draws,
        stop_ids=stop_ids,
        sequence=sequence,
    )
    while not decoding.is_complete():
        on_tokens(decoding.step())
    return decoding.result()


def _check(target: Target, prompt: Sequence[int], strategy: Strategy, num_drafters: int) -> None:
    if not 0 < len(prompt) <= target.max_length:
        raise TapsError(
            "prompt",
            "does not fit the target's context",
            expected=f"1 to {target.max_length} tokens",
            found=len(prompt),
            remedy="shorten the conversation",
        )
    if strategy.one_drafter != (num_drafters == 1):
        expected = "one drafter" if strategy.one_drafter else "two or more drafters"
        raise TapsError(
            f"strategy {strategy.name!r}", "wrong number of drafters", expected=expected, found=num_drafters
        )


class Decoding:
    """One answer in the making, step by step; arguments and errors as of `decode`."""

    def __init__(
        self,
        target: Target,
        drafters: Sequence[Drafting],
        prompt: Sequence[int],
        *,
        strategy: Strategy,
        options: Options,
        max_new_tokens: int,
        sampling: Sampling | None = None,
        draws: Draws | None = None,
        stop_ids: Collection[int] | None = None,
        sequence: int = 0,
    ) -> None:
        _check(target, prompt, strategy, len(drafters))
        self.target, self.text, self.prompt = target, TargetText(target), prompt
        self.drafters, self.strategy, self.options = drafters, strategy, options
        self.chooser = Chooser(sampling or Sampling(), draws)
        self.stop_ids = target.eos_ids if stop_ids is None else stop_ids
        self.limit = min(max_new_tokens, target.max_length - len(prompt))
        self.history = History.start(np.array([sequence]), len(drafters))
        self.clock = Clock(target.device)
        self.tokens: list[int] = []
        self.cycles: list[Cycle] = []

    def is_complete(self) -> bool:
        """Returns whether the answer has all its tokens."""
        return len(self.tokens) >= self.limit or bool(self.tokens and self.tokens[-1] in self.stop_ids)

    @torch.inference_mode()
    def step(self) -> list[int]:
        """Returns the tokens of one more cycle, at first that of prefill; the answer must not be complete."""
        with self.clock.running():
            return self._cycle() if self.tokens else self._begin()

    def result(self) -> Decoded:
        """Returns the answer and how it came about."""
        return Decoded(
            tokens=np.array(self.tokens, dtype=np.int32),
            finish=self._finish(),
            cycles=self.cycles,
            seconds=self.clock.seconds(),
        )

    def _finish(self) -> str:
        if self.tokens and self.tokens[-1] in self.stop_ids:
            return "eos"
        return "context" if len(self.prompt) + len(self.tokens) >= self.target.max_length else "length"

    def _begin(self) -> list[int]:
        with self.clock.phase("prefill"):
            features = self.text.read(self.prompt)
            if self.strategy.uses_prompt:
                prompt_features = self.target.final(features[-1:]).float().cpu().numpy()
                self.history = replace(self.history, prompt_features=prompt_features)
            self.tokens = [self.chooser(self.target.logits(features[-1]), 0)]
        for drafter in self.drafters:
            drafter.begin()
        self._tell([*self.prompt[1:], *self.tokens], features)
        return self.tokens[:]

    def _cycle(self) -> list[int]:
        room = self.limit - len(self.tokens)
        wanted = self.strategy.drafts(self.history, self.options)[0]
        num_nodes = self.strategy.num_nodes(self.options)
        if not self.cycles:  # the draft models' reading of the prompt is prefill as well
            with self.clock.phase("prefill"):
                for drafter in itertools.compress(self.drafters, wanted):
                    drafter.catch_up()
        with self.clock.phase("drafting"):
            trees = [
                drafter.draft(num_nodes, self._going_on(index)) if wanted[index] else no_trees(1)
                for index, drafter in enumerate(self.drafters)
            ]
        proposal = self.strategy(trees, self.history, self.options)
        tree = one_tree(proposal.trees, max_depth=room)
        with self.clock.phase("target"):
            features = self.text.verify(self.tokens[-1], tree)
        logits = NodeLogits(self.target, features, tree)

        def say(node: int, step: int) -> int:
            with self.clock.phase("target"):
                return self.chooser(logits.at(node), len(self.tokens) + step)

        path, emitted = follow(tree, say, room=room, stop_ids=self.stop_ids)
        self.text.keep(path)
        self._tell(emitted, features[[0, *(node + 1 for node in path)]][: len(emitted)])
        self.cycles.append(
            Cycle(
                start=len(self.tokens) - 1,
                accepted=len(path),
                emitted=len(emitted),
                chosen=int(proposal.chosen[0]),
                num_nodes=len(tree.tokens),
                num_drafted=int(wanted.sum()),
                num_levels=0 if proposal.num_levels is None else int(proposal.num_levels[0]),
                score=float(proposal.score[0]),
            )
        )
        remembers = self.strategy.uses_history
        self.history = self.history.updated(
            num_accepted=_own_lengths(trees, emitted) if remembers else np.zeros((1, len(trees)), dtype=np.int64),
            num_emitted=np.array([len(emitted)]),
            chosen=proposal.chosen,
            decay=self.options.decay,
        )
        self.tokens += emitted
        return emitted

    def _going_on(self, drafter: int) -> Callable[[Trees, int], bool] | None:
        if not self.strategy.costed:
            return None
        return lambda trees, levels: self.strategy.drafts_on(trees, levels, drafter, self.options)

    def _tell(self, tokens: Sequence[int], features: torch.Tensor) -> None:
        for drafter in self.drafters:
            drafter.read(torch.tensor(tokens, device=self.target.device), features)


def _own_lengths(trees: Sequence[Trees], emitted: Sequence[int]) -> np.ndarray:
    """Returns int [1, K]: how far the emitted tokens agree with each drafter's own tree, verified or not."""
    deepest = max(int(depths(tree.parents).max(initial=1)) for tree in trees)
    future = np.full((1, max(deepest, len(emitted))), NO_FUTURE)
    future[0, : len(emitted)] = emitted
    return np.stack([num_accepted(tree, future) for tree in trees], axis=1)
