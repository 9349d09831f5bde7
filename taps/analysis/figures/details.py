"""Figures of what lies behind the acceptance lengths: depth, entropy, confidence, and which drafter routers pick."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from taps import published
from taps.analysis.figures.catalogue import figure
from taps.analysis.figures.style import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    Picture,
    condition_grid,
    grid,
    interval_bars,
    legend_above,
)
from taps.analysis.findings import Findings, Where, sample_text
from taps.analysis.labels import Row, published_variant

_FEWEST_CYCLES = 20  # a rate from fewer is noise
_ROUTERS = (
    "routed_confidence_step",
    "routed_confidence_turn",
    "routed_entropy_step",
    "routed_entropy_turn",
    "routed_history",
    "posthoc",
    "oracle",
)


@figure(place=50)
def acceptance_by_depth(found: Findings) -> list[Picture] | str:
    """Returns conditional acceptance against depth, one figure per draft family."""
    drawn = [depth_curves(found, method) for method in sorted({where.method for where in found.families})]
    return [picture for picture in drawn if picture is not None] or "acceptance by depth: no drafter decoded alone"


@figure(place=60)
def signals(found: Findings) -> list[Picture] | str:
    """Returns entropy and confidence of accepted and rejected nodes, one figure each."""
    drawn = [node_signal(found, signal) for signal in ("entropy", "confidence")]
    return [picture for picture in drawn if picture is not None] or "entropy and confidence: nodes were not recorded"


def depth_curves(found: Findings, method: str) -> Picture | None:
    """Returns conditional acceptance against depth, per temperature and benchmark, the published dotted."""
    wheres = [where for where in found.families if where.method == method]
    wheres = [where for where in wheres if not found.at("acceptance_by_depth", where).empty]
    benchmarks = _benchmarks(found, wheres)
    if not wheres or not benchmarks:
        return None
    xlabel = "depth in the draft tree"
    labels = found.labels
    figure, cells = condition_grid(
        labels, wheres, benchmarks, xlabel=xlabel, ylabel="accepted, %", height_in=1.9 + 0.6 / len(wheres), sharey=True
    )
    has_published = False
    for panel, where, benchmark in cells:
        frame = found.at("acceptance_by_depth", where)
        frame = frame[frame["benchmark"].eq(benchmark) & frame["num_cycles"].ge(_FEWEST_CYCLES)]
        for drafters in sorted(set(frame["drafters"]), key=labels.drafter_order):
            curve = frame[frame["drafters"] == drafters].sort_values("depth")
            style: dict[str, Any] = labels.look("single", drafters)
            panel.plot(curve["depth"], curve["acceptance_percent"], label=labels.drafters(drafters), **style)
            panel.fill_between(curve["depth"], curve["low"], curve["high"], color=style["color"], alpha=0.1, lw=0)
            printed = _published_depth(found, where, drafters, benchmark)
            panel.plot(printed["depth"], printed["acceptance_percent"], color=style["color"], lw=0.8, ls=":")
            has_published |= not printed.empty
        panel.set_ylim(0, 100)
        panel.set_xticks(sorted(set(frame["depth"])))
    panels = [panel for panel, *_ in cells]
    if has_published:
        panels[0].plot([], [], color=INK, lw=0.8, ls=":", label="published")
    legend_above(figure, panels, columns=6)
    return Picture(
        name=f"acceptance_by_depth_{method}",
        title=f"Acceptance by depth, {labels.method(method)}",
        caption="Percent of the cycles that reached a depth which accept one token more: conditional on survival, so a "
        "curve may rise. One drafter each; bands are 95 % intervals"
        + ("; dotted lines are the published curves of the same variant" if has_published else "")
        + f". Points from fewer than {_FEWEST_CYCLES} cycles are left out. "
        f"{_sample(found, wheres)}",
        alt="Line plots of conditional acceptance falling or levelling with depth, one line per drafter.",
        figure=figure,
    )


def _published_depth(found: Findings, where: Where, drafters: str, benchmark: str) -> pd.DataFrame:
    table = published.table("acceptance_by_depth")
    variant = published_variant(Row("single", drafters)) if found.labels.roles.plays_the_paper else None
    keep = table["temperature"].eq(where.temperature) & table["method"].eq(where.method)
    return table[keep & table["variant"].eq(variant or "") & table["benchmark"].eq(benchmark)]


def node_signal(found: Findings, signal: str) -> Picture | None:
    """Returns a signal's mean over accepted and over rejected nodes, per drafter and benchmark, with intervals."""
    wheres = [where for where in found.families if not found.at("node_signals", where).empty]
    benchmarks = _benchmarks(found, wheres)
    if not wheres or not benchmarks:
        return None
    held = {name for where in wheres for name in found.at("node_signals", where)["drafters"]}
    labels = found.labels
    drafters = sorted(held, key=labels.drafter_order)
    ylabel = "entropy, nats" if signal == "entropy" else "confidence"
    figure, cells = condition_grid(
        labels,
        wheres,
        benchmarks,
        xlabel="drafter",
        ylabel=ylabel,
        height_in=1.5 + 1.2 / len(wheres),
        sharex=True,
        sharey=True,
    )
    highest = 0.0
    for panel, where, benchmark in cells:
        frame = found.at("node_signals", where)
        frame = frame[frame["benchmark"].eq(benchmark) & frame["signal"].eq(signal)].set_index("drafters")
        frame = frame.reindex(drafters)
        highest = max(highest, frame[["accepted_high", "rejected_high"]].to_numpy(dtype=float).max(initial=0))
        for verdict, colour, marker, shift in (("accepted", BLUE, "o", -0.12), ("rejected", ORANGE, "s", 0.12)):
            value, low, high = (frame[f"{verdict}{end}"].to_numpy() for end in ("", "_low", "_high"))
            spots = np.arange(len(frame)) + shift
            panel.errorbar(
                spots, value, yerr=interval_bars(value, low, high), fmt=marker, color=colour, lw=1, label=verdict
            )
        panel.set_xticks(range(len(drafters)), [labels.drafters(name) for name in drafters], rotation=40, ha="right")
        panel.tick_params(axis="x", labelsize=6.5)
        if signal == "entropy":
            highest = max(highest, _mark_published_entropy(panel, found, where, benchmark, drafters))
    panels = [panel for panel, *_ in cells]
    panels[0].set_ylim(0, 1.08 * highest)
    legend_above(figure, panels)
    unit = {
        "entropy": "Entropy of the distribution a node was drawn from, in nats."
        + (" Diamonds: the published means (T = 0)." if labels.roles.plays_the_paper else ""),
        "confidence": "Confidence is the draft probability of the node given its parent.",
    }[signal]
    return Picture(
        name=f"{signal}_accepted_rejected",
        title=f"{signal.capitalize()} of accepted and rejected nodes",
        caption=f"{unit} Means over the nodes that the target judged: the accepted path, and the children of its last "
        f"node. Bars are 95 % intervals. {_sample(found, wheres)}",
        alt=f"Dot plot of mean {signal} of accepted and rejected nodes per drafter and benchmark.",
        figure=figure,
    )


def _mark_published_entropy(panel: Axes, found: Findings, where: Where, benchmark: str, drafters: list[str]) -> float:
    """Draws the published means of a panel and returns the highest."""
    table = published.table("entropy")
    keep = table["temperature"].eq(where.temperature) & table["method"].eq(where.method)
    printed = table[keep & table["benchmark"].eq(benchmark)].set_index("variant")
    highest = 0.0
    for spot, name in enumerate(drafters):
        variant = published_variant(Row("single", name)) if found.labels.roles.plays_the_paper else None
        if variant is not None and variant in printed.index:
            heights = printed.loc[variant, ["accepted_nats", "rejected_nats"]].to_numpy(dtype=float)
            spots = [spot - 0.12, spot + 0.12]
            panel.plot(spots, heights, ls="", marker="D", mfc="none", color=GREY, label="published")
            highest = max(highest, heights.max())
    return highest


@figure(place=70)
def routing_shares(found: Findings) -> list[Picture] | str:
    """Returns, for each specialist (the first of two), how often each router picks it, per benchmark."""
    labels, frame = found.labels, found.table("routing_shares")
    specialists = labels.roles.specialists[:1] if len(labels.pairs) == 1 else labels.roles.specialists
    if frame.empty or not labels.main:
        return "which drafter routers pick: no router was replayed"
    frame = frame[frame["drafters"] == labels.main]
    return [_shares_of(found, name) for name in specialists if frame["drafter"].eq(name).any()]


def _shares_of(found: Findings, specialist: str) -> Picture:
    """Returns how often each router picks one specialist."""
    labels, frame = found.labels, found.table("routing_shares")
    title = labels.drafters(specialist)
    wheres = [where for where in found.families if not found.at("routing_shares", where).empty]
    benchmarks = _benchmarks(found, wheres)
    routers = [name for name in _ROUTERS if name in set(frame["strategy"])]
    figure, panels = grid(len(wheres), columns=2, sharex=True, sharey=True, height_in=2.2)
    for panel, where in zip(panels, wheres, strict=True):
        part = found.at("routing_shares", where)
        part = part[part["drafter"].eq(specialist) & part["drafters"].eq(labels.main)]
        for index, benchmark in enumerate(benchmarks):
            rows = part[part["benchmark"] == benchmark].set_index("strategy").reindex(routers)
            value, low, high = (rows[f"cycles_{end}"].to_numpy() for end in ("percent", "low", "high"))
            spots = np.arange(len(routers)) + 0.15 * (index - (len(benchmarks) - 1) / 2)
            matched = labels.matched(benchmark) == specialist
            colour = (BLUE, SKY, GREEN, INK)[index % 4] if matched else (ORANGE, AMBER, PURPLE, GREY)[index % 4]
            panel.errorbar(
                value, spots, xerr=interval_bars(value, low, high), fmt="os^D"[index % 4], color=colour, lw=1, ms=3.5,
                label=labels.benchmark(benchmark), clip_on=False,
            )  # fmt: skip
        panel.axvline(100 / max(len(labels.roles.main_combination), 2), color=GREY, lw=0.8)
        panel.set_yticks(range(len(routers)), [labels.strategy(name) for name in routers], fontsize=7)
        panel.set_xlim(0, 100)
        panel.set_ylim(len(routers) - 0.5, -0.5)
        panel.set_title(labels.condition(*where))
    figure.supxlabel(f"cycles with the {title} drafter, %", fontsize=8.5)
    legend_above(figure, panels)
    is_only = len(labels.pairs) == 1
    own = [labels.benchmark(name) for name in benchmarks if labels.matched(name) == specialist]
    paper = (
        " Published (EAGLE-2, questions, from comparing finished runs): MT-Bench 18.8, GSM8K 90.8, MATH-500 97.0, "
        "SVAMP 93.0."
    )
    return Picture(
        name="routing_shares" if is_only else f"routing_shares_{specialist}",
        title="Which drafter each router picks" + ("" if is_only else f": {title}"),
        caption=f"Share of cycles in which the {title} drafter's tree is verified; a router that knows the task "
        f"sits at the right for {', '.join(own) or 'no benchmark'} and at the left for the others. The grey line is a "
        f"choice by chance.{paper if labels.roles.plays_the_paper else ''} Bars are 95 % intervals. "
        f"{_sample(found, wheres)}",
        alt=f"Dot plot of the share of cycles routed to the {title} drafter, one row per router.",
        figure=figure,
    )


def _benchmarks(found: Findings, wheres: list[Where]) -> list[str]:
    held = {benchmark for where in wheres for benchmark in found.benchmarks(where)}
    return found.labels.benchmarks(held)


def _sample(found: Findings, wheres: list[Where]) -> str:
    return sample_text(pd.concat([found.at("acceptance_length", where) for where in wheres]))
