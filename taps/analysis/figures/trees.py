"""Figure of real draft trees: each specialist's at one position of a recorded answer, and the two merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from matplotlib.axes import Axes

from taps.analysis.figures.style import GREY, INK, Picture, grid
from taps.analysis.labels import Labels
from taps.decoding.merging import merge
from taps.decoding.recording import Recording
from taps.decoding.trees import ROOT, Trees, num_accepted, path_to

_LONGEST_LABEL = 11  # characters of a token


def draft_trees(
    recording: Recording, decode: Callable[[list[int]], str], labels: Labels, *, num_nodes: int, benchmark: str
) -> Picture:
    """Returns the drafters' trees and their merged tree at one position, tokens, probabilities, accepted path.

    Args:
        recording: A trace and its banks, as many as there are drafters to merge.
        decode: Tokens -> text.
        labels: Names in print.
        num_nodes: Nodes drawn of each tree, and the budget of the merged one.
    """
    drafters = {name: bank.trees.prefix(num_nodes) for name, bank in recording.banks.items()}
    shares = np.full(len(drafters), 1 / len(drafters))
    trees = {**drafters, "merged": merge(list(drafters.values()), shares, num_nodes)}
    lengths = {name: num_accepted(batch, recording.text.future) for name, batch in trees.items()}
    position = _telling_position(lengths)
    answer = int(np.searchsorted(recording.text.offsets, position, side="right")) - 1
    own = {name: _paths(batch.rows(slice(position, position + 1))) for name, batch in drafters.items()}
    figure, panels = grid(len(trees), columns=1, height_in=0.155 * num_nodes + 0.4)
    for panel, (name, batch) in zip(panels, trees.items(), strict=True):
        tree = batch.rows(slice(position, position + 1))
        accepted = _accepted(tree, recording.text.future[position])
        title = "Merged, the same number of nodes" if name == "merged" else labels.drafters(name)
        panel.set_title(f"{title}: {len(accepted)} accepted", loc="left")
        _draw(panel, tree, accepted, decode, [_owner_colour(labels, path, own) for path in _paths(tree)])
    return Picture(
        name="draft_trees",
        title="Real draft trees of the specialists and their merged tree",
        caption=f"{labels.benchmark(benchmark)}, question {recording.trace_meta['ids'][answer]}, the position "
        "where the drafters differ and the merged tree accepts most (chosen to show the mechanism, not to measure it). "
        f"Only the best {num_nodes} nodes are drawn. Beside each token, the probability of its path; dots are spaces. "
        f"Outlines: {_outlines(labels, drafters)}black: proposed by several. "
        "The thick line is what the target accepts.",
        alt="Tree diagrams; accepted tokens: "
        + ", ".join(f"{name} {int(length[position])}" for name, length in lengths.items())
        + ".",
        figure=figure,
    )


_COLOURS = {"#0072B2": "blue", "#D55E00": "orange", "#7B3294": "purple", "#117733": "green", "#882255": "wine"}


def _outlines(labels: Labels, drafters: Iterable[str]) -> str:
    """Returns which colour of an outline means that one drafter alone proposed a node."""
    looks = {name: labels.look("single", name)["color"] for name in drafters}
    return "".join(
        f"{_COLOURS.get(colour, colour)}: by the {labels.drafters(name)} drafter alone, "
        for name, colour in looks.items()
    )


def _telling_position(lengths: dict[str, np.ndarray]) -> int:
    """Returns the first position with the longest merged path among those where the drafters' lengths differ."""
    single = np.stack([values for name, values in lengths.items() if name != "merged"])
    differ = single.max(axis=0) != single.min(axis=0)
    merged = lengths["merged"].astype(int)
    return int(np.argmax(np.where(differ, merged, merged - merged.max(initial=0) - 1)))


def _paths(tree: Trees) -> list[tuple[int, ...]]:
    """Returns the tokens from the root to each node that exists of a single tree."""
    tokens, parents = tree.tokens[0], tree.parents[0]
    return [
        tuple(int(tokens[step]) for step in path_to(parents, node))
        for node in np.flatnonzero(tree.exists()[0]).tolist()
    ]


def _accepted(tree: Trees, future: np.ndarray) -> list[int]:
    """Returns the nodes of the accepted path of a single tree."""
    paths = _paths(tree)
    lengths = [len(path) if path == tuple(future[: len(path)].tolist()) else 0 for path in paths]
    best = int(np.argmax(lengths)) if lengths else ROOT
    return path_to(tree.parents[0], best) if lengths and lengths[best] else []


def _owner_colour(labels: Labels, path: tuple[int, ...], own: dict[str, list[tuple[int, ...]]]) -> str:
    owners = [name for name, paths in own.items() if path in paths]
    return labels.look("single", owners[0])["color"] if len(owners) == 1 else INK


def _draw(
    panel: Axes, tree: Trees, accepted: list[int], decode: Callable[[list[int]], str], colours: list[str]
) -> None:
    parents = tree.parents[0]
    count = len(colours)
    heights = _heights(parents[:count])
    depth = [len(path_to(parents, node)) for node in range(count)]
    root = (0.0, float(np.mean([heights[node] for node in range(count) if parents[node] == ROOT] or [0.0])))
    places = [(float(depth[node]), heights[node]) for node in range(count)]
    for node in range(count):
        start = root if parents[node] == ROOT else places[parents[node]]
        on_path = node in accepted
        panel.plot(
            *zip(start, places[node], strict=True), color=INK if on_path else GREY, lw=2.4 if on_path else 0.7, zorder=1
        )
    box = {"boxstyle": "round,pad=0.25", "fc": "white"}
    panel.text(*root, "root", ha="center", va="center", fontsize=7, bbox={**box, "ec": GREY})
    for node, (x, y) in enumerate(places):
        probability = np.exp(tree.scores[0, node])
        label = f"{printable(decode([int(tree.tokens[0, node])]))}  {probability:.2g}"
        outline = {**box, "ec": colours[node], "lw": 1.6 if node in accepted else 0.8}
        panel.text(
            x, y, label, ha="center", va="center", fontsize=6.5, bbox=outline, parse_math=False, zorder=2,
            fontweight="bold" if node in accepted else "normal",
        )  # fmt: skip
    panel.set_xlim(-0.3, max(depth, default=1) + 0.5)
    panel.set_ylim(max(heights, default=0) + 0.6, -0.6)
    panel.axis("off")


def _heights(parents: np.ndarray) -> list[float]:
    """Returns a row for every node of a tree: leaves one below the other, parents in the middle."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents.tolist()):
        children.setdefault(parent, []).append(node)
    heights = [0.0] * len(parents)
    num_leaves = 0

    def place(node: int) -> float:
        nonlocal num_leaves
        below = children.get(node, [])
        if below:
            heights[node] = float(np.mean([place(child) for child in below]))
        else:
            heights[node], num_leaves = float(num_leaves), num_leaves + 1
        return heights[node]

    for child in children.get(ROOT, []):
        place(child)
    return heights


def printable(text: str) -> str:
    """Returns a token's text as a short label: spaces as dots, line ends as arrows, unprintable characters escaped."""
    shown = text.replace(" ", "·").replace("\n", "↵")
    if not all(character.isprintable() and ord(character) < 0x2200 for character in shown):
        shown = ascii(text)[1:-1]
    return shown if len(shown) <= _LONGEST_LABEL else shown[: _LONGEST_LABEL - 1] + "…"
