"""What one cycle of live decoding costs on this machine: target forwards, draft trees, and what lies outside both."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from taps.decoding.engine import decode
from taps.decoding.history import MERGED, History
from taps.decoding.live_drafter import LiveDrafter
from taps.decoding.merging import merge
from taps.decoding.plain import decode_plainly
from taps.decoding.strategies.single import single
from taps.decoding.strategy import Kind, Options, Proposal, Strategy, all_drafters
from taps.decoding.timing import now
from taps.decoding.trees import ROOT, Trees
from taps.decoding.verification import NodeLogits, TargetText, Tree
from taps.model.target import Target

NUM_DECODED = 12  # tokens decoded to time plain decoding and the overhead


def _merged_half_and_half(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    merged = merge(trees, np.full(len(trees), 1 / len(trees)), options.num_draft_tokens)
    return Proposal(trees=merged, chosen=np.array([MERGED]), score=np.array([np.nan]))


# What stands for all strategies of several drafters: the costliest step outside the models is the merging.
_MERGED = Strategy(name="merged", title="merged", kind=Kind.MERGED, propose=_merged_half_and_half, drafts=all_drafters)


def target_times(target: Target, prefix: Sequence[int], nodes: Sequence[int], repeats: int) -> list[dict[str, Any]]:
    """Returns the time of a target forward, head included, over a root and each number of nodes."""
    text = TargetText(target)
    with torch.inference_mode():
        text.read(prefix)

    @torch.inference_mode()
    def verify(num_nodes: int) -> None:
        ones = np.ones(num_nodes, dtype=np.int64)
        tree = Tree(tokens=ones * prefix[0], parents=ones * ROOT, depths=ones)
        NodeLogits(target, text.verify(prefix[0], tree), tree).at(ROOT)

    def settle() -> None:
        text.keep([])

    times = _take_turns({n: _call(verify, n) for n in nodes}, repeats, target.device, settle)
    return [{"num_tokens": n + 1, **_spread(seconds)} for n, seconds in times.items()]


def draft_times(
    target: Target, drafter: LiveDrafter, prefix: Sequence[int], nodes: Sequence[int], repeats: int
) -> list[dict[str, Any]]:
    """Returns the time to read two more tokens and draft a tree of each number of nodes."""
    with torch.inference_mode():
        features = TargetText(target).read(prefix)
    tokens = torch.tensor(list(prefix), device=target.device)
    drafter.begin()
    drafter.read(tokens, features)

    def draft(num_nodes: int) -> None:
        drafter.read(tokens[:2], features[:2])
        drafter.draft(num_nodes)

    times = _take_turns({n: _call(draft, n) for n in nodes}, repeats, target.device, lambda: None)
    return [{"num_nodes": n, **_spread(seconds)} for n, seconds in times.items()]


def decoding_times(
    target: Target, drafter: LiveDrafter, prefix: Sequence[int], *, num_draft_tokens: int
) -> tuple[float, float, float]:
    """Returns seconds (per token of plain decoding, per cycle outside the models with one drafter, with two)."""
    from taps.decoding.live_drafter import LiveDrafter
    from taps.decoding.strategy import Options

    endless = replace(target, eos_ids=frozenset())
    twin = LiveDrafter(drafter.model, drafter.head, depth=drafter.depth, top_k=drafter.top_k)
    plain, overheads = [], []
    for _ in range(3):
        answer = decode_plainly(endless, prefix, max_new_tokens=NUM_DECODED)
        plain.append(answer.decoding_s / (len(answer.tokens) - 1))
        row = []
        for strategy, drafters in ((single, [drafter]), (_MERGED, [drafter, twin])):
            decoded = decode(
                endless,
                drafters,
                prefix,
                strategy=strategy,
                options=Options(num_draft_tokens=num_draft_tokens),
                max_new_tokens=NUM_DECODED,
            )
            row.append(decoded.seconds.outside / len(decoded.cycles))
        overheads.append(row)
    one, many = (statistics.median(column) for column in zip(*overheads, strict=True))
    return statistics.median(plain), one, many


def _call(work: Callable[[int], None], size: int) -> Callable[[], None]:
    return lambda: work(size)


def _take_turns(
    works: Mapping[int, Callable[[], None]], repeats: int, device: torch.device, settle: Callable[[], None]
) -> dict[int, list[float]]:
    """Returns the times of each work, all done once per round; a first round warms up and is not counted."""
    times: dict[int, list[float]] = {size: [] for size in works}
    for turn in range(repeats + 1):
        for size, work in works.items():
            start = now(device)
            work()
            if turn:
                times[size].append(now(device) - start)
            settle()
    return times


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else [*seconds] * 3
    return {"median_s": median, "low_s": low, "high_s": high}
