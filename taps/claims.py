"""Judges every claim of the paper, and our controls: reproduced, contradicted, undecided, not testable here.

    python -m taps.claims --tables reports/laptop/tables --output reports/laptop/claims

Writes `claims.csv` (one row per claim and condition, with the comparison that decided and the published verdict),
`evidence.csv` (every comparison with its interval and the table rows it was read from), both also as Markdown and
LaTeX, and `claims.json` for the page. How a verdict follows from intervals: `taps.analysis.verdicts`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from taps.analysis.advice import advice
from taps.analysis.answers import answers
from taps.analysis.claims import Claim, Judgement, claims_of, judge_all
from taps.analysis.findings import Findings
from taps.analysis.labels import Labels
from taps.analysis.rendering import NOTHING, Table, format_interval, format_number, in_print, write_table
from taps.analysis.verdicts import IN_WORDS, Outcome, Verdict
from taps.plumbing.artefacts import write_json
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.provenance import provenance

EVIDENCE = [
    *("claim", "temperature", "method", "what", "claimed"),
    *("estimate", "low", "high", "margin", "outcome", "rows"),
]
"""Columns of evidence.csv."""


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.claims", __doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder that the tables stage wrote")
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    found = Findings(args.tables)
    asked, judgements = ask(found)
    by_id = {claim.id: claim for claim in asked}
    write_table(verdict_table(judgements, by_id, found.labels), args.output)
    write_table(evidence_table(judgements), args.output)
    content = {
        "condition": found.labels.condition(*found.main_condition),
        "advice": [asdict(item) for item in advice(found)],
        "answers": [asdict(answer) for answer in answers(asked, judgements, found.labels, found.main_condition)],
        "claims": [
            {
                "id": claim.id,
                "statement": claim.statement,
                "published": list(claim.published),
                "judgements": own,
            }
            for claim in asked
            if (own := [judgement_entry(item) for item in judgements if item.claim == claim.id])
        ],
    }
    made_from = provenance(stage="taps.claims", inputs={"tables": args.tables / "tables.json"})
    write_json(args.output / "claims.json", content, kind="claims", provenance=made_from)
    counts = pd.Series([str(item.verdict) for item in judgements]).value_counts()
    print(f"{args.output}: " + ", ".join(f"{number} {verdict}" for verdict, number in counts.items()))


def ask(found: Findings) -> tuple[list[Claim], list[Judgement]]:
    """Returns the claims that the study is asked, and their judgements.

    A study that repeats the paper's is asked all of its claims; any other one those that it can test.
    """
    asked = claims_of(found.labels)
    judgements = judge_all(asked, found)
    tested = {item.claim for item in judgements if item.verdict != Verdict.NOT_TESTABLE}
    if found.labels.roles.plays_the_paper:
        return asked, judgements
    return [claim for claim in asked if claim.id in tested], [item for item in judgements if item.claim in tested]


def published_verdict(claim: Claim, judgement: Judgement) -> dict[str, Any]:
    """Returns the published numbers' own verdict under the judgement's condition; empty for controls."""
    for cell in claim.published:
        if (cell["temperature"], cell["method"]) == judgement.where:
            return dict(cell)
    return {"verdict": "", "detail": ""}


def verdict_table(judgements: Sequence[Judgement], claims: dict[str, Claim], labels: Labels) -> Table:
    """Returns one row per claim and condition."""
    rows, shown = [], []
    for item in judgements:
        printed = published_verdict(claims[item.claim], item)
        decisive = item.decisive
        outcomes = [evidence.outcome for evidence in item.evidence]
        row: dict[str, Any] = {
            "claim": item.claim,
            "statement": claims[item.claim].statement,
            "temperature": item.where.temperature,
            "method": item.where.method,
            "role": "primary" if item.is_primary else "exploratory",
            "verdict": str(item.verdict),
            "p_value": item.p_value,
            "p_corrected": item.p_corrected,
            "published": printed["verdict"],
            "published_detail": printed["detail"],
            "decisive": decisive.what if decisive else "; ".join(item.gaps),
            "estimate": decisive.interval.estimate if decisive else float("nan"),
            "low": decisive.interval.low if decisive else float("nan"),
            "high": decisive.interval.high if decisive else float("nan"),
            "num_holds": outcomes.count(Outcome.HOLDS),
            "num_fails": outcomes.count(Outcome.FAILS),
            "num_no_effect": outcomes.count(Outcome.NO_EFFECT),
            "num_open": outcomes.count(Outcome.OPEN),
            "num_missing": len(item.gaps),
        }
        rows.append(row)
        shown.append(
            {
                "claim": item.claim,
                "statement": row["statement"],
                "temperature": f"{item.where.temperature:g}",
                "family": labels.method(item.where.method),
                "role": row["role"],
                "verdict": row["verdict"],
                "p, corrected": format_number(item.p_corrected, 4),
                "published": " ".join(filter(None, [printed["verdict"], printed["detail"]])) or NOTHING,
                "decided by": row["decisive"],
                "estimate": format_interval(row["estimate"], row["low"], row["high"]),
                "holds / fails / no effect / open": " / ".join(
                    str(row[f"num_{name}"]) for name in ("holds", "fails", "no_effect", "open")
                ),
            }
        )
    return Table(
        name="claims",
        title="The paper's claims (C), our controls (K) and further questions, judged"
        if labels.roles.plays_the_paper
        else "What this study was asked, judged",
        caption=f"{IN_WORDS} `decided by` names the clearest failure, else the comparison closest to undecided. "
        "`published` is what the published numbers themselves say.",
        frame=pd.DataFrame(rows),
        shown=pd.DataFrame(shown),
    )


def evidence_table(judgements: Sequence[Judgement]) -> Table:
    """Returns one row per comparison."""
    rows = [
        {
            "claim": item.claim,
            "temperature": item.where.temperature,
            "method": item.where.method,
            "what": evidence.what,
            "claimed": str(evidence.direction),
            "estimate": evidence.interval.estimate,
            "low": evidence.interval.low,
            "high": evidence.interval.high,
            "margin": evidence.margin,
            "outcome": str(evidence.outcome),
            "rows": evidence.interval.rows,
        }
        for item in judgements
        for evidence in item.evidence
    ]
    frame = pd.DataFrame(rows, columns=EVIDENCE)  # a study of one drafter may have nothing to compare
    shown = in_print(frame.drop(columns=["low", "high", "rows"]))
    bounds = frame[["estimate", "low", "high"]].itertuples(index=False, name=None)
    return Table(
        name="evidence",
        title="Every comparison behind the verdicts",
        caption="`claimed` is what the claim says of the quantity; `margin` is the half-width of `the same`. The CSV "
        "names the table rows that each was read from.",
        frame=frame,
        shown=shown.assign(estimate=[format_interval(*row) for row in bounds]),
    )


def judgement_entry(item: Judgement) -> dict[str, Any]:
    """Returns what the page needs of a judgement."""
    return {
        "temperature": item.where.temperature,
        "method": item.where.method,
        "verdict": str(item.verdict),
        "role": "primary" if item.is_primary else "exploratory",
        "gaps": item.gaps,
        "evidence": [
            {
                "what": evidence.what,
                "claimed": str(evidence.direction),
                "interval": format_interval(evidence.interval.estimate, evidence.interval.low, evidence.interval.high),
                "outcome": str(evidence.outcome),
                "rows": evidence.interval.rows,
            }
            for evidence in item.evidence
        ],
    }


if __name__ == "__main__":
    run(main)
