"""The names that a checked study contains: drafters of a method, averages, conditions, strategies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from taps.decoding.strategy import STRATEGIES

HELDOUT = "heldout_"  # prefix of the prompts that come from a corpus's validation rows
AVERAGED = "averaged"  # name of the equal-weight average; other weights append `_<weight>`

Config = Mapping[str, Any]


def mixtures_of(config: Config, method: str) -> list[str]:
    """Returns the mixtures that a method has a trained or imported drafter for."""
    settings = config["methods"][method]
    if settings["checkpoints"]:
        return list(settings["checkpoints"])
    return list(settings["mixtures"] or config["mixtures"])


def specialists(config: Config) -> list[str]:
    """Returns the mixtures that are specialists: those that the study names, else those that are all of one corpus."""
    named = config["roles"]["specialists"]
    whole = [name for name, shares in config["mixtures"].items() if list(shares.values()) == [1]]
    return list(whole if named is None else named)


def is_imported(config: Config, method: str) -> bool:
    """Returns whether a method's drafters are published checkpoints."""
    return bool(config["methods"][method]["checkpoints"])


def trained_methods(config: Config) -> list[str]:
    """Returns the methods whose drafters this study trains."""
    return [method for method in config["methods"] if not is_imported(config, method)]


def imported_methods(config: Config) -> list[str]:
    """Returns the methods whose drafters are published checkpoints."""
    return [method for method in config["methods"] if is_imported(config, method)]


def training_seeds(config: Config, method: str) -> list[int]:
    """Returns the seeds that a method's drafters are trained with; 0 alone for published checkpoints."""
    own = config["methods"][method]["training"].get("seeds")
    return [0] if is_imported(config, method) else list(own or config["training"].get("seeds") or [0])


def training_runs(config: Config, methods: Iterable[str]) -> list[str]:
    """Returns `method/seed0` of every training seed of these methods."""
    return [f"{method}/seed{seed}" for method in methods for seed in training_seeds(config, method)]


def first_run(config: Config, method: str) -> str:
    """Returns `method/seed0` of a method's first training seed: where one draft model stands for all seeds."""
    return training_runs(config, [method])[0]


# --- averages --------------------------------------------------------------------------------------------------------


def averaged_drafters(config: Config) -> list[str]:
    """Returns the mixtures whose drafters are averaged: those named, else the specialists."""
    return list(config["averaging"]["drafters"] or specialists(config))


def averages_of(config: Config, method: str) -> dict[str, dict[str, float]]:
    """Returns name -> mixture -> weight of a method's averaged drafters.

    Weight 0.5 is the equal mean of all that are averaged; any other is that of the second of a pair.
    """
    weights = config["averaging"]["weights"].get(method, [])
    everyone = averaged_drafters(config)
    first, second = config["averaging"]["pair"] or (*everyone, "", "")[:2]
    averages = {}
    for weight in weights:
        if math.isclose(weight, 0.5):
            averages[AVERAGED] = dict.fromkeys(everyone, 1 / len(everyone))
        else:
            averages[f"{AVERAGED}_{weight:g}"] = {first: 1 - weight, second: weight}
    return averages


# --- conditions ------------------------------------------------------------------------------------------------------


def conditions(config: Config) -> list[tuple[str, int]]:
    """Returns (temperature as text, seed) of every evaluation."""
    sampling = config["evaluation"]["sampling"]
    return [(f"{item['temperature']:g}", seed) for item in sampling for seed in item["seeds"]]


def drafters_at(config: Config, method: str, temperature: float) -> list[str]:
    """Returns a method's drafters that are evaluated at a temperature: per mixture, then averaged ones.

    A control may be evaluated at some temperatures only. Averages other than the equal one belong to the sweep, which
    has its own list of temperatures.
    """
    if not evaluated_at(config, method, temperature):
        return []
    temperatures = config["averaging"]["sweep_temperatures"]
    swept = temperatures is None or temperature in temperatures
    averages = [name for name in averages_of(config, method) if swept or name == AVERAGED]
    return mixtures_of(config, method) + averages


def evaluated_at(config: Config, method: str, temperature: float) -> bool:
    """Returns whether a method is evaluated at a temperature at all."""
    temperatures = config["methods"][method]["temperatures"]
    return temperatures is None or temperature in temperatures


# --- strategies ------------------------------------------------------------------------------------------------------


def strategies_of(config: Config, method: str) -> list[str]:
    """Returns the names of the strategies that a method is replayed with: its own, or the study's."""
    return list(config["methods"][method]["strategies"] or config["strategies"]["names"])


def is_calibrated(config: Config, method: str) -> bool:
    """Returns whether a method needs a temperature per drafter."""
    return any(STRATEGIES[name].calibrated for name in strategies_of(config, method))


def combinations_of(config: Config, drafters: list[str]) -> list[list[str]]:
    """Returns the groups of mixtures to combine all of whose drafters are at hand."""
    return [group for group in config["strategies"]["combinations"] if set(group) <= set(drafters)]


def first_combination(config: Config, drafters: list[str]) -> list[str]:
    """Returns the first group to combine, else the first drafter."""
    return next(iter(combinations_of(config, drafters)), drafters[:1])


def variants(config: Config, names: list[str], drafters: list[str], *, sweep: bool = True) -> list[dict[str, Any]]:
    """Returns what to replay as a list of {strategy, drafters, num_draft_tokens: [budgets]}, some with a depth.

    Args:
        names: Strategies.
        drafters: At hand.
        sweep: Whether the study's further node budgets and depths are replayed with the strategies that say so.
    """
    rows = []
    for name in names:
        strategy = STRATEGIES[name]
        groups = [[drafter] for drafter in drafters] if strategy.one_drafter else combinations_of(config, drafters)
        further = config["drafting"]["budgets"] if strategy.swept and sweep else []
        budgets = sorted({config["drafting"]["num_draft_tokens"], *further})
        rows += [{"strategy": name, "drafters": group, "num_draft_tokens": budgets} for group in groups]
        if sweep and name in config["strategies"]["equal_passes"]:
            rows += [
                {"strategy": name, "drafters": group, "depth": depth}
                for group in groups
                if (depth := (config["drafting"]["depth"] + 1) // len(group) - 1) >= 0
            ]
    return rows
