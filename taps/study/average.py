"""What workflow/rules/average.smk asks: of whom an averaged drafter is the mean, and with which weights."""

from __future__ import annotations

from collections.abc import Sequence

from taps.study.contents import Config, averages_of
from taps.study.flags import flags


def all_names(config: Config) -> list[str]:
    """Returns the names of all averaged drafters of the study."""
    return list(dict.fromkeys(name for method in config["methods"] for name in averages_of(config, method)))


def drafters(config: Config, method: str, training_seed: str, average: str) -> list[str]:
    """Returns the folders of the drafters that are averaged."""
    return [
        f"<results>/drafters/{method}/seed{training_seed}/{mixture}" for mixture in averages_of(config, method)[average]
    ]


def weight_flags(config: Config, method: str, average: str, folders: Sequence[str]) -> list[str]:
    """Returns each drafter's folder and weight, as `taps.average` takes them."""
    weights = averages_of(config, method)[average].values()
    return [
        word
        for folder, weight in zip(folders, weights, strict=True)
        for word in flags(drafter=folder, weight=f"{weight:.12g}")
    ]
