"""The tables of acceptance: each a frame of `summaries` with the words a reader needs, and its form in print."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from taps import published
from taps.analysis import names, summaries
from taps.analysis.rendering import Table, format_interval, format_number, in_print
from taps.analysis.results import CONDITION

TAU = (
    "Acceptance length (tau) is emitted tokens per cycle over all cycles, the target's own token included and the "
    "token that prefill gives left out."
)
INTERVAL = "Brackets hold 95 % intervals from 10,000 resamples of the questions."

_MOST_DRAFTERS = 2


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What the replays are a sample of.

    Attributes:
        cycles: All cycles (`results.load_cycles`).
        nodes: All node groups (`results.load_nodes`), possibly none.
        num_draft_tokens: The study's main node budget of one drafter.
        seed: Of the resamples.
    """

    cycles: pd.DataFrame
    nodes: pd.DataFrame
    num_draft_tokens: int
    seed: int

    def words(self) -> str:
        """Returns budget, questions and seeds as a sentence for captions."""
        questions = self.cycles.groupby("benchmark", observed=True)["question"].nunique()
        counts = ", ".join(f"{number} of {names.benchmark_title(str(name))}" for name, number in questions.items())
        seeds = self.cycles.groupby("temperature")["seed"].nunique()
        runs = ", ".join(f"{number} at T = {temperature:g}" for temperature, number in seeds.items())
        return f"{self.num_draft_tokens} draft tokens per drafter; questions: {counts}; seeds: {runs}."

    def facts(self) -> list[tuple[str, str]]:
        """Returns (name, value) lines for the summary of the page: what was replayed."""
        cycles = self.cycles
        drafters = [name for name in _ordered(cycles, "drafters") if "+" not in name]
        swept = sum(names.chat_weight(name) is not None for name in drafters)
        titles = [names.drafters_title(name) for name in drafters if names.chat_weight(name) is None]
        rows = cycles[["strategy", "drafters"]].drop_duplicates()
        questions = cycles.groupby("benchmark", observed=True)["question"].nunique()
        per_benchmark = [f"{names.benchmark_title(name)} ({questions[name]} questions)" for name in questions.index]
        seeds = cycles.groupby("temperature")["seed"].nunique()
        return [
            ("Draft families", ", ".join(names.method_title(name) for name in _ordered(cycles, "method"))),
            ("Draft models", ", ".join(titles) + f"; averages at {swept} weights" * (swept > 0)),
            ("Benchmarks", ", ".join(per_benchmark)),
            ("Temperatures", ", ".join(f"T = {value:g} (seeds: {number})" for value, number in seeds.items())),
            ("Draft tokens per drafter", str(self.num_draft_tokens)),
            ("Rows of the tables", f"{len(rows)} (strategy and drafters)"),
            ("Cycles replayed", f"{len(cycles):,}".replace(",", " ")),
        ]


def _ordered(cycles: pd.DataFrame, column: str) -> list[str]:
    key = (lambda name: names.row_order("single", name)) if column == "drafters" else None
    return sorted(map(str, cycles[column].unique()), key=key)


def acceptance_tables(sample: Sample) -> Iterator[Table]:
    """Yields the tables of acceptance length and of its differences."""
    tau, table = summaries.acceptance(sample.cycles, seed=sample.seed)
    for temperature in sorted(set(table["temperature"])):
        yield main_table(table, temperature, sample)
    yield definitions(table, sample)
    yield Table(
        name="acceptance_length",
        title="Acceptance length, every row",
        caption=f"{TAU} The other definitions by name: `tau macro` is the mean over questions; `tau published eagle` "
        "divides by the zero-based index of the last cycle; `tau published hass` is the mean over questions of "
        f"accepted tokens plus one. `mean` is the unweighted mean over benchmarks. {sample.words()}",
        frame=table,
    )
    yield _paired(summaries.paired_differences(tau, num_draft_tokens=sample.num_draft_tokens), sample)
    methods = [("hass", "eagle2"), ("hass", "eagle2_long"), ("hass", "hass_published"), ("eagle2_shared", "eagle2")]
    yield _difference(
        "method_differences",
        "Differences between draft families",
        "tau of `method` minus tau of `b method`, the same drafters, questions and random numbers.",
        summaries.differences_between(tau, "method", [*methods]),
        sample,
    )
    others = [(value, 0.0) for value in sorted(set(table["temperature"])) if value != 0]
    yield _difference(
        "temperature_differences",
        "Differences between temperatures",
        "tau at `temperature` minus tau at T = 0, paired over questions (the texts differ).",
        summaries.differences_between(tau, "temperature", [*others]),
        sample,
    )


def main_table(table: pd.DataFrame, temperature: float, sample: Sample) -> Table:
    """Returns one of the paper's two main tables: variants by benchmarks, the published cell beside ours.

    Rows that combine more than _MOST_DRAFTERS drafters, and the averaging sweep, stand in the table of every row.
    """
    part = table[table["temperature"].eq(temperature) & table["num_draft_tokens"].eq(sample.num_draft_tokens)]
    part = part[~names.is_sweep(part["drafters"]) & part["drafters"].str.count(r"\+").lt(_MOST_DRAFTERS)]
    benchmarks = sorted(set(part["benchmark"]), key=names.benchmark_order)
    rows, shown = [], []
    for method in sorted(set(part["method"])):
        cells = part[part["method"] == method].set_index(["strategy", "drafters", "benchmark"])
        for strategy, drafters in sorted({key[:2] for key in cells.index}, key=lambda key: names.row_order(*key)):
            row: dict[str, object] = {"method": method, "strategy": strategy, "drafters": drafters}
            text = {"family": names.method_title(method), "variant": names.row_title(strategy, drafters)}
            for benchmark in benchmarks:
                title = names.benchmark_title(benchmark)
                printed = _printed(temperature, method, strategy, drafters, benchmark)
                key = (strategy, drafters, benchmark)
                tau, low, high = _interval_at(cells, key)
                row |= {benchmark: tau, f"{benchmark}_low": low, f"{benchmark}_high": high}
                row[f"{benchmark}_published"] = printed
                text[title] = format_interval(tau, low, high)
                text[f"paper: {names.benchmark_title(names.published_benchmark(benchmark))}"] = format_number(printed)
            rows.append(row)
            shown.append(text)
    return Table(
        name=f"main_t{temperature:g}",
        title=f"Acceptance length at T = {temperature:g}",
        caption=f"{TAU} {INTERVAL} Columns `paper` hold the published cell (another target of 8B parameters, other "
        "corpora, its own four benchmarks in the mean; stand-ins beside the benchmark they stand in for). Merged trees "
        f"and double budgets verify more nodes than the other rows: see the node budgets. {sample.words()}",
        frame=pd.DataFrame(rows).astype({f"{name}_published": float for name in benchmarks}),
        shown=pd.DataFrame(shown),
    )


def _interval_at(cells: pd.DataFrame, key: tuple[str, str, str]) -> tuple[float, float, float]:
    """Returns tau with its interval at a row of an indexed acceptance table, NaN where it was not replayed."""
    if key not in cells.index:
        return (float("nan"),) * 3
    tau, low, high = (cells[name].astype(float)[key] for name in ("tau", "tau_low", "tau_high"))
    return tau, low, high


def definitions(table: pd.DataFrame, sample: Sample) -> Table:
    """Returns the paper's seven variants under every definition of tau, with the published definitions' excess."""
    part = table[table["num_draft_tokens"].eq(sample.num_draft_tokens)]
    variants = pd.DataFrame(list(names.PUBLISHED_VARIANTS), columns=["strategy", "drafters"])
    part = part.merge(variants, on=["strategy", "drafters"])
    values = ["tau", "tau_macro", "tau_published_eagle", "tau_published_hass"]
    frame = part[["temperature", "method", "strategy", "drafters", "benchmark", *values]].copy()
    for name in ("eagle", "hass"):
        frame[f"{name}_excess_percent"] = 100 * (frame[f"tau_published_{name}"] / frame["tau"] - 1)
    return Table(
        name="definitions",
        title="The same cycles under the published definitions",
        caption="The paper's columns mix two definitions: its EAGLE rows divide by cycles minus one per answer, its "
        "HASS rows average over questions. `excess` is how much longer each makes the acceptance length look than tau. "
        f"{sample.words()}",
        frame=frame,
    )


def _paired(frame: pd.DataFrame, sample: Sample) -> Table:
    """Returns the paired differences: every pair in the CSV, in print those that the claims rest on."""
    shown = frame[~names.is_sweep(frame["a_drafters"])]
    shown = shown.assign(
        a=[names.row_title(*row) for row in shown[["a_strategy", "a_drafters"]].itertuples(index=False)],
        b=[names.row_title(*row) for row in shown[["b_strategy", "b_drafters"]].itertuples(index=False)],
    )
    headline = shown["b_strategy"].isin(["single", "single_double"]) & shown["b_drafters"].isin(names.SPECIALISTS)
    shown = shown[headline]
    return Table(
        name="paired_differences",
        title="Paired differences of acceptance length",
        caption="tau of row a minus tau of row b over the same questions and random numbers; above 0 with its "
        f"interval, a is better. In print against the specialists only; the CSV has all pairs. {INTERVAL} "
        f"{sample.words()}",
        frame=frame,
        shown=_with_intervals(shown, ["temperature", "method", "benchmark", "a", "b"]),
    )


def _difference(name: str, title: str, caption: str, frame: pd.DataFrame, sample: Sample) -> Table:
    keep = frame["num_draft_tokens"].eq(sample.num_draft_tokens) & ~names.is_sweep(frame["drafters"])
    frame = frame[keep].reset_index(drop=True)
    b_column = [column for column in frame.columns if column.startswith("b_")]
    shown = frame.assign(row=[names.row_title(*row) for row in frame[["strategy", "drafters"]].itertuples(index=False)])
    return Table(
        name=name,
        title=title,
        caption=f"{caption} {INTERVAL} {sample.words()}",
        frame=frame,
        shown=_with_intervals(shown, ["temperature", "method", *b_column, "benchmark", "row"]),
    )


def _with_intervals(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Returns `columns` and the difference with its interval in print."""
    columns = list(dict.fromkeys(columns))
    text = in_print(frame[columns])
    numbers = frame[["difference", "low", "high"]].itertuples(index=False, name=None)
    return text.assign(difference=[format_interval(*row) for row in numbers]).reset_index(drop=True)


# --- what lies behind the acceptance lengths -------------------------------------------------------------------------


def detail_tables(sample: Sample) -> Iterator[Table]:
    """Yields depth, node signals, routing shares and node budgets."""
    counts = summaries.depth_counts(sample.cycles, num_draft_tokens=sample.num_draft_tokens)
    yield Table(
        name="acceptance_by_depth",
        title="Acceptance by depth",
        caption="Conditional acceptance: percent of the cycles that reached a depth which accept one token more (so "
        "survivors only); `step` is the change from the depth before, `joint` the product down to the depth. One "
        f"drafter each. {sample.words()}",
        frame=summaries.acceptance_by_depth(counts, seed=sample.seed),
    )
    yield Table(
        name="depth_gap",
        title="Lead of the math specialist over the chat specialist by depth",
        caption="Difference of conditional acceptance in points; `growth` is the lead minus that at depth 1. "
        f"{INTERVAL} {sample.words()}",
        frame=summaries.depth_gap(counts, seed=sample.seed),
    )
    if len(sample.nodes):
        yield Table(
            name="node_signals",
            title="Entropy and confidence of accepted and rejected nodes",
            caption="Means over nodes that the target judged: the accepted path, and the children of its last node "
            "(rejected). Entropy of the distribution a node was drawn from, in nats; confidence is the node's "
            f"probability given its parent. `difference` is rejected minus accepted. {sample.words()}",
            frame=summaries.node_signals(_with_question(sample), seed=sample.seed),
        )
    shares = summaries.routing_shares(sample.cycles, num_draft_tokens=sample.num_draft_tokens, seed=sample.seed)
    yield Table(
        name="routing_shares",
        title="Which drafter each router picks",
        caption="Percent of cycles, and of questions (a question counts for the drafter that most of its cycles went "
        "to). The published shares (EAGLE-2, confidence, math percent: MT-Bench 18.8, GSM8K 90.8, MATH-500 97.0, SVAMP "
        f"93.0) come from comparing finished runs, here the row `posthoc`. {sample.words()}",
        frame=shares,
    )
    yield Table(
        name="node_budgets",
        title="What each row spends",
        caption="Means per cycle: nodes verified (root not counted) and drafters run; and what 100 emitted tokens cost "
        f"in target forwards and draft trees. {sample.words()}",
        frame=summaries.node_budgets(sample.cycles),
    )


def _with_question(sample: Sample) -> pd.DataFrame:
    place = [*CONDITION, "sequence"]
    questions = sample.cycles[[*place, "question"]].drop_duplicates(place)
    return sample.nodes.merge(questions, on=place)


# --- helpers ---------------------------------------------------------------------------------------------------------


def _printed(temperature: float, method: str, strategy: str, drafters: str, benchmark: str) -> float | None:
    variant = names.PUBLISHED_VARIANTS.get((strategy, drafters))
    column = "average" if benchmark == "mean" else names.published_benchmark(benchmark)
    return published.tau(temperature, method, variant, column) if variant else None
