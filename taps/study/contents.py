"""The names that a checked study contains: drafters of a method, averages, conditions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

HELDOUT = "heldout_"  # prefix of the prompts that come from a corpus's validation rows
AVERAGED = "averaged"  # name of the equal-weight average; other weights append `_<weight>`


def mixtures_of(config: Mapping[str, Any], method: str) -> list[str]:
    """Returns the mixtures that a method has a trained or imported drafter for."""
    settings = config["methods"][method]
    if settings["checkpoints"]:
        return list(settings["checkpoints"])
    return list(settings["mixtures"] or config["mixtures"])


def averaged_name(weight: float) -> str:
    """Returns the mixture-like name of an average; `weight` is that of the second drafter."""
    return AVERAGED if math.isclose(weight, 0.5) else f"{AVERAGED}_{weight:g}"


def averages_of(config: Mapping[str, Any], method: str) -> list[str]:
    """Returns the names of a method's averaged drafters."""
    return [averaged_name(weight) for weight in config["averaging"]["weights"].get(method, [])]


def drafters_at(config: Mapping[str, Any], method: str, temperature: float) -> list[str]:
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


def evaluated_at(config: Mapping[str, Any], method: str, temperature: float) -> bool:
    """Returns whether a method is evaluated at a temperature at all."""
    temperatures = config["methods"][method]["temperatures"]
    return temperatures is None or temperature in temperatures


def strategies_of(config: Mapping[str, Any], method: str) -> list[str]:
    """Returns the names of the strategies that a method is replayed with: its own, or the study's."""
    return list(config["methods"][method]["strategies"] or config["strategies"]["names"])


def is_calibrated(config: Mapping[str, Any], method: str) -> bool:
    """Returns whether a method needs a temperature per drafter."""
    return any(name.endswith("_calibrated") for name in strategies_of(config, method))
