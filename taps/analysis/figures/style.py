"""How every figure looks and is saved: colours, markers, sizes, and files that are the same bytes on every run.

The main colours are those of Okabe and Ito, told apart by readers with any common colour vision; markers and lines
repeat what colour says, so that a grey print is readable too.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from PIL import Image

from taps.analysis.findings import Where
from taps.analysis.labels import Labels
from taps.plumbing.atomic import atomic_path

BLUE, ORANGE, GREEN, SKY, PURPLE, YELLOW, AMBER = (
    "#0072B2", "#D55E00", "#009E73", "#56B4E9", "#CC79A7", "#F0E442", "#E69F00",
)  # fmt: skip
GREY, INK = "#8A8A8A", "#222222"
WIDTH_IN = 7.0  # text width of a page

_SETTINGS: Any = {
    "figure.constrained_layout.use": True,
    "figure.dpi": 170,
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A drawn figure with its words.

    Attributes:
        name: File name without suffix.
        title: A few words.
        caption: What is shown: definition, node budget, number of questions and seeds.
        alt: What a reader who cannot see it should know.
        figure: The drawing.
    """

    name: str
    title: str
    caption: str
    alt: str
    figure: Figure


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Applies the style inside the block and closes every figure drawn in it."""
    with mpl.rc_context(_SETTINGS):
        try:
            yield
        finally:
            plt.close("all")


def grid(num_panels: int, *, columns: int = 4, height_in: float = 2.3, **options: Any) -> tuple[Figure, list[Axes]]:
    """Returns a figure of `num_panels` equal panels, row by row."""
    columns = max(1, min(columns, num_panels))
    rows = max(1, math.ceil(num_panels / columns))
    figure, axes = plt.subplots(rows, columns, figsize=(WIDTH_IN, height_in * rows), squeeze=False, **options)
    panels = list(axes.flat)
    for spare in panels[num_panels:]:
        spare.set_visible(False)
    return figure, panels[:num_panels]


def condition_grid(
    labels: Labels,
    wheres: Sequence[Where],
    benchmarks: Sequence[str],
    *,
    xlabel: str,
    ylabel: str,
    height_in: float,
    **options: Any,
) -> tuple[Figure, list[tuple[Axes, Where, str]]]:
    """Returns a figure with one row per condition and one column per benchmark, titled, and its panels."""
    figure, axes = grid(len(wheres) * len(benchmarks), columns=len(benchmarks), height_in=height_in, **options)
    cells = [(where, benchmark) for where in wheres for benchmark in benchmarks]
    for index, (panel, (where, benchmark)) in enumerate(zip(axes, cells, strict=True)):
        if index < len(benchmarks):
            panel.set_title(labels.benchmark(benchmark))
        if index % len(benchmarks) == 0:
            panel.set_ylabel(f"{labels.condition(*where)}\n{ylabel}")
    figure.supxlabel(xlabel, fontsize=8.5)
    return figure, [(panel, *cell) for panel, cell in zip(axes, cells, strict=True)]


def legend_above(figure: Figure, panels: Sequence[Axes], *, columns: int = 4) -> None:
    """Draws one legend for all panels above them, each label once."""
    entries: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        figure.legend(entries.values(), entries.keys(), loc="outside upper center", ncols=columns)


def interval_bars(value: ArrayLike, low: ArrayLike, high: ArrayLike) -> np.ndarray:
    """Returns the (lower, upper) lengths of error bars [2, n] for values with intervals.

    A value computed by another sum than its interval may lie outside it by a rounding error; no bar is negative.
    """
    return np.maximum([np.atleast_1d(np.subtract(value, low)), np.atleast_1d(np.subtract(high, value))], 0.0)


def save(picture: Picture, folder: Path) -> None:
    """Writes `<name>.png` (256 colours) and `<name>.pdf`, without time stamps, program versions or empty panels.

    The canvases print directly: `Figure.savefig` would draw everything twice per file.
    """
    figure = picture.figure
    lowest: dict[int, Axes] = {}  # column -> its last panel with data
    for panel in figure.axes:
        drawn = bool(np.isfinite(panel.dataLim.get_points()).all())
        panel.set_visible(drawn)  # a condition may have fewer benchmarks than another
        if drawn and (place := panel.get_subplotspec()) is not None:
            lowest[place.colspan.start] = panel
    for panel in lowest.values():
        panel.tick_params(labelbottom=True)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    with atomic_path(folder / f"{picture.name}.png") as temporary:
        pixels.quantize(256, dither=Image.Dither.NONE).save(temporary, format="png", optimize=True)
    figure.set_layout_engine("none")  # laid out while the PNG was drawn
    with atomic_path(folder / f"{picture.name}.pdf") as temporary:
        FigureCanvasPdf(figure).print_pdf(temporary, metadata={"CreationDate": None, "Producer": None, "Creator": None})
