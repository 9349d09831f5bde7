"""One table, three files: CSV for machines, Markdown and LaTeX for people, numbers formatted by the same functions.

A CSV holds FINE decimals. Print rounds the *CSV's* numbers, so the three always agree.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from functools import partial
from pathlib import Path

import pandas as pd

from taps.plumbing.atomic import write_text

FINE = 4  # decimals of every measured number in a CSV
COARSE = 2  # decimals in print, as in the paper
_FORMULA = tuple("=+-@\t\r")
NOTHING = "–"  # a cell that was not measured
SETTINGS = frozenset(
    {"temperature", "chat_weight"}
)  # columns of settings, not measurements: written as short as they are


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table with what a reader must know to read it.

    Attributes:
        name: File name without suffix.
        title: A few words.
        caption: Definition of the numbers, node budget, number of questions, seeds.
        frame: The numbers (CSV). Floats were rounded to FINE decimals.
        shown: The same in print, as text cells; by default `in_print(frame)`.
    """

    name: str
    title: str
    caption: str
    frame: pd.DataFrame
    shown: pd.DataFrame = field(default_factory=pd.DataFrame)

    def __post_init__(self) -> None:
        object.__setattr__(self, "frame", rounded(self.frame))
        if self.shown.empty:
            object.__setattr__(self, "shown", in_print(self.frame))


def rounded(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the frame with its floats rounded to FINE decimals, and -0.0 written as 0.0."""
    floats = [name for name in frame.select_dtypes("float").columns if name not in SETTINGS]
    return frame.assign(**{name: frame[name].round(FINE) + 0.0 for name in floats})


def heading(column: str) -> str:
    """Returns a column's name in print: `tau_low` becomes `tau low`."""
    return column.replace("num_", "").replace("_", " ")


def format_number(value: float | None, decimals: int = COARSE) -> str:
    """Returns a measured number in print, NOTHING for a missing one; ties to even on the CSV's decimal digits."""
    if value is None or not math.isfinite(value):
        return NOTHING
    digits = Decimal(f"{value:.{FINE}f}").quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_HALF_EVEN)
    return f"{digits + 0:f}"


def format_p_value(value: float) -> str:
    """Returns a p value in print: three decimals, `< 0.001` below."""
    return "< 0.001" if value < 0.001 else format_number(value, 3)


def format_interval(value: float, low: float, high: float, decimals: int = COARSE) -> str:
    """Returns e.g. `2.05 [1.98, 2.12]`; without the interval where there is none."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return format_number(value, decimals)
    return f"{format_number(value, decimals)} [{format_number(low, decimals)}, {format_number(high, decimals)}]"


def format_count(value: float) -> str:
    """Returns a whole number in print, thousands separated, NOTHING for a missing one."""
    return NOTHING if pd.isna(value) else f"{int(value):,}".replace(",", " ")


def in_print(frame: pd.DataFrame, decimals: Mapping[str, int] | None = None) -> pd.DataFrame:
    """Returns text cells under `heading`s: measured numbers with COARSE decimals, whole-numbered columns without any.

    Args:
        decimals: Other decimals for some columns.
    """
    chosen = decimals or {}
    columns: dict[str, pd.Series] = {}
    for name in map(str, frame.columns):
        values = frame[name]
        if not pd.api.types.is_numeric_dtype(values):
            columns[heading(name)] = values.astype(object).where(values.notna(), NOTHING).astype(str)
        elif name == "p_value":
            columns[heading(name)] = values.map(format_p_value)
        elif name not in chosen and (values.dropna() % 1 == 0).all():
            columns[heading(name)] = values.map(format_count)
        elif name in SETTINGS:
            columns[heading(name)] = values.map("{:g}".format)
        else:
            columns[heading(name)] = values.map(partial(format_number, decimals=chosen.get(name, COARSE)))
    return pd.DataFrame(columns, index=frame.index)


def to_csv(frame: pd.DataFrame) -> str:
    """Returns the frame as CSV: FINE decimals for floats, `\\n` line ends, empty cells for missing numbers.

    Text that a spreadsheet would run as a formula gets an apostrophe in front.
    """
    texts = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    columns = {name: frame[name].astype(object).map(_harmless) for name in texts}
    columns |= {name: frame[name].map("{:g}".format) for name in SETTINGS & set(frame.columns)}
    return rounded(frame).assign(**columns).to_csv(index=False, float_format=f"%.{FINE}f", lineterminator="\n")


def _harmless(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in _FORMULA else cell


def to_markdown(table: Table) -> str:
    """Returns the table in print as GitHub Markdown, title above, caption below."""
    lines = [list(table.shown.columns), ["---"] * table.shown.shape[1], *table.shown.to_numpy().tolist()]
    body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"**{table.title}**\n\n{body}\n\n{table.caption}\n"


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "−": "$-$",
    "±": r"$\pm$",
    "τ": r"$\tau$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
_LATEX_SPECIAL = re.compile("|".join(map(re.escape, _LATEX)))


def latex_escape(text: str) -> str:
    """Returns `text` with everything that LaTeX would interpret made literal."""
    return _LATEX_SPECIAL.sub(lambda match: _LATEX[match[0]], text)


def to_latex(table: Table) -> str:
    """Returns the table in print as a LaTeX `table` with booktabs rules (needs `\\usepackage{booktabs}`)."""
    columns = "l" * table.shown.shape[1]
    body = [" & ".join(latex_escape(cell) for cell in line) + r" \\" for line in table.shown.to_numpy().tolist()]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_escape(table.title)}. {latex_escape(table.caption)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(latex_escape(name) for name in table.shown.columns) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def write_table(table: Table, folder: Path) -> None:
    """Writes `<name>.csv`, `<name>.md` and `<name>.tex` into `folder`."""
    write_text(folder / f"{table.name}.csv", to_csv(table.frame))
    write_text(folder / f"{table.name}.md", to_markdown(table))
    write_text(folder / f"{table.name}.tex", to_latex(table))
