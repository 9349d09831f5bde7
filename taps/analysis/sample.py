"""What the replays are a sample of, in words for captions and for the page."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from taps.analysis.counted import weights
from taps.analysis.labels import Labels

INTERVAL = "Brackets hold 95 % intervals (Student, one residual per question)."


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What the replays are a sample of.

    Attributes:
        cycles: All cycles, counted (`results.load_cycles`).
        nodes: All nodes, counted (`results.load_nodes`), possibly none.
        num_draft_tokens: The study's main node budget of one drafter.
        labels: Names in print.
    """

    cycles: pd.DataFrame
    nodes: pd.DataFrame
    num_draft_tokens: int
    labels: Labels

    def words(self) -> str:
        """Returns budget, questions and seeds as a sentence for captions."""
        questions = self.cycles.groupby("benchmark", observed=True)["question"].nunique()
        counts = ", ".join(f"{number} of {self.labels.benchmark(str(name))}" for name, number in questions.items())
        seeds = self.cycles.groupby("temperature")["seed"].nunique()
        runs = ", ".join(f"{number} at T = {temperature:g}" for temperature, number in seeds.items())
        return (
            f"{self.num_draft_tokens} draft tokens per drafter; questions: {counts}; sampling seeds: {runs}; "
            f"{self.training_seeds()}."
        )

    def training_seeds(self) -> str:
        """Returns what the intervals cover: `training seeds: EAGLE-2 3; ...`, and of which methods questions only."""
        numbers = self.cycles.groupby("method", observed=True)["training_seed"].nunique()
        several = [f"{self.labels.method(str(name))} {number}" for name, number in numbers.items() if number > 1]
        single = [self.labels.method(str(name)) for name, number in numbers.items() if number == 1]
        words = [f"intervals cover questions and training seeds ({', '.join(several)})"] if several else []
        words += [f"intervals of {', '.join(single)} cover questions only (one training seed)"] if single else []
        return "; ".join(words)

    def facts(self) -> list[tuple[str, str]]:
        """Returns (name, value) lines for the summary of the page: what was replayed."""
        cycles, labels = self.cycles, self.labels
        averages = set(labels.roles.of_role("averaged"))
        held = sorted(
            {name for name in map(str, cycles["drafters"].unique()) if "+" not in name}, key=labels.drafter_order
        )
        swept = sum(name in averages for name in held)
        titles = [labels.drafters(name) for name in held if name not in averages]
        rows = cycles[["strategy", "drafters"]].drop_duplicates()
        questions = cycles.groupby("benchmark", observed=True)["question"].nunique()
        per_benchmark = [f"{labels.benchmark(name)} ({questions[name]} questions)" for name in questions.index]
        seeds = cycles.groupby("temperature")["seed"].nunique()
        return [
            ("Draft families", ", ".join(labels.method(name) for name in sorted(map(str, cycles["method"].unique())))),
            ("Draft models", ", ".join(titles) + f"; averages at {swept} weights" * (swept > 0)),
            ("Benchmarks", ", ".join(per_benchmark)),
            ("Temperatures", ", ".join(f"T = {value:g} (sampling seeds: {number})" for value, number in seeds.items())),
            ("Training seeds", self.training_seeds()),
            ("Draft tokens per drafter", str(self.num_draft_tokens)),
            ("Rows of the tables", f"{len(rows)} (strategy and drafters)"),
            ("Cycles replayed", f"{int(weights(cycles).sum()):,}".replace(",", " ")),
        ]
