"""The learning curve: how each finding changes as the draft models see more data."""

from __future__ import annotations

import pandas as pd

from taps.analysis.figures.catalogue import figure
from taps.analysis.figures.style import BLUE, GREY, Picture, grid, interval_bars
from taps.analysis.findings import Findings

_TITLES = {
    "mixture": "acceptance length of\nthe drafter of all data",
    "specialisation": "matched −\nother specialists",
    "averaging": "averaged −\nmatched specialist",
    "routing": "routed by confidence −\nmatched specialist",
    "history": "routed by history −\nrouted by confidence",
    "merging": "merged, one budget −\nthe drafter of all data",
}


@figure(place=15)
def learning_curve(found: Findings) -> Picture | str:
    """Returns one panel per finding: its value, with interval, against the training tokens of one specialist."""
    table = found.table("learning_curve")
    if table.empty:
        return "how findings change with training data: one size of training data was used"
    table = table[table["since"].isna() & table["temperature"].eq(found.main_condition.temperature)]
    tokens = _tokens(found)
    ticks = sorted({tokens[name] for name in table["method"].unique() if name in tokens})
    findings = [name for name in _TITLES if table["finding"].eq(name).any()]
    drawing, panels = grid(len(findings), columns=3, height_in=2.0)
    for panel, finding in zip(panels, findings, strict=True):
        part = table[table["finding"].eq(finding)]
        part = part.assign(tokens=part["method"].map(tokens)).sort_values("tokens")
        panel.errorbar(
            part["tokens"],
            part["estimate"],
            yerr=interval_bars(part["estimate"], part["low"], part["high"]),
            color=BLUE,
            marker="o",
            capsize=2,
        )
        if finding != "mixture":
            panel.axhline(0, color=GREY, lw=0.8, zorder=0)
        panel.set_xscale("log")
        panel.set_xticks(ticks, [f"{value / 1000:.0f}k" for value in ticks])
        panel.minorticks_off()
        panel.set_title(_TITLES[finding], fontsize=8.5)
    drawing.supxlabel("training tokens of one specialist (each read once per epoch)", fontsize=8.5)
    seeds = sorted({int(count) for count in table["num_training_seeds"]})
    questions = int(table["num_questions"].iloc[0])
    caption = (
        f"Findings against the size of the training data, at T = {found.main_condition.temperature:g}: means over the "
        f"benchmarks with a matched specialist, domains weighing the same, {questions} questions, "
        f"{' or '.join(map(str, seeds))} training seeds; bars are 95 % intervals."
    )
    ends = "; ".join(
        f"{_TITLES[name].replace(chr(10), ' ')} {part['estimate'].iloc[0]:.2f} to {part['estimate'].iloc[-1]:.2f}"
        for name in findings
        if len(part := table[table["finding"].eq(name)])
    )
    alt = f"Line charts from the least to the most training data: {ends}."
    return Picture(name="learning_curve", title="As drafters get better", caption=caption, alt=alt, figure=drawing)


def _tokens(found: Findings) -> dict[str, float]:
    """Returns method -> mean number of tokens of its specialists' training data."""
    table = found.table("training")
    if table.empty:
        return {name: 2.0**place for place, name in enumerate(found.labels.roles.curve)}
    own = table[table["drafters"].isin(found.labels.roles.specialists)]
    sizes: pd.Series = (own["num_tokens"] / own["num_epochs"]).groupby(own["method"]).mean()
    return {str(name): float(value) for name, value in sizes.items()}
