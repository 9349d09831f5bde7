"""The tables of acceptance: each a frame of `summaries` with the words a reader needs, and its form in print."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pandas as pd

from taps import published
from taps.analysis import learning_curve, measures, pooled, summaries
from taps.analysis.counted import weights
from taps.analysis.labels import MEAN, Labels, Row, published_variant
from taps.analysis.rendering import Table, format_interval, format_number, in_print

TAU = (
    "Acceptance length (tau) is emitted tokens per cycle over all cycles, the target's own token included and the "
    "token that prefill gives left out."
)
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


def acceptance_tables(sample: Sample) -> Iterator[Table]:
    """Yields the tables of acceptance length and of its differences."""
    tau, table = summaries.acceptance(sample.cycles, sample.labels)
    labels = sample.labels
    for temperature in sorted(set(table["temperature"])):
        yield main_table(table, temperature, sample)
    yield definitions(table, sample)
    yield Table(
        name="acceptance_length",
        title="Acceptance length, every row",
        caption=f"{TAU} The other definitions by name: {_definitions_in_words()}. `mean` is the mean over "
        f"benchmarks, every domain weighing the same. {sample.words()}",
        frame=table,
    )
    standards = summaries.references(labels)
    yield _paired(summaries.paired_differences(tau, standards, num_draft_tokens=sample.num_draft_tokens), sample)
    methods = [(name, other) for name, part in labels.roles.methods.items() for other in part.compared_with]
    yield _difference(
        "method_differences",
        "Differences between draft families",
        "tau of `method` minus tau of `b method`, the same drafters, questions and random numbers.",
        summaries.differences_between(tau, "method", [*methods]),
        sample,
    )
    yield Table(
        name="contrasts",
        title="One number over many cells",
        caption=f"{pooled.WORDS} {INTERVAL} {sample.words()}",
        frame=pooled.of_acceptance(tau, labels, num_draft_tokens=sample.num_draft_tokens),
    )
    if labels.roles.curve:
        yield Table(
            name="learning_curve",
            title="How the findings change with training data",
            caption=f"{learning_curve.WORDS} {INTERVAL} {sample.words()}",
            frame=learning_curve.learning_curve(tau, labels, num_draft_tokens=sample.num_draft_tokens),
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

    The averaging sweep, and combinations of others than specialists, stand in the table of every row.
    """
    labels = sample.labels
    part = table[table["temperature"].eq(temperature) & table["num_draft_tokens"].eq(sample.num_draft_tokens)]
    part = part[~labels.is_sweep(part["drafters"]) & part["drafters"].map(partial(_in_main_table, labels))]
    benchmarks = labels.benchmarks(part["benchmark"])
    has_paper = labels.roles.plays_the_paper
    rows, shown = [], []
    for method in sorted(set(part["method"])):
        cells = part[part["method"] == method].set_index(["strategy", "drafters", "benchmark"])
        for strategy, drafters in sorted({key[:2] for key in cells.index}, key=lambda key: labels.row_order(*key)):
            row: dict[str, object] = {"method": method, "strategy": strategy, "drafters": drafters}
            text = {"family": labels.method(method), "variant": labels.row(strategy, drafters)}
            for benchmark in benchmarks:
                title = labels.benchmark(benchmark)
                printed = _printed(labels, temperature, method, Row(strategy, drafters), benchmark)
                key = (strategy, drafters, benchmark)
                tau, low, high = _interval_at(cells, key)
                row |= {benchmark: tau, f"{benchmark}_low": low, f"{benchmark}_high": high}
                text[title] = format_interval(tau, low, high)
                if has_paper:
                    row[f"{benchmark}_published"] = printed
                    text[f"paper: {_published_title(labels, benchmark)}"] = format_number(printed)
            rows.append(row)
            shown.append(text)
    return Table(
        name=f"main_t{temperature:g}",
        title=f"Acceptance length at T = {temperature:g}",
        caption=f"{TAU} {INTERVAL} {_PAPER_COLUMNS if has_paper else ''}Merged trees "
        f"and double budgets verify more nodes than the other rows: see the node budgets. {sample.words()}",
        frame=pd.DataFrame(rows).astype({f"{name}_published": float for name in benchmarks if has_paper}),
        shown=pd.DataFrame(shown),
    )


_PAPER_COLUMNS = (
    "Columns `paper` hold the published cell (another target of 8B parameters, other corpora; stand-ins beside the "
    "benchmark they stand in for; its mean with the domains weighing the same, as in ours). "
)


def _in_main_table(labels: Labels, drafters: str) -> bool:
    """Returns whether a row of these drafters stands in the main table: one drafter, or specialists only."""
    parts = drafters.split("+")
    return len(parts) == 1 or set(parts) <= set(labels.roles.specialists) or drafters == labels.main


def _published_title(labels: Labels, benchmark: str) -> str:
    printed = labels.published_benchmark(benchmark)
    return str(published.paper()["benchmarks"].get(printed, {}).get("title", printed))


def _definitions_in_words() -> str:
    """Returns what each definition but tau divides by what."""
    others = [entry for name, entry in measures.DEFINITIONS.items() if name != "tau"]
    return "; ".join(f"`{entry.name.replace('_', ' ')}` {entry.words}" for entry in others)


def _interval_at(cells: pd.DataFrame, key: tuple[str, str, str]) -> tuple[float, float, float]:
    """Returns tau with its interval at a row of an indexed acceptance table, NaN where it was not replayed."""
    if key not in cells.index:
        return (float("nan"),) * 3
    tau, low, high = (cells[name].astype(float)[key] for name in ("tau", "tau_low", "tau_high"))
    return tau, low, high


def definitions(table: pd.DataFrame, sample: Sample) -> Table:
    """Returns the standing variants under every definition of tau, with the published definitions' excess."""
    part = table[table["num_draft_tokens"].eq(sample.num_draft_tokens)]
    variants = pd.DataFrame(sample.labels.variants, columns=["strategy", "drafters"])
    part = part.merge(variants, on=["strategy", "drafters"])
    frame = part[["temperature", "method", "strategy", "drafters", "benchmark", *measures.DEFINITIONS]].copy()
    for name, entry in measures.DEFINITIONS.items():
        if entry.excess:
            frame[entry.excess] = 100 * (frame[name] / frame["tau"] - 1)
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
    labels = sample.labels
    shown = frame[~labels.is_sweep(frame["a_drafters"])]
    shown = shown.assign(
        a=[labels.row(*row) for row in shown[["a_strategy", "a_drafters"]].itertuples(index=False)],
        b=[labels.row(*row) for row in shown[["b_strategy", "b_drafters"]].itertuples(index=False)],
    )
    headline = shown["b_strategy"].isin(["single", "single_double"]) & shown["b_drafters"].isin(
        labels.roles.specialists
    )
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
    labels = sample.labels
    keep = frame["num_draft_tokens"].eq(sample.num_draft_tokens) & ~labels.is_sweep(frame["drafters"])
    frame = frame[keep].reset_index(drop=True)
    b_column = [column for column in frame.columns if column.startswith("b_")]
    shown = frame.assign(row=[labels.row(*row) for row in frame[["strategy", "drafters"]].itertuples(index=False)])
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
    labels = sample.labels
    counts = summaries.depth_counts(sample.cycles, labels, num_draft_tokens=sample.num_draft_tokens)
    yield Table(
        name="acceptance_by_depth",
        title="Acceptance by depth",
        caption="Conditional acceptance: percent of the cycles that reached a depth which accept one token more (so "
        "survivors only); `step` is the change from the depth before, `joint` the product down to the depth. One "
        f"drafter each. {sample.words()}",
        frame=summaries.acceptance_by_depth(counts),
    )
    rates = summaries.depth_rates(counts)
    yield Table(
        name="depth_contrasts",
        title="How acceptance changes with depth, as one number",
        caption=f"{pooled.DEPTH_WORDS} {INTERVAL} {sample.words()}",
        frame=pooled.of_depth(rates, summaries.reached(counts, rates), labels),
    )
    for pair in labels.pairs:
        yield Table(
            name=labels.depth_gap(pair),
            title="Lead of the {} specialist over the {} specialist by depth".format(*pair),
            caption="Difference of conditional acceptance in points; `growth` is the lead minus that at depth 1. "
            f"{INTERVAL} {sample.words()}",
            frame=summaries.depth_gap(counts, pair),
        )
    if len(sample.nodes):
        yield Table(
            name="node_signals",
            title="Entropy and confidence of accepted and rejected nodes",
            caption="Means over nodes that the target judged: the accepted path, and the children of its last node "
            "(rejected). Entropy of the distribution a node was drawn from, in nats; confidence is the node's "
            f"probability given its parent. `difference` is rejected minus accepted. {sample.words()}",
            frame=summaries.node_signals(sample.nodes, labels),
        )
    shares = summaries.routing_shares(sample.cycles, num_draft_tokens=sample.num_draft_tokens)
    yield Table(
        name="routing_shares",
        title="Which drafter each router picks",
        caption="Percent of cycles, and of questions (a question counts for the drafter that most of its cycles went "
        f"to). {_PUBLISHED_SHARES if labels.roles.plays_the_paper else ''}{sample.words()}",
        frame=shares,
    )
    accuracy, differences = summaries.router_accuracy(sample.cycles, labels, num_draft_tokens=sample.num_draft_tokens)
    yield Table(
        name="router_accuracy",
        title="How often each router finds the matched specialist",
        caption="Balanced accuracy: percent of a domain's questions whose cycles mostly went to its matched "
        "specialist, mean over domains. A router that always picks the same drafter has 100 / number of domains; "
        f"`posthoc` is the published offline router, which looks at finished runs. {INTERVAL} {sample.words()}",
        frame=accuracy,
    )
    yield Table(
        name="router_differences",
        title="Routing by confidence against other routers",
        caption=f"Balanced accuracy of router a minus that of router b, in points, paired. {INTERVAL} {sample.words()}",
        frame=differences,
    )
    yield Table(
        name="node_budgets",
        title="What each row spends",
        caption="Means per cycle: nodes verified (root not counted) and drafters run; and what 100 emitted tokens cost "
        f"in target forwards and draft trees. {sample.words()}",
        frame=summaries.node_budgets(sample.cycles),
    )


_PUBLISHED_SHARES = (
    "The published shares (EAGLE-2, confidence, math percent: MT-Bench 18.8, GSM8K 90.8, MATH-500 97.0, SVAMP 93.0) "
    "come from comparing finished runs, here the row `posthoc`. "
)


# --- helpers ---------------------------------------------------------------------------------------------------------


def _printed(labels: Labels, temperature: float, method: str, row: Row, benchmark: str) -> float | None:
    variant = published_variant(row)
    if variant is None:
        return None
    if benchmark == MEAN:
        return published.balanced_tau(temperature, method, variant)
    return published.tau(temperature, method, variant, labels.published_benchmark(benchmark))
