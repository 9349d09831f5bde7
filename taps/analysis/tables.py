"""The tables of acceptance: each a frame of `summaries` with the words a reader needs, and its form in print."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial

import pandas as pd

from taps import published
from taps.analysis import learning_curve, measures, pooled, summaries
from taps.analysis.labels import MEAN, Labels, Row, published_variant
from taps.analysis.rendering import Table, format_interval, format_number, in_print
from taps.analysis.sample import INTERVAL, Sample

TAU = (
    "Acceptance length (tau) is emitted tokens per cycle over all cycles, the target's own token included and the "
    "token that prefill gives left out."
)


def acceptance_tables(sample: Sample) -> Iterator[Table]:
    """Yields the tables of acceptance length and of its differences."""
    tau, table = summaries.acceptance(sample.cycles, sample.labels)
    labels = sample.labels
    for temperature in sorted(set(table["temperature"])):
        yield main_table(table, temperature, sample)
    if labels.roles.plays_the_paper:
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
        summaries.differences_between(tau, labels, "method", [*methods]),
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
        summaries.differences_between(tau, labels, "temperature", [*others]),
        sample,
    )


def main_table(table: pd.DataFrame, temperature: float, sample: Sample) -> Table:
    """Returns one of the paper's two main tables: variants by benchmarks, the published cell beside ours.

    The averaging sweep, and combinations of others than specialists, stand in the table of every row.
    """
    labels = sample.labels
    part = table[table["temperature"].eq(temperature) & table["num_draft_tokens"].eq(sample.num_draft_tokens)]
    shown_here = part["drafters"].astype(object).map(partial(_in_main_table, labels)).astype(bool)
    part = part[~labels.is_sweep(part["drafters"]) & shown_here]
    benchmarks = labels.benchmarks(part["benchmark"])
    has_paper = labels.roles.plays_the_paper
    rows, shown = [], []
    for method in sorted(set(part["method"])):
        cells = part[part["method"] == method].set_index(["strategy", "drafters", "benchmark"])
        held = {name for _, _, name in cells.index}
        for strategy, drafters in sorted({key[:2] for key in cells.index}, key=lambda key: labels.row_order(*key)):
            row: dict[str, object] = {"method": method, "strategy": strategy, "drafters": drafters}
            text = {"family": labels.method(method), "variant": labels.row(strategy, drafters)}
            for benchmark in benchmarks:
                title = labels.benchmark(benchmark)
                printed = _printed(labels, temperature, method, Row(strategy, drafters), benchmark, held)
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
        shown=_without_empty(pd.DataFrame(shown)),
    )


def _without_empty(shown: pd.DataFrame) -> pd.DataFrame:
    """Returns the columns but those in which nothing stands, e.g. the paper's of a benchmark that it has not."""
    return shown[[name for name in shown.columns if set(shown[name]) != {format_number(None)}]]


_PAPER_COLUMNS = (
    "Columns `paper` hold the published cell (another target of 8B parameters, other corpora; stand-ins beside the "
    "benchmark they stand in for; its mean over the benchmarks that it has of ours, domains weighing the same). "
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


# --- helpers ---------------------------------------------------------------------------------------------------------


def _printed(
    labels: Labels, temperature: float, method: str, row: Row, benchmark: str, held: Collection[str]
) -> float | None:
    """Returns the published cell beside ours, of a mean that over the benchmarks `held` here; None if there is none."""
    variant = published_variant(row)
    if variant is None:
        return None
    if benchmark == MEAN:
        return published.balanced_tau(temperature, method, variant, [labels.published_benchmark(name) for name in held])
    return published.tau(temperature, method, variant, labels.published_benchmark(benchmark))
