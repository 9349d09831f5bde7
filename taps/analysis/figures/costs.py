"""Figures of what acceptance costs and how training went: speed against tau, training curves."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from taps.analysis.figures.catalogue import figure
from taps.analysis.figures.style import GREY, INK, Picture, condition_grid, grid, interval_bars, legend_above
from taps.analysis.findings import Findings, sample_text
from taps.analysis.labels import DOUBLED, MEAN

_KEYS = ["temperature", "method", "strategy", "drafters", "benchmark", "num_draft_tokens"]
_SHOWN = (
    "single",
    "single_double",
    "routed_confidence_step",
    "routed_history",
    "merged_concat",
    "merged_dedup",
    "merged_matched",
    "merged_adaptive",
)


@figure(place=80)
def speed_against_tau(found: Findings) -> Picture | str:
    """Returns predicted tokens per second against tau, per condition and benchmark, live measurements as crosses."""
    if found.table("speed").empty:
        return "speed against acceptance length: forward times were not measured"
    speed = found.table("speed").merge(found.table("acceptance_length")[[*_KEYS, "tau"]], on=_KEYS)
    labels = found.labels
    speed = speed[speed["strategy"].isin(_SHOWN) & ~labels.is_sweep(speed["drafters"])]
    doubled = speed["strategy"].ne(DOUBLED) | speed["drafters"].isin(labels.roles.specialists)
    speed = speed[doubled & (speed["drafters"].eq(labels.main) | ~speed["drafters"].str.contains("+", regex=False))]
    live = found.table("live_check")
    wheres = [where for where in found.families if where.method == found.families[0].method]
    benchmarks = labels.benchmarks(set(speed["benchmark"]) - {MEAN})
    figure, cells = condition_grid(
        labels,
        wheres,
        benchmarks,
        xlabel="acceptance length",
        ylabel="tokens per second",
        height_in=2.1 + 1 / len(wheres),
    )
    for panel, where, benchmark in cells:
        part = _at(speed, where, benchmark)
        for row in part.to_dict("records"):
            style = labels.look(row["strategy"], row["drafters"])
            title = labels.row(row["strategy"], row["drafters"])
            bars = interval_bars(row["tokens_per_s"], row["low"], row["high"])
            panel.errorbar(
                row["tau"], row["tokens_per_s"], yerr=bars, fmt=style["marker"], color=style["color"], lw=1, label=title
            )
        if len(part):
            plain = (part["tokens_per_s"] / part["speedup"]).iloc[0]
            panel.axhline(plain, color=GREY, lw=1, ls="--", label="plain decoding")
        if not live.empty:
            _measured(panel, found, _at(live, where, benchmark))
    legend_above(figure, [panel for panel, *_ in cells], columns=3)
    return Picture(
        name="speed_against_tau",
        title="Speed against acceptance length",
        caption="Predicted tokens per second (from the cycles' node counts and forward times measured on this machine) "
        "against acceptance length: two drafters and larger trees cost time, so the longest acceptance need not be the "
        f"fastest. {_live_in_words(found)}Dashed: plain decoding. Bars are 95 % intervals. "
        f"{sample_text(found.table('acceptance_length'))}",
        alt="Scatter plots of predicted tokens per second against acceptance length, one marker per strategy.",
        figure=figure,
    )


def _measured(panel: Axes, found: Findings, live: pd.DataFrame) -> None:
    """Draws live measurements in the colours of their rows: a cross with the default tree, a plus with a tuned one."""
    for row in live[~live["strategy"].isin(["plain", "all"])].to_dict("records"):
        tuned = row["num_draft_tokens"] != found.num_draft_tokens
        colour = found.labels.look(row["strategy"], row["drafters"])["color"]
        marker, label = ("+", "live, tuned tree") if tuned else ("x", "live, default tree")
        panel.plot(row["tau"], row["tokens_per_s"], marker, color=colour, ms=6, mew=1.3)
        panel.plot([], [], marker, ls="", color=INK, ms=6, mew=1.3, label=label)


def _live_in_words(found: Findings) -> str:
    live = found.table("live_check")
    if live.empty:
        return ""
    tuned = live["num_draft_tokens"].ne(found.num_draft_tokens) & ~live["strategy"].isin(["plain", "all"])
    also = "; plus signs: the same with the tree tuned for this machine" if tuned.any() else ""
    words = "Crosses in a row's colour: its live decoding of a few prompts, which have acceptance lengths of their own"
    return f"{words}{also}. "


def _at(frame: pd.DataFrame, where: tuple[float, str], benchmark: str) -> pd.DataFrame:
    temperature, method = where
    keep = frame["temperature"].eq(temperature) & frame["method"].eq(method) & frame["benchmark"].eq(benchmark)
    return frame[keep]


@figure(place=90)
def training_curves(found: Findings) -> Picture | str:
    """Returns validation loss, agreement and held-out tau against training tokens, per draft family and drafter."""
    curves = found.table("training_curves")
    if curves.empty:
        return "training curves: no draft model was trained here"
    if curves["method"].isin(families := {where.method for where in found.families}).any():
        curves = curves[curves["method"].isin(families)]
    held_out = [name for name in curves.columns if name.startswith("tau_")]
    panels_of = {
        "value": "training loss (SmoothL1)",
        "validation_value": "held-out loss (SmoothL1)",
        "validation_top1": "target's first token met",
        **{name: f"tau on {_heldout(found, name)}" for name in held_out},
    }
    columns = {name: title for name, title in panels_of.items() if name in curves and curves[name].notna().any()}
    labels, methods = found.labels, sorted(set(curves["method"]))
    first: Any = curves.groupby("method")["training_seed"].min()
    figure, panels = grid(len(columns), columns=3, height_in=2.2)
    for panel, (column, title) in zip(panels, columns.items(), strict=True):
        for (method, drafters, seed), curve in curves.groupby(["method", "drafters", "training_seed"], sort=True):
            style: dict[str, Any] = labels.look("single", str(drafters))
            dashes = ("-", "--", ":", "-.")[methods.index(method) % 4]
            label = f"{labels.drafters(str(drafters))}, {labels.method(str(method))}"
            label = label if seed == first[method] else "_nolegend_"
            panel.plot(curve["num_tokens"] / 1e3, curve[column], ls=dashes, label=label, lw=1, ms=3, **style)
        panel.set_title(title, fontsize=7.5)
    figure.supxlabel("training tokens, thousands", fontsize=8.5)
    legend_above(figure, panels, columns=4)
    return Picture(
        name="training_curves",
        title="Training",
        caption="After every epoch: training loss per supervised token (with feature noise), loss and agreement on "
        "held-out conversations, and acceptance length on held-out prompts by replay. Each token is counted once per "
        "epoch that reads it, from the start of the drafter's own training; one line per training seed.",
        alt="Line plots of losses, agreement and held-out acceptance length against training tokens.",
        figure=figure,
    )


def _heldout(found: Findings, column: str) -> str:
    """Returns e.g. `Math, held out` of the column `tau_heldout_math`."""
    corpus = column.removeprefix("tau_").removeprefix("heldout_")
    return f"{found.labels.drafters(corpus)}, held out"
