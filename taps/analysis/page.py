"""The report as one HTML file: nothing is fetched, everything that came from data is escaped.

Reads what the tables, figures and claims stages wrote for it (`tables.json`, `figures.json`, `claims.json`); computes
no number. Needs neither pandas nor matplotlib. It lies beside the tables' folder, and of long tables holds links there.
"""

from __future__ import annotations

import base64
import re
import struct
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from taps.analysis.labels import Labels
from taps.analysis.verdicts import IN_WORDS, Verdict
from taps.plumbing.artefacts import read_json
from taps.plumbing.envelopes import missing as missing_file
from taps.plumbing.folder_records import check_hashes
from taps.plumbing.lineage import check_made_from
from taps.study.roles import Roles

_SECTIONS = (
    ("summary", "Summary"),
    ("tables", "Main tables"),
    ("figures", "Figures"),
    ("claims", "Claims"),
    ("details", "What lies behind"),
    ("inputs", "Training and speed"),
    ("published", "Published numbers"),
    ("provenance", "Provenance"),
)
_OPTIONAL = ("details", "inputs", "published")  # sections that a study may have nothing for
_MOST_ROWS = 100
"""Rows of a table that the page holds; of a longer one it holds the way to its CSV."""

_NUMBER = re.compile(r"[-+]?[\d ]*\.?\d+( \[.*\])?|–")


def build_page(*, study: str, tables: Path, figures: Path, claims: Path, facts: Sequence[tuple[str, str]] = ()) -> str:
    """Returns the page.

    Args:
        study: Its name.
        tables, figures, claims: Folders that those stages wrote.
        facts: More (name, value) lines for the summary, e.g. the machine.
    """
    for folder, kind in ((figures, "figures"), (claims, "claims")):
        check_made_from(folder, {"tables": tables / "tables.json"}, kind=kind)
    tabulated = read_json(tables / "tables.json", kind="tables")
    judged = read_json(claims / "claims.json", kind="claims")
    entries = tabulated["tables"]
    labels = Labels(Roles.from_json(tabulated["roles"]))
    held = {entry["section"] for entry in entries}
    return (
        _environment()
        .get_template("page.html")
        .render(
            study=study,
            css=Markup(_template("page.css")),
            js=Markup(_template("page.js")),
            sections=[item for item in _SECTIONS if item[0] not in _OPTIONAL or item[0] in held],
            facts=[*tabulated["facts"], *facts],
            missing=missing(entries, labels),
            answers=judged["answers"],
            claims=[claim_entry(claim, labels) for claim in judged["claims"]],
            counts=verdict_counts(judged["claims"]),
            num_judged=sum(len(claim["judgements"]) for claim in judged["claims"]),
            how=IN_WORDS,
            folder=tables.name,
            most_rows=_MOST_ROWS,
            figures=[figure_entry(figures, words) for words in read_json(figures / "figures.json", kind="figures")],
            tables_of=lambda section: [entry for entry in entries if entry["section"] == section],
        )
    )


def _environment() -> jinja2.Environment:
    loader = jinja2.FunctionLoader(_template)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["slug"] = lambda text: text.replace(" ", "-")
    environment.filters["cell_class"] = cell_class
    environment.filters["with_code"] = with_code
    macros = environment.get_template("macros.html").module
    environment.globals |= {name: getattr(macros, name) for name in ("plain_table", "table_block")}
    return environment


def _template(name: str) -> str:
    return (resources.files("taps.analysis") / "templates" / name).read_text(encoding="utf-8")


def with_code(text: str) -> Markup:
    """Returns the text escaped, with what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def cell_class(cell: str) -> Markup:
    """Returns the class attribute of a table cell: numbers align to the right, long texts may wrap."""
    if _NUMBER.fullmatch(cell):
        return Markup(' class="number"')
    return Markup(' class="text"') if len(cell) > 40 else Markup("")


def claim_entry(claim: dict[str, Any], labels: Labels) -> dict[str, Any]:
    """Returns a claim with its judgements' conditions and published verdicts in words, evidence as table rows."""
    printed = {(cell["temperature"], cell["method"]): cell for cell in claim["published"]}
    judgements = []
    for item in claim["judgements"]:
        cell = printed.get((item["temperature"], item["method"]))
        words = "a control of ours" if cell is None else ", ".join(filter(None, [cell["verdict"], cell["detail"]]))
        fields = ("what", "claimed", "interval", "outcome", "rows")
        judgements.append(
            {
                "verdict": item["verdict"],
                "condition": f"{labels.method(item['method'])}, T = {item['temperature']:g}",
                "published": words,
                "gaps": item["gaps"],
                "rows": [[evidence[field] for field in fields] for evidence in item["evidence"]],
            }
        )
    return {"id": claim["id"], "statement": claim["statement"], "judgements": judgements}


def verdict_counts(claims: Sequence[dict[str, Any]]) -> list[tuple[str, int]]:
    """Returns (verdict, number of judgements) in the order of `Verdict`, without zeros."""
    counts = Counter(item["verdict"] for claim in claims for item in claim["judgements"])
    return [(str(verdict), counts[verdict]) for verdict in Verdict if counts[verdict]]


def missing(tables: Sequence[dict[str, Any]], labels: Labels) -> list[str]:
    """Returns what the study lacks, in words: the first ten gaps and the number of the others."""
    rows: list[list[str]] = next((table["rows"] for table in tables if table["name"] == "missing"), [])
    words = []
    for temperature, method, benchmark, training_seed, seed, strategy, drafters, what in rows:
        where = f"{labels.benchmark(benchmark)}, {labels.method(method)}, T = {temperature}"
        row = f"{labels.row(strategy, drafters)} on " if strategy else ""
        seeds = "" if seed == "-1" else f", training seed {training_seed}, seed {seed}"
        words.append(f"{row}{where}{seeds} ({what})")
    return words if len(words) <= 10 else [*words[:10], f"and {len(words) - 10} more (table below)"]


def figure_entry(folder: Path, words: dict[str, str]) -> dict[str, Any]:
    """Returns a figure's words with its PNG in base64 and its size in pixels."""
    path = folder / f"{words['name']}.png"
    if not path.is_file():
        raise missing_file(folder, "figures", file=path)
    if "sha256" in words:  # absent from a record that was written by hand
        check_hashes(folder, {path.name: words["sha256"]}, kind="figures")
    png = path.read_bytes()
    width, height = struct.unpack(">II", png[16:24])
    return {**words, "png": base64.b64encode(png).decode(), "width": width, "height": height}
