"""Figures of acceptance length: per benchmark with intervals, beside the published, against node budget, the sweep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from taps import published
from taps.analysis.figures.catalogue import figure
from taps.analysis.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    Picture,
    condition_grid,
    grid,
    interval_bars,
    legend_above,
)
from taps.analysis.findings import Findings, Where, sample_text
from taps.analysis.labels import BY_HISTORY, MATCHED, MEAN, Row

_TAU = "Acceptance length is emitted tokens per cycle, pooled over all cycles, the target's own token included."
_BARS = "Bars are 95 % intervals."
# Rows of the overview figure below the standing variants, in the order drawn.
_OURS = ("routed_entropy_step", "routed_history", "merged_dedup", "merged_matched", "merged_adaptive", "oracle")
_CURVES = ("merged_matched", "merged_dedup", "merged_concat")


@figure(place=5)
def overview(found: Findings) -> Picture | str:
    """Returns the standing variants under the main condition, one panel per benchmark: the page's first picture."""
    labels, where = found.labels, found.main_condition
    frame = found.at("acceptance_length", where)
    rows = [*labels.variants, *(labels.combined(strategy) for strategy in (BY_HISTORY, MATCHED))]
    rows = [row for row in dict.fromkeys(rows) if _select(frame, row).any()]
    benchmarks = found.benchmarks(where)
    if not (rows and benchmarks):
        return "the overview: the main condition was not replayed"
    figure, panels = grid(len(benchmarks), columns=4, height_in=1.0 + 0.26 * len(rows), sharey=True)
    for panel, benchmark in zip(panels, benchmarks, strict=True):
        part = frame[frame["benchmark"] == benchmark]
        matched = labels.matched(benchmark)
        for position, row in enumerate(rows):
            style = labels.look(*row)
            for tau, low, high in part.loc[_select(part, row), ["tau", "tau_low", "tau_high"]].to_numpy():
                bars = interval_bars(tau, low, high)
                panel.errorbar(tau, position, xerr=bars, fmt=style["marker"], color=style["color"], ms=5, lw=1.6)
            if row == Row("single", matched or ""):
                panel.axhspan(position - 0.5, position + 0.5, color="#F3E7B3", alpha=0.6, zorder=0, lw=0)
        panel.set_title(labels.benchmark(benchmark))
    panels[0].set_yticks(range(len(rows)), [labels.row(*row) for row in rows])
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    figure.supxlabel("acceptance length, tokens per cycle", fontsize=8.5)
    marked = " Yellow: the drafter that was trained for the benchmark’s kind of prompts."
    return Picture(
        name="overview",
        title=f"Acceptance length, {labels.condition(*where)}",
        caption=f"{_BARS}{marked if any(map(labels.matched, benchmarks)) else ''} Merged with all nodes verifies "
        f"the nodes of all its drafters; the other rows {found.num_draft_tokens}.",
        alt=f"Dot plot of acceptance length, one panel per benchmark. Longest: {_best_by_benchmark(found, rows)}.",
        figure=figure,
    )


@figure(place=10)
def acceptance_length(found: Findings) -> Picture | str:
    """Returns the forest plot of every row on every benchmark, one column per benchmark, one line per condition."""
    labels, frame = found.labels, found.table("acceptance_length")
    if frame.empty:
        return "acceptance lengths: nothing was replayed"
    rows = [*labels.variants, *(labels.combined(strategy) for strategy in _OURS), *labels.doubled]
    rows = [row for row in rows if _select(frame, row).any()]
    benchmarks = _benchmarks(found)
    figure, panels = grid(len(benchmarks), columns=len(benchmarks), height_in=1.1 + 0.32 * len(rows), sharey=True)
    for panel, benchmark in zip(panels, benchmarks, strict=True):
        for index, where in enumerate(found.families):
            offset = 0.18 * (index - (len(found.families) - 1) / 2)
            _forest(panel, found, rows, benchmark, where, offset)
        panel.set_title(labels.benchmark(benchmark))
    figure.supxlabel("acceptance length", fontsize=8.5)
    panels[0].set_yticks(range(len(rows)), [labels.row(*row) for row in rows])
    panels[0].invert_yaxis()
    legend_above(figure, panels)
    best = _best_by_benchmark(found, rows)
    return Picture(
        name="acceptance_length",
        title="Acceptance length per benchmark",
        caption=f"{_TAU} {_BARS} A mean is over the benchmarks that its condition has. Merged with all nodes verifies "
        "the nodes of all its drafters, one drafter with double budget twice its own. "
        f"{sample_text(_at_main_budget(found))}",
        alt=f"Dot plot of acceptance length with intervals, one panel per benchmark. Longest rows: {best}.",
        figure=figure,
    )


def _forest(panel: Axes, found: Findings, rows: list[Row], benchmark: str, where: Where, offset: float) -> None:
    colour, marker = _condition_look(found, where)
    frame = found.at("acceptance_length", where)
    frame = frame[frame["benchmark"] == benchmark]
    label = found.labels.condition(*where)
    for position, row in enumerate(rows):
        for tau, low, high in frame.loc[_select(frame, row), ["tau", "tau_low", "tau_high"]].to_numpy():
            panel.errorbar(
                tau,
                position + offset,
                xerr=interval_bars(tau, low, high),
                fmt=marker,
                color=colour,
                ms=3.2,
                lw=1,
                label=label,
            )
            label = "_nolegend_"


@figure(place=20)
def beside_published(found: Findings) -> Picture | None:
    """Returns the seven variants of the paper, ours against the published, one panel per benchmark and condition."""
    labels, printed_methods = found.labels, set(published.table("acceptance_length")["method"])
    wheres = [where for where in found.families if where.method in printed_methods and where.temperature in (0, 1)]
    held = set(published.paper()["benchmarks"])
    benchmarks = [name for name in _benchmarks(found) if labels.published_benchmark(name) in held]
    if not (labels.roles.plays_the_paper and wheres and benchmarks):
        return None
    figure, cells = condition_grid(labels, wheres, benchmarks, xlabel="published", ylabel="ours", height_in=1.7)
    for panel, where, benchmark in cells:
        _scatter_against_published(panel, found, where, benchmark)
    for panel, _, benchmark in cells[: len(benchmarks)]:
        if (printed := labels.published_benchmark(benchmark)) != benchmark:
            panel.set_title(f"{labels.benchmark(benchmark)}\nbeside {labels.benchmark(printed)}")
    legend_above(figure, [panel for panel, *_ in cells])
    return Picture(
        name="ours_and_published",
        title="Our acceptance lengths against the published ones",
        caption="Each point is one of the paper's seven variants: published value (as printed, for an 8B target) to "
        "the right, ours upwards. The scales differ; what can agree is the order of the variants, a rising line of "
        f"points. {_BARS} Where a benchmark stands in for one of the paper's, the panel says so. "
        f"{sample_text(_at_main_budget(found))}",
        alt="Scatter plots of our acceptance length against the published one for seven variants.",
        figure=figure,
    )


def _scatter_against_published(panel: Axes, found: Findings, where: Where, benchmark: str) -> None:
    frame = found.at("acceptance_length", where)
    frame = frame[frame["benchmark"] == benchmark]
    labels = found.labels
    for variant in published.paper()["variants"]:
        row = Row(variant["strategy"], variant["drafters"])
        printed = published.tau(where.temperature, where.method, variant["name"], labels.published_benchmark(benchmark))
        part = frame[_select(frame, row)]
        if printed is None or part.empty:
            continue
        tau, low, high = part[["tau", "tau_low", "tau_high"]].to_numpy()[0]
        style = labels.look(*row)
        panel.errorbar(
            printed, tau, yerr=interval_bars(tau, low, high), fmt=style["marker"], color=style["color"], lw=1,
            label=labels.row(*row),
        )  # fmt: skip


@figure(place=30)
def node_budget(found: Findings) -> Picture | str:
    """Returns tau against verified nodes for single drafters and merged trees, at T = 0 and 1."""
    labels = found.labels
    frame = found.table("acceptance_length").merge(
        found.table("node_budgets"),
        on=["temperature", "method", "strategy", "drafters", "benchmark", "num_draft_tokens"],
        suffixes=("", "_budget"),
    )
    curves = [*labels.specialists, *(labels.combined(name) for name in _CURVES)]
    curves = [row for row in curves if _select(frame, row).any()]
    if not curves or frame.loc[_select(frame, curves[0]), "num_draft_tokens"].nunique() < 2:
        return "acceptance length against the number of nodes: one budget was replayed"
    wheres = [where for where in found.families if where.method == found.families[0].method]
    benchmarks = [name for name in _benchmarks(found) if name != MEAN]
    xlabel = "verified nodes per cycle"
    figure, cells = condition_grid(
        labels, wheres, benchmarks, xlabel=xlabel, ylabel="acceptance length", height_in=1.9 + 0.6 / len(wheres)
    )
    for panel, where, benchmark in cells:
        part = frame[frame["temperature"].eq(where.temperature) & frame["method"].eq(where.method)]
        part = part[part["benchmark"] == benchmark]
        for row in curves:
            curve = part[_select(part, row) | _select(part, Row("single_double", row.drafters))]
            curve = curve.sort_values("num_nodes")
            style: dict[str, Any] = labels.look(*row)
            panel.plot(curve["num_nodes"], curve["tau"], label=labels.row(*row), **style)
            panel.fill_between(
                curve["num_nodes"], curve["tau_low"], curve["tau_high"], color=style["color"], alpha=0.12
            )
    legend_above(figure, [panel for panel, *_ in cells], columns=5)
    return Picture(
        name="node_budget",
        title="Acceptance length against the number of verified nodes",
        caption="What merging gains beyond its larger trees is the height of a merged point above the curve of the "
        "better single drafter at the same number of nodes (mean per cycle, root not counted). The last point of a "
        f"single drafter is its double budget. {_TAU} Bands are 95 % intervals. {sample_text(frame)}",
        alt="Curves of acceptance length rising with node budget for single drafters and merged trees.",
        figure=figure,
    )


@figure(place=40)
def averaging_sweep(found: Findings) -> Picture | str:
    """Returns tau against the second specialist's weight in the average, specialists at the ends, published beside."""
    labels, pair = found.labels, found.labels.swept_pair
    wheres = [where for where in found.families if _sweep(found, where).drafters.nunique() > 3]
    if pair is None or not wheres:
        return "averaging the specialists' weights: no weight was swept"
    titles = [labels.drafters(name) for name in pair]
    benchmarks = [name for name in _benchmarks(found) if name != MEAN]
    figure, panels = grid(len(benchmarks), columns=min(4, len(benchmarks)), height_in=2.6)
    for panel, benchmark in zip(panels, benchmarks, strict=True):
        for where in wheres:
            curve = _sweep(found, where)
            curve = curve[curve["benchmark"] == benchmark]
            colour, marker = _condition_look(found, where)
            label = f"ours, {labels.condition(*where)}"
            panel.plot(curve["weight"], curve["tau"], color=colour, marker=marker, ms=3.5, label=label)
            panel.fill_between(curve["weight"], curve["tau_low"], curve["tau_high"], color=colour, alpha=0.12)
        panel.set_title(labels.benchmark(benchmark))
        if labels.roles.plays_the_paper:
            _published_sweep(panel, benchmark)
    panels[0].set_ylabel("acceptance length, ours")
    figure.supxlabel(f"weight of the {titles[1]} drafter", fontsize=8.5)
    legend_above(figure, panels, columns=3)
    paper = (
        " Dashed, on the right-hand scale: the published sweep (HASS, T = 0), panel labels as printed although they "
        "look permuted."
    )
    return Picture(
        name="averaging_sweep",
        title="Averaging the specialists' weights",
        caption=f"0 is the {titles[0]} drafter, 1 the {titles[1]} drafter, between them the weighted mean of their "
        f"parameters. Bands are 95 % intervals. {_TAU}{paper if labels.roles.plays_the_paper else ''} "
        f"{sample_text(_sweep(found, wheres[0]))}",
        alt="Acceptance length against averaging weight, one panel per benchmark.",
        figure=figure,
    )


def _sweep(found: Findings, where: Where) -> pd.DataFrame:
    """Returns the sweep's rows in order of weight, with a column `weight`."""
    frame = found.at("acceptance_length", where)
    frame = frame[frame["strategy"] == "single"]
    first, second = found.labels.swept_pair or ("", "")
    weights = frame["drafters"].map(found.labels.weight).astype(float)
    weights = weights.mask(frame["drafters"] == first, 0.0).mask(frame["drafters"] == second, 1.0)
    return frame.assign(weight=weights).dropna(subset=["weight"]).sort_values("weight")


def _published_sweep(panel: Axes, benchmark: str) -> None:
    sweep = published.table("averaging_sweep").query("panel_label == @benchmark")
    if sweep.empty:
        return
    right = panel.twinx()
    right.plot(sweep["chat_weight"], sweep["tau"], color=GREY, ls="--", lw=1)
    right.tick_params(colors=GREY, labelsize=7)
    right.grid(visible=False)
    panel.plot([], [], color=GREY, ls="--", lw=1, label="published, HASS, T = 0 (right scale)")


# --- helpers ---------------------------------------------------------------------------------------------------------


def _select(frame: pd.DataFrame, row: Row) -> pd.Series:
    return frame["strategy"].eq(row.strategy) & frame["drafters"].eq(row.drafters)


def _benchmarks(found: Findings) -> list[str]:
    """Returns every benchmark of the study in the paper's order, `mean` last where there is more than one."""
    held: dict[str, None] = {}
    for where in found.families:
        held |= dict.fromkeys(found.benchmarks(where))
    return [*held, *([MEAN] if len(held) > 1 else [])]


def _at_main_budget(found: Findings) -> pd.DataFrame:
    frame = found.table("acceptance_length")
    return frame[frame["num_draft_tokens"] == found.num_draft_tokens]


def _condition_look(found: Findings, where: Where) -> tuple[str, str]:
    """Returns (colour, marker) of a condition: the colour says the method, the marker the temperature."""
    methods = list(dict.fromkeys(one.method for one in found.families))
    colours = (BLUE, ORANGE, GREEN, PURPLE, INK)
    colour = colours[methods.index(where.method) % len(colours)] if where.method in methods else GREY
    return colour, "o" if where.temperature == 0 else "D"


def _best_by_benchmark(found: Findings, rows: list[Row]) -> str:
    """Returns, for a reader who cannot see the figure, the row with the longest acceptance on each benchmark."""
    where = found.main_condition
    words = []
    for benchmark in found.benchmarks(where):
        taus = {row: found.tau(where, benchmark, row) for row in rows if row.strategy != "oracle"}
        held = {row: tau for row, tau in taus.items() if tau is not None and np.isfinite(tau)}
        if held:
            best = max(held, key=lambda row: held[row])
            words.append(f"{found.labels.row(*best)} on {found.labels.benchmark(benchmark)} ({held[best]:.2f})")
    return f"{'; '.join(words)} ({found.labels.condition(*where)})"
