"""Replay of variants over one recording, from files to files.

Two tables: one row per cycle, and the entropy and confidence of the nodes that `single` verified at the default budget,
one row per cycle, depth and kind of node (`taps.decoding.node_groups`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from taps.decoding.cost_model import CostModel
from taps.decoding.node_groups import NODE_KINDS, node_groups
from taps.decoding.recording import Recording
from taps.decoding.strategies.single import single
from taps.decoding.strategy import Options
from taps.decoding.variants import Variant
from taps.decoding.views import Shape, view_bank
from taps.decoding.walk import Bank, Cycles, walk
from taps.plumbing.parquet import categories, write_parquet
from taps.plumbing.progress import progress

_NODE_MEANS = ("entropy", "confidence", "conditional_confidence")


@dataclass(frozen=True, kw_only=True)
class Labels:
    """What a replay is named in the tables.

    Attributes:
        method: Way of training, as the study names it.
        benchmark: Whose prompts were answered.
        training_seed: Of its draft models.
    """

    method: str
    benchmark: str
    training_seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The walks of all variants.

    Attributes:
        variants: What was replayed, in order.
        walks: The cycles of each variant.
        nodes: (variant, node statistics) of single drafters at the default budget.
        recording: What was walked over.
    """

    variants: Sequence[Variant]
    walks: list[Cycles]
    nodes: list[tuple[Variant, dict[str, np.ndarray]]]
    recording: Recording

    @property
    def num_cycles(self) -> int:
        """Cycles of all walks."""
        return sum(map(len, self.walks))


def replay(
    recording: Recording,
    variants: Sequence[Variant],
    *,
    num_draft_tokens: int,
    factors: Mapping[str, float],
    decay: float = Options.decay,
    prior: float = Options.prior,
    cost: CostModel | None = None,
    router: Mapping[str, Sequence[float]] | None = None,
) -> Replay:
    """Returns the walks of the variants over a recording; no more banks are in memory than one variant takes.

    Args:
        num_draft_tokens: The default budget, at which node statistics are kept.
        factors: Drafter -> inverse temperature, for calibrated strategies.
        decay: `Options.decay`.
        prior: `Options.prior`.
        cost: Measured times; costed strategies need them.
        router: Drafter -> bias and weights, for strategies that read the prompt.
    """
    walks: dict[int, Cycles] = {}
    nodes: dict[int, tuple[Variant, dict[str, np.ndarray]]] = {}
    questions = np.unique(recording.trace_meta["ids"], return_inverse=True)[1]
    by_drafters = sorted(range(len(variants)), key=lambda index: variants[index].drafters)
    for index in progress(by_drafters, what="replaying", unit="row"):
        variant = variants[index]
        recording.keep_only(variant.drafters)
        options = variant.options(
            factors,
            cost=cost,
            bank_depth=recording.drafting["depth"],
            router=router,
            decay=decay,
            prior=prior,
            seed=recording.trace_meta["seed"],
        )
        banks = banks_of(variant, recording)
        walks[index] = walk(variant.strategy, banks, recording.text, options, groups=questions)
        if variant.strategy is single and variant.num_draft_tokens == num_draft_tokens and variant.depth is None:
            groups = node_groups(banks[0], recording.text, walks[index], num_draft_tokens)
            nodes[index] = variant, {name: column.astype(_node_type(name)) for name, column in groups.items()}
    in_order = range(len(variants))
    return Replay(
        variants=variants,
        walks=[walks[index] for index in in_order],
        nodes=[nodes[index] for index in in_order if index in nodes],
        recording=recording,
    )


def banks_of(variant: Variant, recording: Recording) -> list[Bank]:
    """Returns the banks that a variant walks over, one per drafter, as views where it has a depth of its own."""
    banks = [recording.banks[name] for name in variant.drafters]
    if variant.depth is None:
        return banks
    shape = Shape(depth=variant.depth, num_nodes=variant.num_nodes)
    return [view_bank(bank, recording.text, shape) for bank in banks]


def write_replay(
    found: Replay,
    labels: Labels,
    *,
    settings: Mapping[str, Any],
    provenance: Mapping[str, Any],
    cycles: Path,
    nodes: Path,
) -> None:
    """Writes both tables.

    Args:
        found: What `replay` returned.
        labels: Names of the result.
        settings: num_draft_tokens, decay and prior, recorded beside the trace's own facts.
        provenance: Written into both files.
        cycles: File of the cycles.
        nodes: File of the node statistics.
    """
    trace = found.recording.trace_meta
    meta = {
        "method": labels.method,
        "training_seed": labels.training_seed,
        "benchmark": labels.benchmark,
        "temperature": trace["sampling"]["temperature"],
        "seed": trace["seed"],
        "sampling": trace["sampling"],
        **settings,
        **found.recording.drafting,
    }
    columns = cycle_columns(found.variants, found.walks, trace, depth=found.recording.drafting["depth"])
    write_parquet(cycles, columns, kind="replay", provenance=provenance, meta=meta)
    write_parquet(nodes, node_columns(found.nodes), kind="replay_nodes", provenance=provenance, meta=meta)


def cycle_columns(
    variants: Sequence[Variant], walks: Sequence[Cycles], trace_meta: Mapping[str, Any], *, depth: int
) -> dict[str, Any]:
    """Returns the columns of the table of cycles, in the order of `variants`; `depth` is that of the banks."""
    counts = [len(cycles) for cycles in walks]
    ids, question_of = np.unique(trace_meta["ids"], return_inverse=True)

    def stacked(name: str, dtype: type = np.int32) -> np.ndarray:
        return np.concatenate([getattr(cycles, name) for cycles in walks] or [np.empty(0)]).astype(dtype)

    sequence = stacked("sequence")
    return {
        **_labels(variants, counts),
        "tree_depth": np.repeat(np.array([depth if v.depth is None else v.depth for v in variants], np.int32), counts),
        "sequence": sequence,
        "question": categories(question_of[sequence], ids.tolist()),
        "turn": np.asarray(trace_meta["turns"], dtype=np.int32)[sequence],
        **{name: stacked(name) for name in ("cycle", "start", "accepted", "emitted", "chosen", "num_nodes")},
        "num_drafted": stacked("num_drafted"),
        "num_levels": stacked("num_levels"),
        "score": stacked("score", np.float32),
    }


def node_columns(parts: Sequence[tuple[Variant, dict[str, np.ndarray]]]) -> dict[str, Any]:
    """Returns the columns of the table of nodes."""

    def stacked(name: str) -> np.ndarray:
        return np.concatenate([columns[name] for _, columns in parts] or [np.empty(0)]).astype(_node_type(name))

    labels = _labels([variant for variant, _ in parts], [len(columns["kind"]) for _, columns in parts])
    return {
        "drafters": labels["drafters"],
        "num_draft_tokens": labels["num_draft_tokens"],
        **{name: stacked(name) for name in ("sequence", "cycle", "depth")},
        "kind": categories(stacked("kind"), list(NODE_KINDS)),
        **{name: stacked(name) for name in (*_NODE_MEANS, "count")},
    }


def _node_type(name: str) -> type:
    return np.float32 if name in _NODE_MEANS else np.int32


def _labels(variants: Sequence[Variant], counts: Sequence[int]) -> dict[str, Any]:
    """Returns strategy, drafters and num_draft_tokens, each variant's repeated `counts` times."""
    return {
        "strategy": _repeated([variant.strategy.name for variant in variants], counts),
        "drafters": _repeated(["+".join(variant.drafters) for variant in variants], counts),
        "num_draft_tokens": np.repeat(
            np.array([variant.num_draft_tokens for variant in variants], dtype=np.int32), counts
        ),
    }


def _repeated(labels: Sequence[str], counts: Sequence[int]) -> Any:
    names = list(dict.fromkeys(labels))
    return categories(np.repeat([names.index(label) for label in labels], counts).astype(np.int32), names)
