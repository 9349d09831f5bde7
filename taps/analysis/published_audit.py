"""What a reader can check in the published numbers themselves: one small table per contradiction, no result of ours."""

from __future__ import annotations

import numpy as np
import pandas as pd

from taps import published
from taps.analysis.rendering import Table, in_print

BENCHMARKS = ["mt_bench", "gsm8k", "math_500", "svamp"]
_KEYS = ["temperature", "method", "variant"]
# The draft tree of the paper is 6 levels deep; its figure shows 5. The sixth rate is taken equal to the fifth.
LEVELS = 6


def audit_tables() -> list[Table]:
    """Returns the audit of the published numbers, in the order of the report."""
    return [row_means(), definition_gap(), against_report(), implied_by_depth(), temperature_drop(), spliced_sweep()]


def row_means() -> Table:
    """Returns the printed row means beside the means of the printed cells."""
    cells = published.table("acceptance_length").pivot(index=_KEYS, columns="benchmark", values="tau").reset_index()
    recomputed = cells[BENCHMARKS].mean(axis=1)
    frame = cells[_KEYS].assign(printed=cells["average"], recomputed=recomputed, gap=cells["average"] - recomputed)
    # Half a unit of the second decimal is a tie of rounding; more is a mismatch.
    frame["agrees"] = np.where((frame["gap"].abs() <= 0.005 + 1e-9), "yes", "no")
    return Table(
        name="audit_row_means",
        title="Published row means, recomputed",
        caption="Mean of the four printed cells of each row of the paper's main tables; `no` where the printed mean is "
        "further from it than rounding allows.",
        frame=frame,
        shown=in_print(frame, decimals={"recomputed": 4, "gap": 4}),
    )


def definition_gap() -> Table:
    """Returns the authors' raw EAGLE-2 answers (T = 1) under three definitions of tau."""
    answers = published.table("eagle_answers")
    answers = answers.assign(cycles=answers["last_cycle_index"] + answers["turns"])
    answers["ratio"] = answers["new_tokens"] / answers["cycles"]
    sums = answers.groupby(["variant", "benchmark"], sort=False).agg(
        num_questions=("question", "size"),
        new_tokens=("new_tokens", "sum"),
        last_index=("last_cycle_index", "sum"),
        num_cycles=("cycles", "sum"),
        tau_macro=("ratio", "mean"),
    )
    frame = sums.reset_index()
    keys = frame[["variant", "benchmark"]].itertuples(index=False, name=None)
    frame["printed"] = [published.tau(1, "eagle2", *key) for key in keys]
    frame["tau_published"] = frame["new_tokens"] / frame["last_index"]
    frame["tau"] = frame["new_tokens"] / frame["num_cycles"]
    frame["excess_percent"] = 100 * (frame["tau_published"] / frame["tau"] - 1)
    columns = [
        "variant",
        "benchmark",
        "num_questions",
        "printed",
        "tau_published",
        "tau",
        "tau_macro",
        "excess_percent",
    ]
    return Table(
        name="audit_definition_gap",
        title="One set of answers, three definitions of acceptance length",
        caption="The authors' raw EAGLE-2 answers at T = 1. `tau published` divides by the zero-based index of the "
        "last cycle (cycles minus one per turn) and reproduces the printed cell; `tau` divides by the cycles; "
        "`tau macro` is the mean over questions.",
        frame=frame[columns],
    )


def against_report() -> Table:
    """Returns the cells of the main table beside those of the authors' own earlier report (T = 0)."""
    table = published.table("acceptance_length").rename(columns={"tau": "table"})
    report = published.table("technical_report_t0").rename(columns={"tau": "report"})
    frame = report.merge(table, on=[*_KEYS, "benchmark"])[[*_KEYS, "benchmark", "table", "report"]]
    frame["difference"] = frame["table"] - frame["report"]
    return Table(
        name="audit_against_report",
        title="The paper's table against the authors' technical report, T = 0",
        caption="Same variants, same benchmarks, same authors. Without intervals in either source the differences are "
        "the only published hint of run-to-run noise; HASS Math on SVAMP and on MT-Bench stand out.",
        frame=frame.sort_values("difference", key=abs, ascending=False, ignore_index=True),
    )


def implied_by_depth() -> Table:
    """Returns the tau that the published depth curves imply beside the printed cell."""
    depth = published.table("acceptance_by_depth").pivot(
        index=[*_KEYS, "benchmark"], columns="depth", values="acceptance_percent"
    )
    rates = depth.to_numpy() / 100
    rates = np.concatenate([rates, np.repeat(rates[:, -1:], LEVELS - rates.shape[1], axis=1)], axis=1)
    frame = depth.index.to_frame(index=False)
    frame["implied"] = 1 + np.cumprod(rates, axis=1).sum(axis=1)
    keys = frame[[*_KEYS, "benchmark"]].itertuples(index=False, name=None)
    frame["printed"] = [published.tau(*key) for key in keys]
    frame["difference"] = frame["printed"] - frame["implied"]
    return Table(
        name="audit_implied_by_depth",
        title="Acceptance length implied by the depth figure against the table",
        caption=f"Implied = 1 + the sum over {LEVELS} levels of the product of the conditional acceptance rates; the "
        "figure shows five, the sixth is taken equal to the fifth. At T = 0 the EAGLE-2 rows agree to about 0.1 or 0.2 "
        "except the large mixture (70k+70k), whose figure and table cannot both be right.",
        frame=frame.sort_values("difference", key=abs, ascending=False, ignore_index=True),
    )


def temperature_drop() -> Table:
    """Returns, per published row, the change of the row mean from T = 0 to T = 1."""
    means = published.table("acceptance_length").query("benchmark == 'average'")
    frame = means.pivot(index=["method", "variant"], columns="temperature", values="tau")
    frame = frame.set_axis(["t0", "t1"], axis=1).reset_index()
    frame["change"] = frame["t1"] - frame["t0"]
    return Table(
        name="audit_temperature_drop",
        title="Published row means at T = 0 and T = 1",
        caption="The large mixture loses more than twice what any other row loses; the paper's statement that larger "
        "mixtures do not dominate across temperatures rests on it alone.",
        frame=frame.sort_values("change", ignore_index=True),
    )


def spliced_sweep() -> Table:
    """Returns the averaging sweep's midpoint beside the main table's Averaged row at both temperatures."""
    sweep = published.table("averaging_sweep").query("chat_weight == 0.5")
    rows = []
    for method, panel, tau in sweep[["method", "panel_label", "tau"]].itertuples(index=False, name=None):
        t0, t1 = (published.tau(temperature, method, "averaged", panel) for temperature in (0, 1))
        rows.append((method, panel, tau, t0, t1))
    return Table(
        name="audit_spliced_sweep",
        title="The midpoint of the averaging sweep",
        caption="The sweep is said to run at T = 0, yet its point at 0.5 equals the main table's Averaged row at T = 1 "
        "in every panel: a point from another run, which makes the curve look unstable.",
        frame=pd.DataFrame(rows, columns=["method", "panel", "sweep_at_half", "averaged_t0", "averaged_t1"]),
    )
