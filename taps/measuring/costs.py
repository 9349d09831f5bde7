"""What one cycle of live decoding costs on this machine: target forwards, draft trees, and what lies outside both.

Everything is measured in rounds, each work once per round in an order drawn anew, so that a busy moment of the machine
falls on all of them, until the time is up. The text grows by two tokens a round, as it would in decoding.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
_NUM_DECODED = 6  # tokens of a decoding that shows the overhead

Key = tuple[Any, ...]


def _merged_half_and_half(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    merged = merge(trees, np.full(len(trees), 1 / len(trees)), options.num_draft_tokens)
    return Proposal(trees=merged, chosen=np.array([MERGED]), score=np.array([np.nan]))


# What stands for all strategies of several drafters: the costliest step outside the models is the merging.
_MERGED = Strategy(name="merged", title="merged", kind=Kind.MERGED, propose=_merged_half_and_half, drafts=all_drafters)


def measure_costs(
    target: Target,
    drafter: LiveDrafter,
    tokens: Sequence[int],
    *,
    prefix_length: int,
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
        tokens: A text, the longer the more rounds it serves; at least `prefix_length` + 2 tokens.
        prefix_length: Tokens read before anything is timed.
        nodes: Tree sizes at which the target is timed.
        draft_shapes: (levels, nodes) at which drafting is timed.
        num_draft_tokens: Nodes of the trees whose overhead is measured.
        limit_s: Seconds for all of it.
        seed: Of the order within rounds.
    """
    load = _Load()
    start = time.perf_counter()
    text = _GrowingText(target, drafter, tokens, prefix_length)
    works: dict[Key, Callable[[], None]] = {
        **{("target", size): _call(text.verify, size) for size in sorted({*nodes, 0})},
        **{("draft", *shape): _call(text.draft, *shape) for shape in draft_shapes},
        ("plain",): text.say_one,
    }
    with progress(total=round(limit_s), what="timing", unit="s") as bar:

        def tick() -> None:
            bar.update(min(round(time.perf_counter() - start), round(limit_s)) - bar.n)

        times = _rounds(works, text.grow, target.device, start + limit_s * _SHARE_OF_ROUNDS, seed, tick)
        sizes = sorted({min(_SMALL, num_draft_tokens), num_draft_tokens})
        overheads = _overheads(target, drafter, tokens, sizes, start + limit_s, tick)
    plain = spread(times.pop(("plain",)))
    overhead = {name: [{"num_nodes": n, **spread(overheads[name, n])} for n in sizes] for name in ("one", "many")}
    return {
        "target": [{"num_tokens": key[1] + 1, **spread(own)} for key, own in times.items() if key[0] == "target"],
        "draft": [
            {"num_levels": key[1], "num_nodes": key[2], **spread(own)}
            for key, own in times.items()
            if key[0] == "draft"
        ],
        "plain": plain,
        "overhead": overhead,
        "plain_s": plain["median_s"],
        "overhead_one_s": overhead["one"][-1]["median_s"],
        "overhead_many_s": overhead["many"][-1]["median_s"],
        "seconds": time.perf_counter() - start,
        "load": load.report(),
    }


class _GrowingText:
    """A text that target and drafter read on, two tokens a round, and what is timed at its end."""

    def __init__(self, target: Target, drafter: LiveDrafter, tokens: Sequence[int], prefix_length: int) -> None:
        self.target, self.drafter, self.tokens = target, drafter, list(tokens)
        self.text = TargetText(target)
        self.end = prefix_length
        features = self.text.read(self.tokens[: self.end])
        drafter.begin()
        self._tell(0, features)

    def _tell(self, start: int, features: torch.Tensor) -> None:
        following = self.tokens[start + 1 : start + 1 + len(features)]
        self.drafter.read(torch.tensor(following, device=self.target.device), features[: len(following)])
        self._last = (following[-2:], features[-2:])

    def grow(self) -> None:
        """Reads two more tokens, or starts again at the prefix's end where the text has no more."""
        if self.end + 3 <= min(len(self.tokens), self.target.max_length - 128):
            features = self.text.read(self.tokens[self.end : self.end + 2])
            self._tell(self.end, features)
            self.end += 2

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
        """Reads two tokens and drafts one tree."""
        depth, keys, values = self.drafter.depth, self.drafter.keys, self.drafter.values
        tokens, features = self._last
        self.drafter.read(torch.tensor(tokens, device=self.target.device), features[: len(tokens)])
        self.drafter.depth = num_levels - 1
        self.drafter.draft(num_nodes)
        self.drafter.depth = depth
        if len(keys):
            self.drafter.keys, self.drafter.values = keys, values


def _call(work: Callable[..., None], *sizes: int) -> Callable[[], None]:
    return lambda: work(*sizes)


def _rounds(
    works: Mapping[Key, Callable[[], None]],
    settle: Callable[[], None],
    device: torch.device,
    end: float,
    seed: int,
    tick: Callable[[], object],
) -> dict[Key, list[float]]:
    """Returns the times of each work; a first round warms up and counts only if there is no time for another."""
    order = np.random.default_rng(seed)
    times: dict[Key, list[float]] = {key: [] for key in works}
    keys, turn = list(works), 0
    while turn < 2 or time.perf_counter() < end:
        for place in order.permutation(len(keys)):
            if turn and time.perf_counter() > end and all(times.values()):
                break
            start = now(device)
            works[keys[place]]()
            times[keys[place]].append(now(device) - start)
        settle()
        turn += 1
        tick()
        if time.perf_counter() > end:
            break
    return {key: own[1:] or own for key, own in times.items()}


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
