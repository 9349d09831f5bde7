"""Figures of what lies behind the acceptance lengths: depth, entropy, confidence, and which drafter routers pick."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from taps import published
from taps.analysis import names
from taps.analysis.figures.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    Picture,
    condition_grid,
    condition_title,
    grid,
    interval_bars,
    legend_above,
    look,
)
from taps.analysis.findings import Findings, Where, sample_text

_PUBLISHED_DRAFTERS = {"mixed_small": "mixed_35k", "mixed_large": "mixed_70k"}
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


def pictures(found: Findings) -> Iterator[Picture]:
    """Yields the figures that the tables allow."""
    for method in sorted({where.method for where in found.families}):
        picture = acceptance_by_depth(found, method)
        if picture is not None:
            yield picture
    for signal in ("entropy", "confidence"):
        picture = node_signal(found, signal)
        if picture is not None:
            yield picture
    picture = routing_shares(found)
    if picture is not None:
        yield picture


def acceptance_by_depth(found: Findings, method: str) -> Picture | None:
    """Returns conditional acceptance against depth, per temperature and benchmark, the published dotted."""
    wheres = [where for where in found.families if where.method == method]
    wheres = [where for where in wheres if not found.at("acceptance_by_depth", where).empty]
    benchmarks = _benchmarks(found, wheres)
    if not wheres or not benchmarks:
        return None
    xlabel = "depth in the draft tree"
    figure, cells = condition_grid(wheres, benchmarks, xlabel=xlabel, ylabel="accepted, %", height_in=1.9, sharey=True)
    for panel, where, benchmark in cells:
        frame = found.at("acceptance_by_depth", where)
        frame = frame[frame["benchmark"].eq(benchmark) & frame["num_cycles"].ge(_FEWEST_CYCLES)]
        for drafters in sorted(set(frame["drafters"]), key=lambda name: names.row_order("single", name)):
            curve = frame[frame["drafters"] == drafters].sort_values("depth")
            style = look("single", drafters)
            panel.plot(curve["depth"], curve["acceptance_percent"], label=names.drafters_title(drafters), **style)
            panel.fill_between(curve["depth"], curve["low"], curve["high"], color=style["color"], alpha=0.1, lw=0)
            printed = _published_depth(where, drafters, benchmark)
            panel.plot(printed["depth"], printed["acceptance_percent"], color=style["color"], lw=0.8, ls=":")
        panel.set_ylim(0, 100)
        panel.set_xticks(sorted(set(frame["depth"])))
    panels = [panel for panel, *_ in cells]
    panels[0].plot([], [], color=INK, lw=0.8, ls=":", label="published")
    legend_above(figure, panels, columns=6)
    return Picture(
        name=f"acceptance_by_depth_{method}",
        title=f"Acceptance by depth, {names.method_title(method)}",
        caption="Percent of the cycles that reached a depth which accept one token more: conditional on survival, so a "
        "curve may rise. One drafter each; bands are 95 % intervals; dotted lines are the published curves of the same "
        f"variant where the benchmark has one. Points from fewer than {_FEWEST_CYCLES} cycles are left out. "
        f"{_sample(found, wheres)}",
        alt="Line plots of conditional acceptance falling or levelling with depth, one line per drafter.",
        figure=figure,
    )


def _published_depth(where: Where, drafters: str, benchmark: str) -> pd.DataFrame:
    table = published.table("acceptance_by_depth")
    variant = _PUBLISHED_DRAFTERS.get(drafters, drafters)
    keep = table["temperature"].eq(where.temperature) & table["method"].eq(where.method)
    return table[keep & table["variant"].eq(variant) & table["benchmark"].eq(benchmark)]


def node_signal(found: Findings, signal: str) -> Picture | None:
    """Returns a signal's mean over accepted and over rejected nodes, per drafter and benchmark, with intervals."""
    wheres = [where for where in found.families if not found.at("node_signals", where).empty]
    benchmarks = _benchmarks(found, wheres)
    if not wheres or not benchmarks:
        return None
    held = {name for where in wheres for name in found.at("node_signals", where)["drafters"]}
    drafters = sorted(held, key=lambda name: names.row_order("single", name))
    ylabel = "entropy, nats" if signal == "entropy" else "confidence"
    figure, cells = condition_grid(
        wheres, benchmarks, xlabel="drafter", ylabel=ylabel, height_in=1.5, sharex=True, sharey=True
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
        panel.set_xticks(
            range(len(drafters)), [names.drafters_title(name) for name in drafters], rotation=40, ha="right"
        )
        panel.tick_params(axis="x", labelsize=6.5)
        if signal == "entropy":
            highest = max(highest, _mark_published_entropy(panel, where, benchmark, drafters))
    panels = [panel for panel, *_ in cells]
    panels[0].set_ylim(0, 1.08 * highest)
    legend_above(figure, panels)
    unit = {
        "entropy": "Entropy of the distribution a node was drawn from, in nats. Diamonds: the published means (T = 0).",
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


def _mark_published_entropy(panel: Axes, where: Where, benchmark: str, drafters: list[str]) -> float:
    """Draws the published means of a panel and returns the highest."""
    table = published.table("entropy")
    keep = table["temperature"].eq(where.temperature) & table["method"].eq(where.method)
    printed = table[keep & table["benchmark"].eq(benchmark)].set_index("variant")
    highest = 0.0
    for spot, name in enumerate(drafters):
        variant = _PUBLISHED_DRAFTERS.get(name, name)
        if variant in printed.index:
            heights = printed.loc[variant, ["accepted_nats", "rejected_nats"]].to_numpy(dtype=float)
            spots = [spot - 0.12, spot + 0.12]
            panel.plot(spots, heights, ls="", marker="D", mfc="none", color=GREY, label="published")
            highest = max(highest, heights.max())
    return highest


def routing_shares(found: Findings) -> Picture | None:
    """Returns how often each router picks the math drafter, per benchmark; the published offline shares beside."""
    frame = found.table("routing_shares")
    if frame.empty or not frame["drafter"].eq(names.MATH).any():
        return None
    wheres = [where for where in found.families if not found.at("routing_shares", where).empty]
    benchmarks = _benchmarks(found, wheres)
    routers = [name for name in _ROUTERS if name in set(frame["strategy"])]
    figure, panels = grid(len(wheres), columns=2, sharex=True, sharey=True, height_in=2.2)
    for panel, where in zip(panels, wheres, strict=True):
        part = found.at("routing_shares", where)
        part = part[part["drafter"].eq(names.MATH) & part["drafters"].eq(names.PAIR)]
        for index, benchmark in enumerate(benchmarks):
            rows = part[part["benchmark"] == benchmark].set_index("strategy").reindex(routers)
            value, low, high = (rows[f"cycles_{end}"].to_numpy() for end in ("percent", "low", "high"))
            spots = np.arange(len(routers)) + 0.15 * (index - (len(benchmarks) - 1) / 2)
            colour = ORANGE if not names.is_math(benchmark) else (BLUE, "#56B4E9", "#009E73", INK)[index % 4]
            panel.errorbar(
                value, spots, xerr=interval_bars(value, low, high), fmt="os^D"[index % 4], color=colour, lw=1, ms=3.5,
                label=names.benchmark_title(benchmark),
            )  # fmt: skip
        panel.axvline(50, color=GREY, lw=0.8)
        panel.set_yticks(range(len(routers)), [names.strategy_title(name) for name in routers], fontsize=7)
        panel.set_xlim(0, 100)
        panel.set_ylim(len(routers) - 0.5, -0.5)
        panel.set_title(condition_title(where))
    figure.supxlabel("cycles with the math drafter, %", fontsize=8.5)
    legend_above(figure, panels)
    return Picture(
        name="routing_shares",
        title="Which drafter each router picks",
        caption="Share of cycles in which the math drafter's tree is verified; a router that knows the task sits at "
        "the right for math benchmarks and at the left for MT-Bench. Published (EAGLE-2, questions, from comparing "
        "finished runs): MT-Bench 18.8, GSM8K 90.8, MATH-500 97.0, SVAMP 93.0. Bars are 95 % intervals. "
        f"{_sample(found, wheres)}",
        alt="Dot plot of the share of cycles routed to the math drafter, one row per router.",
        figure=figure,
    )


def _benchmarks(found: Findings, wheres: list[Where]) -> list[str]:
    held = {benchmark for where in wheres for benchmark in found.benchmarks(where)}
    return sorted(held, key=names.benchmark_order)


def _sample(found: Findings, wheres: list[Where]) -> str:
    return sample_text(pd.concat([found.at("acceptance_length", where) for where in wheres]))
