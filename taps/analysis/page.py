"""The report as one HTML file: nothing is fetched, everything that came from data is escaped.

Reads what the tables, figures and claims stages wrote for it (`tables.json`, `figures.json`, `claims.json`); computes
no number. Needs neither pandas nor matplotlib. It lies beside the tables' folder, and of long tables holds links there.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from taps.analysis.labels import MEAN, Labels
from taps.analysis.verdicts import IN_WORDS, Verdict
from taps.plumbing.artefacts import read_json, read_json_envelope
from taps.plumbing.envelopes import missing as missing_file
from taps.plumbing.folder_records import check_hashes
from taps.plumbing.lineage import check_made_from
from taps.study.roles import Roles

_SECTIONS = (
    ("summary", "Results"),
    ("tables", "Every row"),
    ("compare", "Compare"),
    ("figures", "Figures"),
    ("claims", "Claims"),
    ("details", "What lies behind"),
    ("inputs", "Training and speed"),
    ("published", "Published numbers"),
    ("provenance", "Provenance"),
)
_TABLES = ("details", "inputs", "published")  # sections that are tables, which a study may have none of
_MOST_ROWS = 100
"""Rows of a table that the page holds; of a longer one it holds the way to its CSV."""

_NUMBER = re.compile(r"(< )?[-+]?[\d ]*\.?\d+( \[.*\])?|–")
_NUMBERED = re.compile(r"[CK]\d+")  # a claim of the paper, or a control of ours; others have names for scripts alone


def build_page(
    *,
    study: str,
    tables: Path,
    figures: Path,
    claims: Path,
    configs: Sequence[Path] = (),
    facts: Sequence[tuple[str, str]] = (),
) -> str:
    """Returns the page.

    Args:
        study: Its name.
        tables, figures, claims: Folders that those stages wrote.
        configs: The study's settings, to be shown as they stand.
        facts: More (name, value) lines for its provenance, e.g. the machine.
    """
    for folder, kind in ((figures, "figures"), (claims, "claims")):
        check_made_from(folder, {"tables": tables / "tables.json"}, kind=kind)
    record = read_json_envelope(tables / "tables.json", kind="tables")
    tabulated = record["content"]
    judged = read_json(claims / "claims.json", kind="claims")
    drawn = read_json(figures / "figures.json", kind="figures")
    pictures = [figure_entry(figures, words) for words in drawn["figures"]]
    entries = [entry for entry in tabulated["tables"] if not _is_wide(entry)]
    labels = Labels(Roles.from_json(tabulated["roles"]))
    held = {entry["section"] for entry in entries if entry["rows"]}
    sections = [item for item in _SECTIONS if item[0] not in _TABLES or item[0] in held]
    benchmarks = columns_of(tabulated["every_row"])
    return (
        _environment()
        .get_template("page.html")
        .render(
            study=study,
            target=tabulated["target"],
            css=Markup(_template("page.css")),
            js=Markup(_template("compare.js") + _template("page.js")),
            sections=[item for item in sections if item[0] != "figures" or pictures],
            table_sections=[item for item in sections if item[0] in _TABLES],
            has_paper=labels.roles.plays_the_paper,
            facts=[*tabulated["facts"], *made_from(record), *facts],
            configs=[(path.name, path.read_text(encoding="utf-8")) for path in configs],
            gaps=shortened(tabulated["gaps"]),
            answers=judged["answers"],
            advice=judged["advice"],
            condition=judged["condition"],
            claims=[claim_entry(claim, labels) for claim in judged["claims"]],
            counts=verdict_counts(judged["claims"]),
            num_judged=sum(len(claim["judgements"]) for claim in judged["claims"]),
            how=IN_WORDS,
            folder=tables.name,
            claims_folder=claims.name,
            most_rows=_MOST_ROWS,
            main_figure=pictures[0] if pictures else None,
            figures=pictures[1:],
            left_out=drawn["left_out"],
            benchmarks=benchmarks,
            rows=[row_entry(row, benchmarks) for row in tabulated["every_row"]["rows"]],
            row_words=tabulated["every_row"]["caption"],
            sums=packed_sums(tabulated["every_row"]),
            tables_of=lambda section: [entry for entry in entries if entry["section"] == section and entry["rows"]],
        )
    )


def _is_wide(entry: dict[str, Any]) -> bool:
    """Returns whether a table's numbers stand in the page's own table of every row."""
    return entry["section"] == "main" or entry["name"] == "acceptance_length"


def columns_of(every_row: dict[str, Any]) -> list[dict[str, str]]:
    """Returns the benchmarks of the wide table, and their mean if a row has one."""
    has_mean = any(MEAN in row["cells"] for row in every_row["rows"])
    return [*every_row["benchmarks"], *([{"name": MEAN, "title": MEAN}] if has_mean else [])]


def row_entry(row: dict[str, Any], benchmarks: Sequence[dict[str, str]]) -> dict[str, Any]:
    """Returns a row of the wide table with a cell per benchmark: ours, and the published one or nothing."""
    cells = [(row["cells"].get(item["name"], "–"), row["published"].get(item["name"], "")) for item in benchmarks]
    return {**row, "cells": cells}


def packed_sums(every_row: dict[str, Any]) -> str:
    """Returns what the comparison tool reads, as JSON, deflated, in base64."""
    rows = every_row["rows"]
    several = Counter((row["family"], row["temperature"], row["variant"]) for row in rows)
    content = {
        "benchmarks": every_row["benchmarks"],
        "quantiles": every_row["quantiles"],
        "pool": every_row["pool"],
        "rows": [
            {
                "condition": f"{row['family']}, T = {row['temperature']}",
                "label": row["variant"]
                + (f", {row['nodes']} nodes" if several[row["family"], row["temperature"], row["variant"]] > 1 else ""),
                "sums": row["sums"],
            }
            for row in rows
        ],
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def made_from(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns (name, value) lines: what the tables were made from, and by what.

    Args:
        record: Content and provenance of `tables.json`.
    """
    content, made = record["content"], record["provenance"]
    target = content["target"]
    lines = []
    if target:
        lines = [("Target", target["line"]), ("Target, sha256 of its files", target["digest"])]
        lines += [("Target made from", target["source"])] if target["source"] else []
    versions = ", ".join(f"{name} {version}" for name, version in sorted(made["versions"].items()))
    report = f"taps {made['taps']}, Python {made['python']}, {versions}"
    return [
        *lines,
        *content["made_by"],
        ("Commit of the report’s code", made["git"]),
        ("Versions of the report", report),
    ]


def _environment() -> jinja2.Environment:
    loader = jinja2.FunctionLoader(_template)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["slug"] = lambda text: re.sub(r"[^\w.-]+", "-", text)
    environment.filters["number_of"] = lambda claim: f"{claim} " if _NUMBERED.fullmatch(claim) else ""
    environment.filters["cell_class"] = cell_class
    environment.filters["with_code"] = with_code
    macros = environment.get_template("macros.html").module
    environment.globals |= {name: getattr(macros, name) for name in ("plain_table", "table_block", "picture", "choice")}
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


def short_in_words(parts: Sequence[dict[str, Any]]) -> str:
    """Returns a short answer as plain text, e.g. `Yes: routing beats averaging (0.04 [0.01, 0.07]).`"""
    sentences = []
    for part in parts:
        findings = [f"{finding} ({number})" if number else finding for finding, number in part["findings"]]
        sentences.append(f"{part['lead']}: {'; '.join(findings)}.")
    return " ".join(sentences) or "Not asked."


def claim_entry(claim: dict[str, Any], labels: Labels) -> dict[str, Any]:
    """Returns a claim with its judgements' conditions and published verdicts in words, evidence as table rows."""
    printed = {(cell["temperature"], cell["method"]): cell for cell in claim["published"]}
    judgements = []
    for item in claim["judgements"]:
        cell = printed.get((item["temperature"], item["method"]))
        words = "" if cell is None else ", ".join(filter(None, [cell["verdict"], cell["detail"]]))
        fields = ("what", "claimed", "interval", "outcome")
        judgements.append(
            {
                "verdict": item["verdict"],
                "condition": labels.condition(item["temperature"], item["method"]),
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


def shortened(gaps: Sequence[str]) -> list[str]:
    """Returns the first ten gaps and the number of the others."""
    return [*gaps] if len(gaps) <= 10 else [*gaps[:10], f"and {len(gaps) - 10} more (table below)"]


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
