"""Replay files made by random walks instead of models: small, seeded, in the very format of the replay stage.

Each variant accepts a drafted token with a probability that depends on drafter, benchmark, method and temperature. The
paper's main effects are there by construction: matched specialists lead, averaged ones trail, merging gains a little.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from taps.plumbing.parquet import write_parquet
from taps.study.config import ROOT as CHECKOUT
from taps.study.config import read, validate
from taps.study.roles import roles_of

DEPTH = 5
BUDGET = 40
METHODS = ("eagle2", "hass")
BENCHMARKS = ("gsm8k", "mt_bench", "aime", "gsm_symbolic")
MIXTURES = ("math", "chat", "mixed_small", "mixed_large")
SWEEP = tuple(f"averaged_{weight / 10:.1f}" for weight in range(1, 10) if weight != 5)
PAIR = "math+chat"
LAPTOP = roles_of(validate(read([CHECKOUT / "tests/inputs/study.yaml"]), root=CHECKOUT))
"""Who is who in the study that the fixture imitates."""

ROLES = ["--roles", json.dumps(LAPTOP.to_json())]


class Row(NamedTuple):
    """One replayed variant and the probability that it accepts a token on math and on chat."""

    strategy: str
    drafters: str
    num_draft_tokens: int
    on_math: float
    on_chat: float
    nodes_per_draft: float = 1.0
    num_drafted: int = 1


def rows() -> Iterator[Row]:
    """Yields the variants that the fixture replays."""
    quality = {"math": (0.62, 0.30), "chat": (0.42, 0.52), "mixed_small": (0.58, 0.48), "mixed_large": (0.61, 0.51)}
    for name in MIXTURES:
        for budget in (10, 20, BUDGET):
            gain = 0.04 * (budget / BUDGET - 1)
            yield Row("single", name, budget, quality[name][0] + gain, quality[name][1] + gain)
    yield Row("single", "averaged", BUDGET, 0.22, 0.20)
    for name in SWEEP:
        weight = float(name.removeprefix("averaged_"))
        yield Row("single", name, BUDGET, 0.62 - 0.8 * weight * (1 - weight) - 0.2 * weight, 0.30 + 0.22 * weight**2)
    for name in ("math", "chat"):
        on_math, on_chat = quality[name]
        yield Row("single_double", name, BUDGET, on_math + 0.03, on_chat + 0.03, nodes_per_draft=2)
    for signal in ("confidence", "entropy"):
        yield Row(f"routed_{signal}_step", PAIR, BUDGET, 0.60, 0.45, num_drafted=2)
        yield Row(f"routed_{signal}_turn", PAIR, BUDGET, 0.60, 0.44, num_drafted=2)
    yield Row("routed_history", PAIR, BUDGET, 0.61, 0.51, num_drafted=2)
    yield Row("merged_concat", PAIR, BUDGET, 0.66, 0.56, nodes_per_draft=2, num_drafted=2)
    yield Row("merged_dedup", PAIR, BUDGET, 0.66, 0.56, nodes_per_draft=1.8, num_drafted=2)
    for budget in (10, 20, BUDGET):
        yield Row("merged_matched", PAIR, budget, 0.63, 0.53, num_drafted=2)
    yield Row("merged_adaptive", PAIR, BUDGET, 0.64, 0.535, num_drafted=2)
    yield Row("random", PAIR, BUDGET, 0.52, 0.41)
    yield Row("oracle", PAIR, BUDGET, 0.67, 0.57, num_drafted=2)


def write_replays(
    folder: Path,
    *,
    methods: tuple[str, ...] = METHODS,
    benchmarks: tuple[str, ...] = BENCHMARKS,
    conditions: tuple[tuple[float, int], ...] = ((0.0, 0), (1.0, 0), (1.0, 1)),
    num_questions: int = 6,
    num_tokens: int = 48,
    without: tuple[str, ...] = (),
    training_seed: int = 0,
) -> Path:
    """Writes one replay file (and its nodes) per method, benchmark and (temperature, seed); returns `folder`.

    Args:
        without: Strategies to leave out.
        training_seed: Of the draft models; the questions stay the same.
    """
    for method in methods:
        for benchmark in benchmarks:
            for temperature, seed in conditions:
                path = folder / method / benchmark / f"t{temperature:g}_s{seed}.parquet"
                path.parent.mkdir(parents=True, exist_ok=True)
                meta = {
                    "method": method,
                    "benchmark": benchmark,
                    "temperature": temperature,
                    "seed": seed,
                    "depth": DEPTH,
                    "training_seed": training_seed,
                }
                place = [METHODS.index(method), BENCHMARKS.index(benchmark), int(temperature), seed]
                rng = np.random.default_rng(place)
                shift = rng.normal(0, 0.04, num_questions) - 0.08 * temperature - 0.01 * (method == "hass")
                if training_seed:
                    rng = np.random.default_rng([*place, training_seed])
                cycles, nodes = _condition(rng, meta, shift, num_tokens, without)
                write_frame(path, cycles, meta)
                write_frame(path.with_suffix(".nodes.parquet"), nodes, meta, kind="replay_nodes")
    return folder


def write_frame(path: Path, frame: pd.DataFrame, meta: dict[str, Any], kind: str = "replay") -> None:
    """Writes a frame as the replay stage does."""
    write_parquet(path, {str(name): pa.array(frame[name]) for name in frame}, kind=kind, provenance={}, meta=meta)


def _condition(
    rng: np.random.Generator, meta: dict[str, Any], shift: np.ndarray, num_tokens: int, without: tuple[str, ...]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns (cycles, nodes) of one condition; questions differ in difficulty, the same for every row."""
    is_chat = meta["benchmark"] == "mt_bench"
    cycles: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []
    for row in rows():
        if row.strategy in without:
            continue
        for sequence in range(len(shift) * (2 if is_chat else 1)):
            question, turn = divmod(sequence, 2) if is_chat else (sequence, 0)
            chance = float(np.clip((row.on_chat if is_chat else row.on_math) + shift[question], 0.02, 0.98))
            walked = list(_walk(rng, row, chance, num_tokens))
            for cycle in walked:
                cycles.append({**cycle, "sequence": sequence, "question": f"q{question}", "turn": turn})
            if row.strategy == "single" and row.num_draft_tokens == BUDGET:
                nodes += [node for cycle in walked for node in _nodes(rng, row.drafters, sequence, cycle)]
    frame = pd.DataFrame(cycles).astype({"strategy": "category", "drafters": "category", "question": "category"})
    return frame, pd.DataFrame(nodes).astype({"drafters": "category", "kind": "category"})


def _walk(rng: np.random.Generator, row: Row, chance: float, num_tokens: int) -> Iterator[dict[str, Any]]:
    """Yields the cycles of one answer of `num_tokens` tokens; token 0 comes from prefill."""
    start, cycle = 0, 0
    while start < num_tokens - 1:
        cycle += 1
        left = num_tokens - 1 - start
        accepted = min(int(rng.geometric(1 - chance)) - 1, DEPTH + 1, left)
        emitted = min(accepted + 1, left)
        chosen = -1 if row.strategy.startswith("merged") else int(rng.random() < 1 - row.on_math)
        yield {
            "strategy": row.strategy,
            "drafters": row.drafters,
            "num_draft_tokens": row.num_draft_tokens,
            "cycle": cycle,
            "start": start,
            "accepted": accepted,
            "emitted": emitted,
            "chosen": chosen if "+" in row.drafters else 0,
            "tree_depth": DEPTH,
            "num_levels": 0,
            "num_nodes": int(row.num_draft_tokens * row.nodes_per_draft),
            "num_drafted": row.num_drafted,
            "score": float(rng.random()) if row.strategy.startswith("routed") else np.nan,
        }
        start += emitted


def _nodes(rng: np.random.Generator, drafters: str, sequence: int, cycle: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields node groups of one cycle: accepted ones are more confident and less uncertain than their siblings."""
    for depth in range(1, min(cycle["accepted"] + 1, DEPTH + 1) + 1):
        kinds = ["rejected_sibling"] + ["accepted"] * (depth <= cycle["accepted"])
        for kind in kinds:
            good = kind == "accepted"
            yield {
                "drafters": drafters,
                "num_draft_tokens": BUDGET,
                "sequence": sequence,
                "cycle": cycle["cycle"],
                "depth": depth,
                "kind": kind,
                "entropy": abs(rng.normal(0.8 if good else 1.4, 0.3)),
                "confidence": float(np.clip(rng.normal(0.5 if good else 0.05, 0.1), 0.001, 0.999)),
                "conditional_confidence": float(np.clip(rng.normal(0.7 if good else 0.1, 0.1), 0.001, 0.999)),
                "count": 1 if good else 4,
            }
