"""Look-ups in the finished tables: every number a claim or a caption needs, with the row it came from.

Claims, figures and the page read the CSV files of the tables stage and compute no statistics of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from taps.analysis.labels import MEAN, Labels, Row
from taps.analysis.verdicts import Interval
from taps.plumbing.artefacts import read_json
from taps.plumbing.folder_records import check_hashes
from taps.study.roles import Roles

_TEXT = ("method", "benchmark", "strategy", "drafters", "drafter", "signal", "seeds", "contrast", "against")


class Where(NamedTuple):
    """The condition a claim is judged under."""

    temperature: float
    method: str


@dataclass(frozen=True)
class Findings:
    """The tables of one study.

    Attributes:
        folder: Where the tables stage wrote them; an absent table is an empty one.
    """

    folder: Path

    def table(self, name: str) -> pd.DataFrame:
        """Returns a table by name, empty (without columns) if the study has none."""
        return self._tables.get(name, pd.DataFrame())

    def of_method(self, name: str, method: str) -> pd.DataFrame:
        """Returns a table's rows of one method, empty if the study has none."""
        frame = self.table(name)
        return frame if frame.empty else frame[frame["method"].eq(method)]

    @cached_property
    def _tables(self) -> dict[str, pd.DataFrame]:
        listed = self._about.get("files")  # absent from a record that was written by hand
        if listed is not None:
            check_hashes(self.folder, listed, kind="tables")
        paths = sorted(self.folder.glob("*.csv") if listed is None else map(self.folder.joinpath, listed))
        return {path.stem: pd.read_csv(path, dtype=dict.fromkeys(_TEXT, str), keep_default_na=True) for path in paths}

    @cached_property
    def _about(self) -> dict[str, Any]:
        return read_json(self.folder / "tables.json", kind="tables")

    @property
    def num_draft_tokens(self) -> int:
        """The study's main node budget of one drafter."""
        return int(self._about["num_draft_tokens"])

    @cached_property
    def labels(self) -> Labels:
        """What the study's identifiers are called, and who plays which part."""
        return Labels(Roles.from_json(self._about["roles"]))

    @cached_property
    def conditions(self) -> list[Where]:
        """The conditions of the acceptance table, in order."""
        frame = self.table("acceptance_length")
        pairs = frame[["temperature", "method"]].drop_duplicates().sort_values(["temperature", "method"])
        return [Where(float(temperature), str(method)) for temperature, method in pairs.itertuples(index=False)]

    @cached_property
    def families(self) -> list[Where]:
        """The conditions of the draft families under study: without control methods, unless there is nothing else."""
        families = [where for where in self.conditions if not self._is_control(where.method)]
        return families or self.conditions

    @cached_property
    def main_condition(self) -> Where:
        """The condition that the primary claims are judged under: the lowest temperature, the study's first method."""
        order = list(self.labels.roles.methods)
        ranks = {name: rank for rank, name in enumerate(order)}
        return min(self.families, key=lambda where: (where.temperature, ranks.get(where.method, len(order))))

    def _is_control(self, method: str) -> bool:
        methods = self.labels.roles.methods
        return method in methods and methods[method].control

    def benchmarks(self, where: Where) -> list[str]:
        """Returns the benchmarks replayed under a condition, `mean` left out."""
        frame = self.at("acceptance_length", where)
        return self.labels.benchmarks(set(frame["benchmark"]) - {MEAN})

    def at(self, name: str, where: Where) -> pd.DataFrame:
        """Returns a table's rows under a condition, at the main budget where the table has budgets."""
        frame = self.table(name)
        if frame.empty:
            return frame
        keep = frame["temperature"].eq(where.temperature) & frame["method"].eq(where.method)
        if "num_draft_tokens" in frame:
            keep &= frame["num_draft_tokens"].eq(self.num_draft_tokens)
        return frame[keep]

    def tau(self, where: Where, benchmark: str, row: Row) -> float | None:
        """Returns the acceptance length of a row on a benchmark."""
        found = self._one("acceptance_length", where, benchmark=benchmark, **row._asdict())
        return None if found is None else float(found["tau"])

    def difference(
        self, where: Where, benchmark: str, a: Row, b: Row, *, table: str = "paired_differences"
    ) -> Interval | None:
        """Returns tau(a) - tau(b), paired over questions (or their speeds'); None if the study holds no such pair."""
        for one, two, sign in ((a, b, 1), (b, a, -1)):
            key = {f"a_{name}": value for name, value in one._asdict().items()}
            key |= {f"b_{name}": value for name, value in two._asdict().items()}
            found = self.interval(table, where, "difference", benchmark=benchmark, **key)
            if found is not None:
                return found if sign == 1 else -found
        return None

    def interval(
        self, name: str, where: Where, value: str, low: str = "low", high: str = "high", **key: object
    ) -> Interval | None:
        """Returns the one row's `value` with its interval, None if there is no such row or number."""
        found = self._one(name, where, **key)
        if found is None or pd.isna(found[value]):
            return None
        shown = {"temperature": f"{where.temperature:g}", "method": where.method, **key}
        rows = f"{name}.csv: " + ", ".join(f"{column}={wanted}" for column, wanted in shown.items())
        count = found.get("num_questions")
        return Interval(
            estimate=float(found[value]),
            low=float(found[low]),
            high=float(found[high]),
            rows=rows,
            num_questions=None if count is None else int(count),
            p_value=float(found.get("p_value", math.nan)) if value in ("difference", "estimate") else math.nan,
        )

    def _one(self, name: str, where: Where, **key: object) -> pd.Series | None:
        """Returns the row of a table under a condition with these values, None if there is none."""
        columns = tuple(key)
        if (name, where, columns) not in self._indexes:
            frame = self.at(name, where)
            held = frame if not frame.empty else pd.DataFrame(columns=list(columns))
            positions = zip(held[list(columns)].itertuples(index=False, name=None), range(len(held)), strict=True)
            self._indexes[name, where, columns] = (held, dict(positions))
        frame, index = self._indexes[name, where, columns]
        position = index.get(tuple(key.values()))
        return None if position is None else frame.iloc[position]

    @cached_property
    def _indexes(self) -> dict[tuple[str, Where, tuple[str, ...]], tuple[pd.DataFrame, dict[tuple[object, ...], int]]]:
        return {}


def sample_text(frame: pd.DataFrame) -> str:
    """Returns node budget, number of questions and seeds behind rows of the acceptance table, as a sentence."""
    frame = frame[frame["benchmark"] != "mean"]
    if frame.empty:
        return "No rows."
    budgets = _listed(f"{budget}" for budget in sorted(set(frame["num_draft_tokens"])))
    questions = _listed(f"{number}" for number in sorted(set(frame["num_questions"])))
    seeds = "; ".join(
        f"{_listed(sorted(set(part['seeds'])))} at T = {temperature:g}"
        for temperature, part in frame.groupby("temperature")
    )
    return f"{budgets} draft tokens per drafter, {questions} questions per benchmark, sampling seeds {seeds}."


def _listed(words: Iterable[str]) -> str:
    items = list(words)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
