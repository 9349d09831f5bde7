"""Figure of the workflow: the stages as a directed acyclic graph, each box one module of the package."""

from __future__ import annotations

from taps.analysis.figures.style import GREY, INK, WIDTH_IN, Picture, plt

# Stage -> (column, row) on the page.
_PLACES = {
    "fetch": (0, 2),
    "prepare_target": (1, 4),
    "corpus": (1, 1),
    "prompts": (1, 6),
    "tokenise": (2, 1),
    "mixture": (3, 0),
    "draft_vocab": (3, 2),
    "features": (3, 1),
    "trace": (3, 5.5),
    "heldout": (2, 3),
    "train": (4, 1),
    "average": (5, 0),
    "bank": (5, 3),
    "calibrate": (6, 2),
    "cost": (6, 0.7),
    "live_check": (6, 5.5),
    "replay": (6, 4),
    "tables": (7, 3),
    "figures": (8, 2),
    "claims": (8, 4),
    "page": (9, 3),
}
_EDGES = (
    "fetch prepare_target|fetch corpus|fetch prompts|corpus tokenise|prepare_target tokenise|tokenise mixture|"
    "tokenise draft_vocab|tokenise features|prepare_target features|tokenise heldout|heldout trace|prompts trace|"
    "prepare_target trace|mixture train|features train|draft_vocab train|train average|train bank|average bank|"
    "trace bank|bank calibrate|bank replay|trace replay|calibrate replay|train cost|bank live_check|trace live_check|"
    "replay tables|cost tables|live_check tables|tables figures|tables claims|figures page|claims page"
)
EDGES = tuple(tuple(edge.split()) for edge in _EDGES.split("|"))


def workflow() -> Picture:
    """Returns the graph of the stages."""
    figure, axes = plt.subplots(figsize=(WIDTH_IN, 3.4))
    for start, end in EDGES:
        axes.annotate(
            "", xy=_PLACES[end], xytext=_PLACES[start],
            arrowprops={"arrowstyle": "-|>", "color": GREY, "lw": 0.8, "shrinkA": 14, "shrinkB": 16},
        )  # fmt: skip
    needs_model = {"prepare_target", "features", "train", "trace", "bank", "cost", "live_check"}
    for stage, place in _PLACES.items():
        box = {"boxstyle": "round,pad=0.35", "fc": "#DCEBF5" if stage in needs_model else "white", "ec": INK, "lw": 0.8}
        axes.text(*place, stage.replace("_", "\n"), ha="center", va="center", fontsize=6.5, bbox=box)
    axes.set_xlim(-0.5, 9.5)
    axes.set_ylim(6.8, -0.8)
    axes.axis("off")
    return Picture(
        name="workflow",
        title="The workflow",
        caption="Each box is a stage (`python -m taps.<stage>`), each arrow files handed on. Blue stages run a model; "
        "all others need none, so the strategies, node budgets and definitions of the report can be changed and "
        "replayed in seconds.",
        alt="Directed graph of the stages from fetched assets over traces and draft banks to replays, tables and page.",
        figure=figure,
    )
