"""What the study's identifiers are called in print, and which published row or benchmark each stands beside."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

BENCHMARK_TITLES = {
    "mt_bench": "MT-Bench",
    "gsm8k": "GSM8K",
    "math_500": "MATH-500",
    "svamp": "SVAMP",
    "aime": "AIME 2025",
    "gsm_symbolic": "GSM-symbolic",
    "mean": "mean",
}
CHAT_BENCHMARKS = frozenset({"mt_bench"})
# The default study lacks two of the paper's benchmarks; the published cell beside ours is then another benchmark's.
STAND_INS = {"aime": "math_500", "gsm_symbolic": "svamp"}

METHOD_TITLES = {
    "eagle2": "EAGLE-2",
    "hass": "HASS",
    "eagle2_long": "EAGLE-2, compute of HASS",
    "eagle2_shared": "EAGLE-2, specialists from one start",
    "hass_published": "HASS, published attention",
}
# Methods that exist to be compared with a family: they have rows in the tables and no figures or verdicts of their own.
CONTROL_METHODS = frozenset({"eagle2_long", "eagle2_shared", "hass_published"})

MATH, CHAT = "math", "chat"
SPECIALISTS = (MATH, CHAT)
PAIR = f"{MATH}+{CHAT}"
_DRAFTER_TITLES = {
    MATH: "Math",
    CHAT: "Chat",
    "mixed_small": "Mixed small",
    "mixed_large": "Mixed large",
    "averaged": "Averaged",
}
_STRATEGY_TITLES = {
    "single": "one drafter",
    "single_double": "one drafter, double budget",
    "routed_confidence_step": "routed by confidence",
    "routed_confidence_turn": "routed by confidence (per answer)",
    "routed_entropy_step": "routed by entropy",
    "routed_entropy_turn": "routed by entropy (per answer)",
    "routed_history": "routed by history",
    "merged_concat": "merged, all nodes",
    "merged_dedup": "merged, duplicates once",
    "merged_matched": "merged, matched budget",
    "merged_adaptive": "merged, matched and adaptive",
    "random": "random drafter",
    "oracle": "oracle router",
    "best_single": "best drafter in hindsight",
    "posthoc": "routed per question in hindsight",
}

# (strategy, drafters) -> variant of the published tables: the seven variants of the main tables, in the paper's order.
PUBLISHED_VARIANTS = {
    ("single", MATH): "math",
    ("single", CHAT): "chat",
    ("single", "mixed_small"): "mixed_35k",
    ("single", "mixed_large"): "mixed_70k",
    ("single", "averaged"): "averaged",
    ("routed_confidence_step", PAIR): "routed_confidence",
    ("merged_concat", PAIR): "merged",
}
VARIANT_TITLES = {
    "math": "Math",
    "chat": "Chat",
    "mixed_35k": "Mixed small (35k+35k)",
    "mixed_70k": "Mixed large (70k+70k)",
    "averaged": "Averaged 0.5 / 0.5",
    "routed_confidence": "Routed by confidence",
    "merged": "Merged trees (double budget)",
}
_SWEPT = re.compile(r"averaged_(0?\.\d+|1(\.0*)?|0)")


def benchmark_title(benchmark: str) -> str:
    """Returns a benchmark's name in print; an unknown one is its own name."""
    return BENCHMARK_TITLES.get(benchmark, benchmark)


def method_title(method: str) -> str:
    """Returns a draft family's name in print."""
    return METHOD_TITLES.get(method, method)


def drafters_title(drafters: str) -> str:
    """Returns e.g. `Math + Chat`, or `Averaged, 0.3 chat` for a point of the averaging sweep."""
    if (weight := chat_weight(drafters)) is not None and drafters != "averaged":
        return f"Averaged, {weight:g} chat"
    return " + ".join(_DRAFTER_TITLES.get(name, name) for name in drafters.split("+"))


def strategy_title(strategy: str) -> str:
    """Returns a strategy's name in print."""
    if strategy.endswith("_calibrated"):
        return f"{strategy_title(strategy.removesuffix('_calibrated'))}, calibrated"
    return _STRATEGY_TITLES.get(strategy, strategy)


def row_title(strategy: str, drafters: str) -> str:
    """Returns the label of a row: the drafter's name for `single`, else the strategy and whatever it combines."""
    if strategy == "single":
        return drafters_title(drafters)
    if drafters == PAIR:
        return strategy_title(strategy).capitalize()
    return f"{drafters_title(drafters)}: {strategy_title(strategy)}"


def chat_weight(drafters: str) -> float | None:
    """Returns the chat specialist's weight in a weight average (`averaged` is 0.5), None for other drafters."""
    if drafters == "averaged":
        return 0.5
    return float(drafters.removeprefix("averaged_")) if _SWEPT.fullmatch(drafters) else None


def is_sweep(drafters: pd.Series) -> pd.Series:
    """Returns for each row whether its drafter is a point of the averaging sweep other than the middle."""
    return drafters.map(lambda name: name != "averaged" and chat_weight(str(name)) is not None).astype(bool)


def published_benchmark(benchmark: str) -> str:
    """Returns the published benchmark whose cell is shown beside ours: its own, or the one it stands in for."""
    return STAND_INS.get(benchmark, benchmark)


def is_math(benchmark: str) -> bool:
    """Returns whether the math specialist is the matched one."""
    return benchmark not in CHAT_BENCHMARKS


def benchmark_order(benchmark: str) -> tuple[int, str]:
    """Returns a sort key: the paper's order, unknown benchmarks behind, `mean` last."""
    known = list(BENCHMARK_TITLES)
    if benchmark == "mean":
        return len(known) + 1, ""
    return (known.index(benchmark) if benchmark in known else len(known)), benchmark


def row_order(strategy: str, drafters: str) -> tuple[int, int, str, str]:
    """Returns a sort key: the paper's variants in its order, then the other strategies, unknown ones last."""
    variants = list(PUBLISHED_VARIANTS)
    if (strategy, drafters) in variants:
        return 0, variants.index((strategy, drafters)), "", ""
    known = list(_STRATEGY_TITLES)
    plain = strategy.removesuffix("_calibrated")
    return 1, (known.index(plain) if plain in known else len(known)), strategy, drafters
