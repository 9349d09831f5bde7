"""What a study's identifiers are called in print, in which order they stand, how they look, and its standing rows.

Everything follows from who plays which part (`taps.study.roles`) and from what the strategies say of themselves
(`taps.decoding.strategies`); no name of any study is written here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from taps import published
from taps.decoding.strategy import CALIBRATED, STRATEGIES, Kind
from taps.study.roles import Roles

if TYPE_CHECKING:
    import pandas as pd

MEAN = "mean"  # stands for the unweighted mean over benchmarks
ROUTER, BY_ENTROPY, BY_HISTORY = (
    "routed_confidence_step",
    "routed_entropy_step",
    "routed_history",
)
MERGER, MATCHED, ADAPTIVE, DOUBLED = "merged_concat", "merged_matched", "merged_adaptive", "single_double"
HINDSIGHT = "posthoc"
AVERAGED = "averaged"
AT_DEPTH = "_depth"  # in the name of a strategy over trees of another depth than the banks': merged_matched_depth2

# Okabe and Ito's colours and their darker relatives; markers repeat what colour says.
_SPECIALISTS = (
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#7B3294", "D"),
    ("#117733", "p"),
    ("#882255", "h"),
    ("#1B1B6F", "8"),
)
_MIXTURES = (("#56B4E9", "^"), ("#009E73", "v"), ("#999933", "<"), ("#44AA99", ">"), ("#DDCC77", "d"))
_AVERAGED, _UNKNOWN = ("#8A8A8A", "X"), ("#8A8A8A", ".")


class Row(NamedTuple):
    """A variant: a strategy over drafters (joined by +)."""

    strategy: str
    drafters: str


@dataclass(frozen=True)
class Labels:
    """The names of one study in print.

    Attributes:
        roles: Who plays which part.
    """

    roles: Roles

    # --- names -------------------------------------------------------------------------------------------------------

    def benchmark(self, name: str) -> str:
        """Returns a benchmark's name in print, the paper's for one of its own, else the name itself."""
        if name in self.roles.benchmarks:
            return self.roles.benchmarks[name].title
        return str(published.paper()["benchmarks"].get(name, {}).get("title", name))

    def method(self, name: str) -> str:
        """Returns a method's name in print."""
        return self.roles.methods[name].title if name in self.roles.methods else name

    def drafters(self, joined: str) -> str:
        """Returns e.g. `Math + Chat`, or `Averaged, 0.3 chat` for a point of the averaging sweep."""
        papers = published.paper()["drafters"] if self.roles.plays_the_paper else {}
        titles = {name: item["title"] for name, item in papers.items()} | {AVERAGED: "Averaged"}
        titles |= {name: drafter.title for name, drafter in self.roles.drafters.items()}
        return " + ".join(titles.get(name, name) for name in joined.split("+"))

    def strategy(self, name: str) -> str:
        """Returns a strategy's name in print."""
        strategy, depth = strategy_and_depth(name)
        title = STRATEGIES[strategy].title if strategy in STRATEGIES else strategy
        return title if depth is None else f"{title}, trees of depth {depth}"

    def row(self, strategy: str, drafters: str) -> str:
        """Returns the label of a row: the drafter's name for `single`, else the strategy and whatever it combines."""
        if strategy == "single":
            return self.drafters(drafters)
        if drafters == self.main:
            return self.strategy(strategy).capitalize()
        return f"{self.drafters(drafters)}: {self.strategy(strategy)}"

    def condition(self, temperature: float, method: str) -> str:
        """Returns e.g. `EAGLE-2, T = 0`."""
        return f"{self.method(method)}, T = {temperature:g}"

    def published_benchmark(self, name: str) -> str:
        """Returns the published benchmark whose cell is shown beside ours: its own, or the one it stands in for."""
        return self.roles.benchmarks[name].published if name in self.roles.benchmarks else name

    def matched(self, benchmark: str) -> str | None:
        """Returns the specialist that was trained for a benchmark's prompts, None if there is none."""
        return self.roles.benchmarks[benchmark].matched if benchmark in self.roles.benchmarks else None

    def domain(self, benchmark: str) -> str:
        """Returns the domain that a benchmark counts for in means: the study's word, else its matched specialist."""
        return self.roles.benchmarks[benchmark].domain if benchmark in self.roles.benchmarks else benchmark

    # --- rows --------------------------------------------------------------------------------------------------------

    @cached_property
    def main(self) -> str:
        """The combination of all specialists, else the first; empty where nothing is combined."""
        papers = published.paper()["specialists"] if self.roles.plays_the_paper else []
        return "+".join(self.roles.main_combination or papers)

    @cached_property
    def specialists(self) -> list[Row]:
        """The specialists alone."""
        return [Row("single", name) for name in self.roles.specialists]

    @cached_property
    def mixtures(self) -> list[Row]:
        """The mixtures alone."""
        return [Row("single", name) for name in self.roles.mixtures]

    @property
    def averaged(self) -> Row:
        """The equal mean of the specialists' weights."""
        return Row("single", AVERAGED)

    def combined(self, strategy: str) -> Row:
        """Returns a strategy over the main combination."""
        return Row(strategy, self.main)

    @cached_property
    def variants(self) -> list[Row]:
        """The rows of the paper's main tables; with this study's drafters, if these are others."""
        if self.roles.plays_the_paper:
            return [Row(item["strategy"], item["drafters"]) for item in published.paper()["variants"]]
        composed = [self.combined(ROUTER), self.combined(MERGER)] if self.main else []
        return [*self.specialists, *self.mixtures, self.averaged, *composed]

    @cached_property
    def doubled(self) -> list[Row]:
        """Each specialist with twice the nodes."""
        return [Row(DOUBLED, name) for name in self.roles.specialists]

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """All pairs of specialists."""
        return list(combinations(self.roles.specialists, 2))

    def depth_gap(self, pair: tuple[str, str]) -> str:
        """Returns the name of the table of a pair's lead by depth."""
        return "depth_gap" if pair == self.pairs[0] else "depth_gap_{}_{}".format(*pair)

    def weight(self, drafters: str) -> float | None:
        """Returns the second specialist's weight in an average of a pair, None for other drafters."""
        known = self.roles.drafters.get(drafters)
        weights = list(((known and known.weights) or {}).values())
        return weights[1] if len(weights) == 2 else None

    @cached_property
    def swept_pair(self) -> tuple[str, str] | None:
        """The two specialists whose averaging weight is swept, None if none is."""
        for drafter in self.roles.drafters.values():
            if drafter.weights and len(drafter.weights) == 2:
                first, second = drafter.weights
                return first, second
        return None

    def is_sweep(self, drafters: pd.Series) -> pd.Series:
        """Returns for each row whether its drafter is a point of the averaging sweep other than the middle."""
        swept = {name for name in self.roles.of_role("averaged") if name != AVERAGED}
        return drafters.astype(str).isin(swept)

    @cached_property
    def hindsight(self) -> list[str]:
        """Strategies that bound what others could reach, and that nobody can serve."""
        return [name for name, entry in STRATEGIES.items() if entry.kind is Kind.BOUND]

    # --- order -------------------------------------------------------------------------------------------------------

    def benchmark_order(self, name: str) -> tuple[int, str]:
        """Returns a sort key: the study's order, unknown benchmarks behind, the mean last."""
        known = list(self.roles.benchmarks)
        if name == MEAN:
            return len(known) + 1, ""
        return (known.index(name) if name in known else len(known)), name

    def benchmarks(self, names: Iterable[str]) -> list[str]:
        """Returns names in the order of print."""
        return sorted(set(names), key=self.benchmark_order)

    def row_order(self, strategy: str, drafters: str) -> tuple[int, int, str, str]:
        """Returns a sort key: the paper's variants in its order, then the other strategies, unknown ones last."""
        row = Row(strategy, drafters)
        if row in self.variants:
            return 0, self.variants.index(row), "", ""
        base = strategy_and_depth(strategy)[0].removesuffix(CALIBRATED)
        return 1, _strategy_ranks().get(base, len(STRATEGIES)), strategy, drafters

    def drafter_order(self, name: str) -> tuple[int, int, str, str]:
        """Returns the sort key of a drafter alone."""
        return self.row_order("single", name)

    # --- look --------------------------------------------------------------------------------------------------------

    def look(self, strategy: str, drafters: str) -> dict[str, str]:
        """Returns colour and marker of a row, for any plotting call."""
        if strategy == "single":
            colour, marker = self._drafter_looks.get(drafters, _UNKNOWN)
        else:
            base, _ = strategy_and_depth(strategy)
            colour, marker = (STRATEGIES[base].look if base in STRATEGIES else None) or _UNKNOWN
            if strategy == DOUBLED and drafters in self._drafter_looks:
                colour, _ = self._drafter_looks[drafters]
        return {"color": colour, "marker": marker}

    @cached_property
    def _drafter_looks(self) -> dict[str, tuple[str, str]]:
        looks = {AVERAGED: _AVERAGED}
        others = self.roles.of_role("other")
        for names, palette in ((self.roles.specialists, _SPECIALISTS), ([*self.roles.mixtures, *others], _MIXTURES)):
            looks |= {name: palette[place % len(palette)] for place, name in enumerate(names)}
        return looks


@cache
def _strategy_ranks() -> dict[str, int]:
    kinds = list(Kind)
    plain = [entry for entry in STRATEGIES.values() if not entry.calibrated]
    return {entry.name: rank for rank, entry in enumerate(sorted(plain, key=lambda entry: kinds.index(entry.kind)))}


def strategy_and_depth(name: str) -> tuple[str, int | None]:
    """Returns (strategy, depth of its trees; None for the banks') of a strategy's name in the tables."""
    strategy, _, depth = name.partition(AT_DEPTH)
    return strategy, int(depth) if depth else None


def routers() -> list[str]:
    """Returns the strategies that pick one of several drafters, now this one, now that: calibrated forms included."""
    kinds = (Kind.ROUTED, Kind.BOUND)
    return [name for name, entry in STRATEGIES.items() if entry.kind in kinds and not entry.constant]


def published_variant(row: Row) -> str | None:
    """Returns the variant of the published tables that a row of the paper's own names is, None for any other."""
    found = (item for item in published.paper()["variants"] if (item["strategy"], item["drafters"]) == row)
    return next((str(item["name"]) for item in found), None)
