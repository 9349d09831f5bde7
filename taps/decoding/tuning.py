"""Which tree to draft and verify: the one that brings most tokens per second on held-out prompts, by replay and costs.

A row of the result is a strategy over drafters. Each is replayed with every shape (depth, nodes) that the banks hold
exactly, its cycles are timed by the measured costs, and the shape with the most tokens per second over all held-out
prompts is taken, or plain decoding where no shape beats it. Nothing of the benchmarks is looked at before that choice;
then the chosen tree and the default one are valued on them, question by question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from taps.decoding.cost_model import CostModel
from taps.decoding.costing import FLOOR
from taps.decoding.recording import Recording
from taps.decoding.replaying import banks_of
from taps.decoding.strategy import find
from taps.decoding.variants import Variant
from taps.decoding.views import Shape, is_exact, view
from taps.decoding.walk import Cycles, walk
from taps.plumbing.artefacts import read_json
from taps.plumbing.lineage import check_fitted_for

NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 60, 80)  # budgets that are tried, as far as the banks hold them
MOST_INEXACT = 0.0  # share of a walk's cycles at which the bank may not hold the exact tree


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What replays need beside a recording.

    Attributes:
        factors: Drafter -> inverse temperature.
        cost: Measured times.
        router: Drafter -> bias and weights, if there is one.
    """

    factors: Mapping[str, float]
    cost: CostModel
    router: Mapping[str, Sequence[float]] | None = None


@dataclass(frozen=True, kw_only=True)
class Value:
    """What a variant brings along recordings.

    Attributes:
        num_tokens: float64 [Q] tokens emitted on each question.
        seconds: float64 [Q] predicted time of each question.
        num_cycles: float64 [Q] cycles of each question.
        inexact_share: Share of cycles whose tree the bank may not hold exactly.
        questions: Ids, ascending within a recording.
    """

    num_tokens: np.ndarray
    seconds: np.ndarray
    num_cycles: np.ndarray
    inexact_share: float
    questions: list[str]

    @property
    def tokens_per_s(self) -> float:
        """All tokens over all time."""
        return float(self.num_tokens.sum() / self.seconds.sum()) if len(self.seconds) else float("nan")

    @property
    def tau(self) -> float:
        """Acceptance length, pooled."""
        return float(self.num_tokens.sum() / self.num_cycles.sum()) if len(self.num_cycles) else float("nan")


def shapes(drafting: Mapping[str, Any], nodes: Iterable[int] = NODES) -> list[Shape]:
    """Returns the shapes to try in banks that were drafted with these options; no more nodes than a depth has."""
    top_k = drafting["top_k"]
    return [
        Shape(depth=depth, num_nodes=count)
        for depth in range(drafting["depth"] + 1)
        for count in nodes
        if depth < count <= min(drafting["num_nodes"], top_k + depth * top_k**2)
    ]


def evaluate(variant: Variant, recordings: Sequence[Recording], setting: Setting) -> Value:
    """Returns what a variant brings, over all recordings together."""
    parts = [_evaluate(variant, recording, setting) for recording in recordings]
    tokens, seconds, cycles = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("num_tokens", "seconds", "num_cycles")
    )
    inexact = sum(part.inexact_share * part.num_cycles.sum() for part in parts) / max(cycles.sum(), 1)
    questions = [name for part in parts for name in part.questions]
    return Value(
        num_tokens=tokens, seconds=seconds, num_cycles=cycles, inexact_share=float(inexact), questions=questions
    )


def _evaluate(variant: Variant, recording: Recording, setting: Setting) -> Value:
    depth = recording.drafting["depth"]
    options = variant.options(
        setting.factors,
        cost=setting.cost,
        bank_depth=depth,
        router=setting.router,
        seed=recording.trace_meta["seed"],
    )
    cycles = walk(variant.strategy, banks_of(variant, recording), recording.text, options)
    seconds = setting.cost.cycle_s(
        variant.strategy,
        variant.num_draft_tokens,
        num_nodes=cycles.num_nodes,
        num_drafted=cycles.num_drafted,
        num_levels=cycles.num_levels,
        depth=depth if variant.depth is None else variant.depth,
    )
    ids, question_of = np.unique(recording.trace_meta["ids"], return_inverse=True)
    question = question_of[cycles.sequence]

    def per_question(values: np.ndarray) -> np.ndarray:
        return np.bincount(question, weights=values, minlength=len(ids))

    return Value(
        num_tokens=per_question(cycles.emitted),
        seconds=per_question(seconds),
        num_cycles=per_question(np.ones(len(cycles))),
        inexact_share=inexact_share(variant, recording, cycles, setting.factors),
        questions=ids.tolist(),
    )


def inexact_share(variant: Variant, recording: Recording, cycles: Cycles, factors: Mapping[str, float]) -> float:
    """Returns the share of cycles at which a bank may not hold the tree that the variant would have drafted.

    A costed strategy looks at nodes above a floor, level by level: exact where what the budget cuts off lies below it.
    """
    if not len(cycles):
        return 0.0
    rows = recording.text.offsets[cycles.sequence] + cycles.start
    drafting = recording.drafting
    depth = drafting["depth"] if variant.depth is None else variant.depth
    shape = Shape(depth=depth, num_nodes=variant.num_nodes)
    exact = np.ones(len(rows), dtype=bool)
    for name in variant.drafters:
        trees = recording.banks[name].trees.rows(rows)
        exact &= is_exact(trees, shape, top_k=drafting["top_k"], bank_depth=drafting["depth"])
        if variant.strategy.costed:
            last = view(trees, depth + 1, variant.num_nodes).scores[:, -1]
            exact &= last * factors.get(name, 1.0) < np.log(FLOOR)
    return float(1 - exact.mean())


def plain_value(recordings: Sequence[Recording], setting: Setting) -> Value:
    """Returns what plain decoding brings: every token behind the first takes `plain_s`."""
    tokens, questions = [], []
    for recording in recordings:
        ids, question_of = np.unique(recording.trace_meta["ids"], return_inverse=True)
        tokens.append(np.bincount(question_of, weights=np.diff(recording.text.offsets), minlength=len(ids)))
        questions += ids.tolist()
    num_tokens = np.concatenate(tokens)
    return Value(
        num_tokens=num_tokens,
        seconds=num_tokens * setting.cost.plain_s,
        num_cycles=num_tokens,
        inexact_share=0.0,
        questions=questions,
    )


def tune(
    variant: Variant, heldout: Sequence[Recording], setting: Setting
) -> tuple[Variant | None, list[dict[str, Any]]]:
    """Returns (the best shape of the variant, None for plain decoding; every shape's value, for the figure).

    A costed strategy chooses its own tree, so only plain decoding is its rival. Shapes that the banks do not hold
    exactly at every cycle are listed with their share and not chosen.
    """
    best, best_rate = None, plain_value(heldout, setting).tokens_per_s
    table = []
    drafting = heldout[0].drafting
    own = Shape(depth=drafting["depth"], num_nodes=variant.num_draft_tokens)
    for shape in [own] if variant.strategy.costed else shapes(drafting):
        tried = replace(variant, num_draft_tokens=shape.num_nodes, depth=shape.depth)
        if tried.num_nodes > drafting["num_nodes"]:
            continue
        value = evaluate(tried, heldout, setting)
        table.append(
            {
                "depth": shape.depth,
                "num_draft_tokens": shape.num_nodes,
                "tau": value.tau,
                "tokens_per_s": value.tokens_per_s,
                "inexact_share": value.inexact_share,
            }
        )
        if value.inexact_share <= MOST_INEXACT and value.tokens_per_s > best_rate:
            best, best_rate = tried, value.tokens_per_s
    return best, table


def server_settings(best: Variant | None, top_k: int) -> dict[str, Any]:
    """Returns the tuned tree as settings of the servers that draft EAGLE trees, {} where they have none.

    They take one drafter and trees of one shape: nothing is said of plain decoding, of several drafters and of trees
    that follow the machine.

    SGLang counts drafting steps and verifies `num_draft_tokens` with the root among them; vLLM drafts a chain, as long
    as the tree is deep.
    """
    if best is None or best.depth is None or best.strategy.costed or not best.strategy.one_drafter:
        return {}
    return {
        "sglang": {
            "speculative_num_steps": best.depth + 1,
            "speculative_eagle_topk": min(top_k, best.num_draft_tokens),
            "speculative_num_draft_tokens": best.num_draft_tokens + 1,
        },
        "vllm": {"num_speculative_tokens": best.depth + 1},
    }


def read_tuned(path: Path, drafters: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """Returns the rows of a tuning: strategy, drafters, `best` {depth, num_draft_tokens} or None, and more.

    Arguments and errors as of `taps.plumbing.lineage.check_fitted_for`.
    """
    check_fitted_for(path, drafters, kind="tuned")
    rows: list[dict[str, Any]] = read_json(path, kind="tuned")["rows"]
    return rows


def tuned_variant(row: Mapping[str, Any]) -> Variant | None:
    """Returns what a row of a tuning chose, None for plain decoding."""
    if row["best"] is None:
        return None
    return Variant(strategy=find(row["strategy"]), drafters=tuple(row["drafters"]), **row["best"])


def with_tuned(variants: Sequence[Variant], rows: Sequence[Mapping[str, Any]]) -> list[Variant]:
    """Returns the variants and, behind them, the tuned trees of those that a tuning knows; each once.

    A strategy whose trees follow the machine is as it is: nothing was tuned.
    """
    wanted = {(variant.strategy.name, variant.drafters) for variant in variants if not variant.strategy.costed}
    tuned = [tuned_variant(row) for row in rows if (row["strategy"], tuple(row["drafters"])) in wanted]
    return list(dict.fromkeys([*variants, *(variant for variant in tuned if variant is not None)]))
