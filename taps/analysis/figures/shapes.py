"""Which tree to serve: predicted speed of every shape that was tried on held-out texts."""

from __future__ import annotations

from typing import Any

import pandas as pd

from taps.analysis.figures.catalogue import figure
from taps.analysis.figures.style import GREY, INK, Picture, grid, legend_above
from taps.analysis.findings import Findings

_DEPTHS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7B3294", "#E69F00", "#56B4E9", "#882255")
_MARKERS = "os^Dvph*"


@figure(place=75)
def tree_shapes(found: Findings) -> list[Picture] | str:
    """Returns tokens per second over depth and nodes, one figure per draft family whose trees were tuned."""
    methods = [name for name in found.labels.roles.methods if not found.of_method("best_tree_shapes", name).empty]
    return [_shapes_of(found, name) for name in methods] or "tokens per second over tree shapes: no tree was tuned"


def _shapes_of(found: Findings, method: str) -> Picture:
    """Returns one panel per row: predicted speed against nodes, one curve per depth, the choice marked."""
    table, labels = found.of_method("best_tree_shapes", method), found.labels
    tried = table.groupby(["strategy", "drafters"]).size()
    held = [(str(strategy), str(drafters)) for strategy, drafters in tried.index[tried.to_numpy() > 1]]
    rows = sorted(held, key=lambda row: labels.row_order(*row))
    drawing, panels = grid(len(rows), columns=3, height_in=2.0, sharex=True, sharey=True)
    chosen = found.of_method("best_trees", method).query("tree == 'tuned'").drop_duplicates(["strategy", "drafters"])
    best = chosen.set_index(["strategy", "drafters"])
    for panel, row in zip(panels, rows, strict=True):
        part = table[table["strategy"].eq(row[0]) & table["drafters"].eq(row[1])]
        for depth, curve in part.groupby("depth", sort=True):
            place = int(str(depth)) % len(_DEPTHS)
            curve = curve.sort_values("num_draft_tokens")
            look: dict[str, Any] = {"color": _DEPTHS[place], "marker": _MARKERS[place], "ms": 3, "lw": 1}
            panel.plot(curve["num_draft_tokens"], curve["tokens_per_s"], label=f"depth {depth}", **look)
            not_held = curve[curve["inexact_share"].gt(0)]
            panel.plot(not_held["num_draft_tokens"], not_held["tokens_per_s"], **{**look, "ls": "", "mfc": "white"})
        panel.axhline(part["plain"].iloc[0], color=GREY, ls="--", lw=1, label="plain decoding")
        if row in best.index:
            _mark(panel, best.loc[row], part)
        panel.set_xscale("log")
        panel.set_title(labels.row(*row), fontsize=8.5)
    ticks = [count for count in (1, 3, 10, 30, 100) if count <= table["num_draft_tokens"].max()]
    panels[0].set_xticks(ticks, [str(count) for count in ticks])
    panels[0].minorticks_off()
    drawing.supxlabel("nodes of the tree", fontsize=8.5)
    drawing.supylabel("predicted tokens per second", fontsize=8.5)
    legend_above(drawing, panels, columns=4)
    return Picture(
        name=f"tree_shapes_{method}",
        title=f"Which tree on this machine: {labels.method(method)}",
        caption="Predicted tokens per second on held-out texts against the number of nodes, one curve per depth (0: "
        "one step of drafting), from this machine’s measured times. The ring is the tree that the tuning chose; "
        "without a ring plain decoding was faster. Hollow: at some positions the stored trees have cut off a node of "
        "that shape, so it cannot be chosen. Strategies that choose a tree of "
        "their own in every cycle are left out. Dashed: plain decoding. T = 0.",
        alt="Line charts of predicted tokens per second against tree size, one panel per strategy and drafter. "
        + _chosen_in_words(found, chosen),
        figure=drawing,
    )


def _mark(panel: Any, best: Any, part: pd.DataFrame) -> None:
    """Draws a ring around the chosen shape; none where plain decoding was chosen."""
    same = part["depth"].eq(best["depth"]) & part["num_draft_tokens"].eq(best["num_draft_tokens"])
    for row in part[same].to_dict("records"):
        panel.plot(row["num_draft_tokens"], row["tokens_per_s"], "o", ms=9, mfc="none", color=INK, label="chosen")


def _chosen_in_words(found: Findings, chosen: pd.DataFrame) -> str:
    words = [
        f"{found.labels.row(row['strategy'], row['drafters'])}: "
        + (
            "plain decoding"
            if pd.isna(row["depth"])
            else f"depth {row['depth']:.0f}, {row['num_draft_tokens']:.0f} nodes"
        )
        for row in chosen.to_dict("records")
    ]
    return f"Chosen: {'; '.join(words)}."
