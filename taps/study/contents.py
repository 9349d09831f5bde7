"""The names that a checked study contains: drafters of a method, averages, conditions, strategies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from taps.decoding.strategy import STRATEGIES

HELDOUT = "heldout_"  # prefix of the prompts that come from a corpus's validation rows
AVERAGED = "averaged"  # name of the equal-weight average; other weights append `_<weight>`

Config = Mapping[str, Any]


def drafters_of(config: Config, method: str) -> list[str]:
    """Returns the drafters that a method trains or imports."""
    settings = config["methods"][method]
    return list(settings["checkpoints"] or settings["mixtures"] or config["mixtures"])


def mixture_of(config: Config, method: str, drafter: str) -> str:
    """Returns the mixture that a method's drafter is trained on: its namesake, unless the method says another."""
    mixtures = config["methods"][method]["mixtures"]
    return str(mixtures[drafter]) if isinstance(mixtures, Mapping) else drafter


def trained_drafters(config: Config) -> list[str]:
    """Returns the names of all drafters that are trained."""
    return list(dict.fromkeys(name for method in trained_methods(config) for name in drafters_of(config, method)))


def all_drafters(config: Config) -> list[str]:
    """Returns the names of all drafters: trained, imported and averaged ones."""
    held = [drafters_of(config, method) + list(averages_of(config, method)) for method in config["methods"]]
    return list(dict.fromkeys(name for names in held for name in names))


def specialists(config: Config) -> list[str]:
    """Returns the drafters that are specialists: those that the study names, else those of all of one corpus."""
    named = config["roles"]["specialists"]
    held = {name for method in config["methods"] for name in drafters_of(config, method)}
    whole = [name for name, shares in config["mixtures"].items() if list(shares.values()) == [1] and name in held]
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


class Evaluation(NamedTuple):
    """One replay: a method's drafters of one training seed along the texts of one benchmark, temperature and seed.

    Attributes:
        method, training_seed: Whose drafters.
        benchmark, temperature, seed: Whose texts; the temperature as file names write it.
    """

    method: str
    training_seed: int
    benchmark: str
    temperature: str
    seed: int


def evaluations(config: Config) -> list[Evaluation]:
    """Returns all replays of the study.

    A method may be limited to some temperatures and benchmarks, and so may a temperature: to some benchmarks, and to
    the first training seeds.
    """
    return [
        Evaluation(method, training_seed, benchmark, f"{sampling['temperature']:g}", seed)
        for method, settings in config["methods"].items()
        for sampling in config["evaluation"]["sampling"]
        if settings["temperatures"] is None or sampling["temperature"] in settings["temperatures"]
        for training_seed in training_seeds(config, method)[: sampling["training_seeds"]]
        for benchmark in config["benchmarks"]
        if all(allowed is None or benchmark in allowed for allowed in (settings["benchmarks"], sampling["benchmarks"]))
        for seed in sampling["seeds"]
    ]


def texts(config: Config) -> list[tuple[str, str, int]]:
    """Returns (benchmark, temperature, seed) of every text that the target writes for them, each once."""
    return list(dict.fromkeys(item[2:] for item in evaluations(config)))


def drafters_at(config: Config, method: str, training_seed: int, temperature: float) -> list[str]:
    """Returns a method's drafters of one training seed that are evaluated at a temperature, averaged ones last.

    Averages other than the equal one belong to the sweep, which is done with the first training seed, and has its own
    list of temperatures.
    """
    temperatures = config["averaging"]["sweep_temperatures"]
    swept = training_seed == training_seeds(config, method)[0] and (temperatures is None or temperature in temperatures)
    averages = [name for name in averages_of(config, method) if swept or name == AVERAGED]
    return drafters_of(config, method) + averages


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
        names: Strategies to replay.
        drafters: Draft models that are at hand.
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
