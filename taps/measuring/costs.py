"""What one cycle of live decoding costs on this machine: target forwards, draft trees, and what lies outside both.

Everything is measured in rounds, each work once per round in an order drawn anew, so that a busy moment of the machine
falls on all of them, until the time is up; and a round that was slow as a whole counts at the pace of the median one
(`at_one_pace`), since what is asked of these times is their ratios. Every round is at another place of an answer: how
much of a tree is worth drafting, and so how long drafting takes, depends on what comes next.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from taps.decoding.engine import decode
from taps.decoding.history import MERGED, History
from taps.decoding.live_drafter import LiveDrafter
from taps.decoding.merging import merge
from taps.decoding.strategies.single import single
from taps.decoding.strategy import Kind, Options, Proposal, Strategy, all_drafters
from taps.decoding.timing import now
from taps.decoding.trees import ROOT, Trees
from taps.decoding.verification import NodeLogits, TargetText, Tree
from taps.model.target import Target
from taps.plumbing.progress import progress

WIDEST_SPREAD = 0.25  # (upper - lower quartile) / median above which a time decides nothing
FEWEST = 3  # measurements below which it decides nothing
_SHARE_OF_ROUNDS = 0.75  # of the time; the rest goes to whole cycles, for the overhead
_SMALL = 4  # nodes of a small tree, beside the default one
_NUM_PLAIN = 3  # steps of plain decoding per round: all speeds are compared with it
_NUM_DECODED = 6  # tokens of a decoding that shows the overhead
_STRIDE = 8  # tokens from one round's place to the next
_AHEAD = 2  # tokens that a drafter reads before it drafts, about what a cycle emits
FEWEST_TOKENS = 2 * _AHEAD  # of a text

Key = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A text to measure on.

    Attributes:
        tokens: Prompt and answer; at least `_AHEAD` tokens behind the prompt.
        prompt_length: Tokens of the prompt, at least `_AHEAD`.
    """

    tokens: Sequence[int]
    prompt_length: int

    @classmethod
    def cut(cls, tokens: Sequence[int], prompt_length: int, room: int) -> Answer:
        """Returns the first `room` of at least FEWEST_TOKENS tokens; a prompt that fills them ends earlier."""
        own = tokens[:room]
        return cls(tokens=own, prompt_length=min(max(prompt_length, _AHEAD), len(own) - _AHEAD))


def _merged_half_and_half(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    merged = merge(trees, np.full(len(trees), 1 / len(trees)), options.num_draft_tokens)
    return Proposal(trees=merged, chosen=np.array([MERGED]), score=np.array([np.nan]))


# What stands for all strategies of several drafters: the costliest step outside the models is the merging.
_MERGED = Strategy(name="merged", title="merged", kind=Kind.MERGED, propose=_merged_half_and_half, drafts=all_drafters)


def measure_costs(
    target: Target,
    drafter: LiveDrafter,
    answers: Sequence[Answer],
    *,
    nodes: Sequence[int],
    draft_shapes: Sequence[tuple[int, int]],
    num_draft_tokens: int,
    limit_s: float,
    seed: int = 0,
) -> dict[str, Any]:
    """Returns {"target", "draft", "plain", "overhead", "plain_s", "overhead_one_s", "overhead_many_s", "load", ...}.

    Args:
        target: As it will decode.
        drafter: Stands for all drafters of its shape.
        answers: Texts, taken one after another and then again.
        nodes: Tree sizes at which the target is timed.
        draft_shapes: (levels, nodes) at which drafting is timed.
        num_draft_tokens: Nodes of the trees whose overhead is measured.
        limit_s: Seconds for all of it.
        seed: Of the order within rounds.
    """
    load = _Load()
    start = time.perf_counter()
    text = _Place(target, drafter, answers)
    works: dict[Key, Callable[[], None]] = {
        **{("target", size): _call(text.verify, size) for size in sorted({*nodes, 0})},
        **{("draft", *shape): _call(text.draft, *shape) for shape in draft_shapes},
        **{("plain", turn): text.say_one for turn in range(_NUM_PLAIN)},
    }
    with progress(total=round(limit_s), what="timing", unit="s") as bar:

        def tick() -> None:
            bar.update(min(round(time.perf_counter() - start), round(limit_s)) - bar.n)

        seconds = _rounds(works, text.move, target.device, start + limit_s * _SHARE_OF_ROUNDS, seed, tick)
        sizes = sorted({min(_SMALL, num_draft_tokens), num_draft_tokens})
        overheads = _overheads(target, drafter, answers[0].tokens, sizes, start + limit_s, tick)
    even, pace = at_one_pace(seconds)
    times: dict[str, dict[Key, list[float]]] = {"target": {}, "draft": {}, "plain": {}}
    for key, column in zip(works, even.T, strict=True):
        times[key[0]][key] = column[np.isfinite(column)].tolist()
    plain = spread(list(itertools.chain(*times["plain"].values())))
    overhead = {name: [{"num_nodes": n, **spread(overheads[name, n])} for n in sizes] for name in ("one", "many")}
    return {
        "target": [{"num_tokens": nodes + 1, **spread(own)} for (_, nodes), own in times["target"].items()],
        "draft": [
            {"num_levels": levels, "num_nodes": nodes, **spread(own)}
            for (_, levels, nodes), own in times["draft"].items()
        ],
        "plain": plain,
        "overhead": overhead,
        "plain_s": plain["median_s"],
        "overhead_one_s": overhead["one"][-1]["median_s"],
        "overhead_many_s": overhead["many"][-1]["median_s"],
        "seconds": time.perf_counter() - start,
        "load": load.report() | {"slowest_round": float(pace.max()), "fastest_round": float(pace.min())},
    }


class _Place:
    """A place in an answer up to which target and drafter have read, and what is timed there."""

    def __init__(self, target: Target, drafter: LiveDrafter, answers: Sequence[Answer]) -> None:
        self.target, self.drafter = target, drafter
        self._coming = itertools.cycle(answers)
        self._begin()

    def _begin(self) -> None:
        """Reads the next answer's prompt."""
        answer = next(self._coming)
        self.tokens, self.text, self.end = list(answer.tokens), TargetText(self.target), 0
        self.drafter.begin()
        self._read(answer.prompt_length)

    def _read(self, count: int) -> None:
        features = self.text.read(self.tokens[self.end : self.end + count])
        following = self.tokens[self.end + 1 : self.end + 1 + count]
        self.end += count
        self.drafter.read(torch.tensor(following, device=self.target.device), features)
        self.drafter.catch_up()
        self._last = (following[-_AHEAD:], features[-_AHEAD:])

    def move(self) -> None:
        """Goes on to the next place, in the next answer where this one has no more."""
        room = len(self.tokens) - self.end - 1
        if room >= _AHEAD:
            self._read(min(_STRIDE, room))
        else:
            self._begin()

    @torch.inference_mode()
    def verify(self, num_nodes: int) -> None:
        """One target forward over a root and a tree, with the head where verification asks first."""
        ones = np.ones(num_nodes, dtype=np.int64)
        tree = Tree(tokens=ones * self.tokens[0], parents=ones * ROOT, depths=ones)
        int(NodeLogits(self.target, self.text.verify(self.tokens[0], tree), tree).at(ROOT).argmax())
        self.text.forget()

    @torch.inference_mode()
    def say_one(self) -> None:
        """One step of plain decoding."""
        features = self.text.read(self.tokens[:1])
        int(self.target.logits(features[-1]).argmax())
        self.text.length -= 1
        self.text.forget()

    def draft(self, num_levels: int, num_nodes: int) -> None:
        """Reads what a cycle emits and drafts one tree."""
        depth, keys, values = self.drafter.depth, self.drafter.keys, self.drafter.values
        tokens, features = self._last
        self.drafter.read(torch.tensor(tokens, device=self.target.device), features)
        self.drafter.depth = num_levels - 1
        self.drafter.draft(num_nodes)
        self.drafter.depth, self.drafter.keys, self.drafter.values = depth, keys, values


def _call(work: Callable[..., None], *sizes: int) -> Callable[[], None]:
    return lambda: work(*sizes)


def _rounds(
    works: Mapping[Key, Callable[[], None]],
    settle: Callable[[], None],
    device: torch.device,
    end: float,
    seed: int,
    tick: Callable[[], object],
) -> np.ndarray:
    """Returns float [R, W]: the seconds of every work in every round, NaN in the last one where time was up before.

    A first round warms up and counts only if there is no time for another.
    """
    order, keys = np.random.default_rng(seed), list(works)
    rounds: list[np.ndarray] = []
    while len(rounds) < 2 or time.perf_counter() < end:
        seconds = np.full(len(keys), np.nan)
        for place in order.permutation(len(keys)):
            if rounds and time.perf_counter() > end:
                break
            start = now(device)
            works[keys[place]]()
            seconds[place] = now(device) - start
        settle()
        rounds.append(seconds)
        tick()
        if time.perf_counter() > end:
            break
    measured = np.stack(rounds)
    warm = measured[1:]
    return warm if np.isfinite(warm).any(axis=0).all() and len(warm) else measured


def at_one_pace(seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (float [R, W] the times as if all rounds had run at one pace, float [R] the rounds' own: 1 is usual).

    A round's pace is the median over its works of their times to what they usually take.

    Args:
        seconds: float [R, W] of W works in R rounds, NaN where one was not measured; no round and no work is empty.
    """
    relative = seconds / np.nanmedian(seconds, axis=0)
    pace = np.nanmedian(relative[np.isfinite(relative).any(axis=1)], axis=1)
    pace /= np.median(pace)
    return seconds[: len(pace)] / pace[:, None], pace


def _overheads(
    target: Target,
    drafter: LiveDrafter,
    tokens: Sequence[int],
    sizes: Sequence[int],
    end: float,
    tick: Callable[[], object],
) -> dict[Key, list[float]]:
    """Returns seconds per cycle outside the models, with one drafter and with two, by nodes; at least once each."""
    endless = replace(target, eos_ids=frozenset())
    twins = [drafter, drafter.of_depth(drafter.depth)]
    kinds = (("one", single, twins[:1]), ("many", _MERGED, twins))
    found: dict[Key, list[float]] = {(name, size): [] for name, *_ in kinds for size in sizes}
    while not all(found.values()) or time.perf_counter() < end:
        for size in sizes:
            for name, strategy, drafters in kinds:
                decoded = decode(
                    endless,
                    drafters,
                    list(tokens[:16]),
                    strategy=strategy,
                    options=Options(num_draft_tokens=size),
                    max_new_tokens=_NUM_DECODED,
                )
                found[name, size].append(decoded.seconds.outside / len(decoded.cycles))
                tick()
    return found


def spread(seconds: Sequence[float]) -> dict[str, Any]:
    """Returns median and quartiles, how many were measured, and whether they lie close enough to decide anything."""
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else [*seconds] * 3
    decides = len(seconds) >= FEWEST and high - low <= WIDEST_SPREAD * median
    return {"median_s": median, "low_s": low, "high_s": high, "num_measured": len(seconds), "decides": decides}


class _Load:
    """What else the machine did since it was made."""

    def __init__(self) -> None:
        self._before, self._wall, self._cpu = os.getloadavg(), time.perf_counter(), time.process_time()

    def report(self) -> dict[str, Any]:
        """Returns the load averages (1, 5, 15 minutes) before and after, and the share of its cores we were given."""
        wall = time.perf_counter() - self._wall
        return {
            "num_cores": os.cpu_count(),
            "average_before": list(self._before),
            "average_after": list(os.getloadavg()),
            "own_cpu_share": (time.process_time() - self._cpu) / wall / torch.get_num_threads(),
        }
