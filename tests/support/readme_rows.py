"""Every sentence of README's results and the rows of the report that carry it.

    python -m tests.support.readme_rows            # each statement with its row; exit status 1 if README says otherwise

`tests/inputs/readme_rows.yaml` lists statements with fields instead of numbers, and where each finds its row. README
must hold each statement as its row fills it, and no number that is not in a statement: a report that changes names the
sentences to write anew. `{tau}` is a number, `{tau:ci}` a number with its interval, `{difference:+ci}` the same with a
sign, `{accuracy_percent:ci%}` per cent, `{num_texts:n}` a whole number.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

ROOT = Path(__file__).parents[2]
STATEMENTS = Path("tests/inputs/readme_rows.yaml")
HEADING = "## What came out"


@dataclass(frozen=True)
class Statement:
    """Words of README and the row that fills them.

    Attributes:
        says: The words, with fields.
        table: A CSV below `reports`.
        row: Column -> value; exactly one row has them all, or several whose numbers are added (`total`).
        total: Add the rows.
        minus: The row is stored the other way round: a − b is said, b − a is in the table.
        holds: What else must be true of the row, as a pandas query, e.g. `low > 0`; the words rest on it.
    """

    says: str
    table: str
    row: Mapping[str, Any] = field(default_factory=dict)
    total: bool = False
    minus: bool = False
    holds: str = ""


def statements(root: Path = ROOT) -> tuple[Path, list[Statement], list[str]]:
    """Returns the folder of reports, README's statements about it, and words whose numbers are no results."""
    content = yaml.safe_load((root / STATEMENTS).read_text(encoding="utf-8"))
    return root / content["reports"], [Statement(**item) for item in content["statements"]], content["not_results"]


def filled(statement: Statement, report: Path) -> str:
    """Returns the statement's words with the numbers of its row.

    Raises:
        ValueError: no such row, several, or it does not carry the words.
    """
    rows = pd.read_csv(report / statement.table)
    for column, value in statement.row.items():
        rows = rows[rows[column].isna() if value is None else rows[column] == value]
    where = f"{statement.says!r} ({statement.table}, {dict(statement.row)})"
    if rows.empty or (len(rows) > 1 and not statement.total):
        raise ValueError(f"{where}: expected one row, found {len(rows)}")
    if statement.holds and len(rows.query(statement.holds)) != len(rows):
        raise ValueError(f"{where}: expected {statement.holds}, found {rows.to_dict('records')}")
    row = rows.sum(numeric_only=True) if statement.total else rows.iloc[0]
    return re.sub(
        r"{(\w+)(?::([^}]*))?}", lambda match: _number(row, *match.groups(), minus=statement.minus), statement.says
    )


def _number(row: pd.Series, column: str, form: str | None, *, minus: bool) -> str:
    """Returns a cell in print, with its interval if the form asks for one."""
    form = form or ""
    if form == "n":
        return f"{int(row[column]):,}"
    digits = 0 if "%" in form else 2
    value, sign = float(row[column]), -1 if minus else 1
    printed = _decimal(sign * value, digits, plus="+" in form)
    if "ci" in form:
        low, high = (f"{column}_low", f"{column}_high") if f"{column}_low" in row else ("low", "high")
        ends = sorted(sign * float(row[end]) for end in (low, high))
        interval = ", ".join(_decimal(end, digits) for end in ends)
        return f"{printed} % [{interval}]" if "%" in form else f"{printed} [{interval}]"
    return f"{printed} %" if "%" in form else printed


def _decimal(value: float, digits: int, *, plus: bool = False) -> str:
    """Returns a number with a true minus sign; zero has no sign."""
    rounded = round(value, digits) + 0.0
    return f"{rounded:{'+' if plus and rounded else ''}.{digits}f}".replace("-", "−")


def results_section(readme: str) -> str:
    """Returns README's results as one line, without links' targets."""
    section = readme.partition(HEADING)[2].partition("\n## ")[0]
    return " ".join(re.sub(r"\]\([^)]*\)", "]", section).split())


def check(readme: str, report: Path, said: Sequence[Statement], not_results: Sequence[str]) -> list[str]:
    """Returns what is wrong: statements that README does not hold, and its numbers that no statement has."""
    section, wrong = results_section(readme), []
    rest = section
    for statement in said:
        try:
            words = " ".join(filled(statement, report).split())
        except (OSError, KeyError, ValueError) as error:
            wrong.append(str(error))
            continue
        if words not in section:
            wrong.append(f"README does not say: {words}")
        rest = rest.replace(words, "")
    for words in not_results:
        if words not in section:
            wrong.append(f"README does not say: {words}")
        rest = rest.replace(words, "")
    wrong += [
        f"no row for: ...{rest[max(0, m.start() - 60) : m.end() + 30]}..." for m in re.finditer(r"\d[\d.,]*", rest)
    ]
    return wrong


def main() -> None:
    report, said, not_results = statements()
    for statement in said:
        print(f"{statement.table}  {dict(statement.row)}")
        try:
            print(f"    {filled(statement, report)}")
        except ValueError as error:
            print(f"    WRONG: {error}")
    wrong = check((ROOT / "README.md").read_text(encoding="utf-8"), report, said, not_results)
    print("\n".join(["", *wrong]) if wrong else "\nREADME says this, and no other number.")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
