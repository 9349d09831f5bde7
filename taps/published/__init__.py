"""The paper's published numbers and claims, facts to set beside ours, never inputs of a result; and its names.

This folder is the one place that knows the names of the paper's own study (`paper.json`): its specialists, mixtures,
benchmarks and variants. The files and where each number comes from are described in README.md.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path(__file__).parent
TABLES = (
    "acceptance_length",
    "acceptance_by_depth",
    "averaging_sweep",
    "entropy",
    "routing_share",
    "technical_report_t0",
)


@cache
def table(name: str) -> pd.DataFrame:
    """Returns one of TABLES, or `eagle_answers`, as published; do not write into it."""
    import pandas as pd

    return pd.read_csv(FOLDER / f"{name}.csv")


@cache
def paper() -> dict[str, Any]:
    """Returns what the paper's names mean: specialists, benchmarks, drafters, variants; do not write into it."""
    return json.loads((FOLDER / "paper.json").read_text(encoding="utf-8"))


@cache
def claims() -> tuple[dict[str, Any], ...]:
    """Returns the claims in order: id, statement, and `published`, a list of {temperature, method, verdict, detail}."""
    return tuple(json.loads((FOLDER / "claims.json").read_text(encoding="utf-8")))


@cache
def _cells() -> dict[tuple[float, str, str, str], float]:
    frame = table("acceptance_length")
    keys = frame[["temperature", "method", "variant", "benchmark"]].itertuples(index=False, name=None)
    return dict(zip(keys, frame["tau"], strict=True))


def tau(temperature: float, method: str, variant: str, benchmark: str) -> float | None:
    """Returns a cell of the published main tables or None; benchmark `average` is the printed row mean."""
    return _cells().get((temperature, method, variant, benchmark))


def balanced_tau(temperature: float, method: str, variant: str, benchmarks: Collection[str]) -> float | None:
    """Returns a row's mean with every domain (a matched specialist's) weighing the same; the printed one differs.

    Args:
        temperature, method, variant: The row.
        benchmarks: What to take the mean over; those that are not the paper's are left out.
    """
    domains: dict[str, list[float]] = {}
    for name, item in paper()["benchmarks"].items():
        if name not in benchmarks:
            continue
        cell = tau(temperature, method, variant, name)
        if cell is None:
            return None
        domains.setdefault(item["matched"], []).append(cell)
    if not domains:
        return None
    return sum(sum(cells) / len(cells) for cells in domains.values()) / len(domains)
