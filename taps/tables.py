"""Tabulates a study: every table as CSV, Markdown and LaTeX, from replays alone (no model, no torch).

    python -m taps.tables --replay results/laptop/replays --output reports/laptop/tables

`--replay` takes replay files or folders of them; each file says itself which method, benchmark, temperature and seed it
holds. What a complete study would hold and this one does not is listed in `missing.csv`, and stops nothing. The folder
also gets `tables.json`: captions and printed cells for the page, and the sums per question that its comparison tool
needs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from taps.analysis import best_trees, inputs, results, speeds
from taps.analysis.belonging import check_one_study
from taps.analysis.counted import weights
from taps.analysis.detail_tables import detail_tables
from taps.analysis.every_row import every_row
from taps.analysis.labels import Labels
from taps.analysis.naming import gaps_in_words, in_words
from taps.analysis.published_audit import audit_tables
from taps.analysis.rendering import Table, write_table
from taps.analysis.sample import Sample
from taps.analysis.tables import acceptance_tables
from taps.analysis.target_facts import target_facts
from taps.plumbing.artefacts import write_json
from taps.plumbing.cli import NAMED_PATHS, named_text, run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.folder_records import hashes_of
from taps.plumbing.provenance import provenance
from taps.study.roles import Roles, roles_of_names


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.tables", __doc__)
    parser.add_argument(
        "--replay", type=Path, nargs="+", required=True, metavar="PATH", help="replay files, or folders of them"
    )
    parser.add_argument(
        "--num-draft-tokens", type="nodes", help="node budget of the main tables (default: the replays' own default)"
    )
    parser.add_argument("--roles", metavar="JSON", help="who is who in the study (default: what the names tell)")
    optional = parser.add_argument_group("more tables, each from files of other stages")
    labelled = {**NAMED_PATHS, "default": []}
    optional.add_argument("--audit", metavar="SOURCE=FILE", help="audit of a corpus or benchmark", **labelled)
    optional.add_argument("--drafter", metavar="METHOD/MIXTURE=DIR", help="trained draft model", **labelled)
    optional.add_argument("--calibration", metavar="METHOD=FILE", help="fitted temperatures", **labelled)
    optional.add_argument("--live", metavar="METHOD/BENCHMARK=FILE", help="report of the live check", **labelled)
    optional.add_argument("--tuned", metavar="METHOD=FILE", help="trees tuned for this machine", **labelled)
    optional.add_argument(
        "--failure", type=named_text, action="append", default=[], metavar="FILE=WHY", help="what could not be made"
    )
    optional.add_argument("--overlap", type=Path, metavar="FILE", help="prompts that stand in training corpora")
    optional.add_argument("--target", type=Path, metavar="DIR", help="the target: its name and size on the page")
    optional.add_argument("--cost", type=Path, metavar="FILE", help="measured forward times: adds predicted speeds")
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    files = results.find_replays(args.replay)
    study = check_one_study(
        files,
        calibrations=args.calibration,
        drafters=args.drafter,
        live=args.live,
        cost=args.cost,
        target=args.target,
    )
    cycles = results.load_cycles(files)
    sample = Sample(
        cycles=cycles,
        nodes=results.load_nodes(files),
        num_draft_tokens=args.num_draft_tokens or main_budget(files, cycles),
        labels=Labels(read_roles(args.roles, cycles)),
    )
    index, frames = [], {}
    for section, table in tables_of(sample, files, args):
        named = in_words(table, sample.labels)
        write_table(named, args.output)
        index.append({"section": section, **index_entry(named)})
        frames[table.name] = table.frame
        print(f"{args.output / table.name}.csv: {len(table.frame)} rows")
    facts = [*sample.facts(), *inputs.facts(args.drafter, args.cost)]
    content = {
        "num_draft_tokens": sample.num_draft_tokens,
        "roles": sample.labels.roles.to_json(),
        "facts": facts,
        "target": args.target and target_facts(args.target),
        "made_by": inputs.made_by(args.drafter, args.cost),
        "gaps": gaps_in_words(frames["missing"], sample.labels),
        "every_row": every_row(sample, frames["acceptance_length"]),
        "tables": index,
        "files": hashes_of(args.output, [f"{entry['name']}.csv" for entry in index]),
    }
    causes = study | {str(file.path): file.path for file in files}
    made_from = provenance(stage="taps.tables", inputs=causes)
    write_json(args.output / "tables.json", content, kind="tables", provenance=made_from)
    print(f"{args.output}: {len(index)} tables of {len(files)} replays")


def read_roles(text: str | None, cycles: pd.DataFrame) -> Roles:
    """Returns the roles that a flag holds, else those that the names in the cycles tell.

    Raises:
        TapsError: not what `taps.study.roles` writes.
    """
    if text is None:
        names = {column: list(map(str, cycles[column].unique())) for column in ("method", "benchmark", "drafters")}
        return roles_of_names(methods=names["method"], benchmarks=names["benchmark"], drafters=names["drafters"])
    try:
        return Roles.from_json(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise TapsError(
            "--roles", f"not the roles of a study ({error})", remedy="leave it out, or run the rule"
        ) from None


def expected(text: str | None) -> list[tuple[float, str, str, int, int]] | None:
    """Returns the conditions that the study replays, in the order of `results.CONDITION`; None if it does not say."""
    evaluations = json.loads(text).get("evaluations") if text else None
    if evaluations is None:
        return None
    return [
        (float(temperature), method, benchmark, training_seed, seed)
        for method, training_seed, benchmark, temperature, seed in evaluations
    ]


def main_budget(files: Sequence[results.ReplayFile], cycles: pd.DataFrame) -> int:
    """Returns the study's default node budget: what the replays were told, else the one that most rows have."""
    told = {file.meta["num_draft_tokens"] for file in files if "num_draft_tokens" in file.meta}
    held = weights(cycles).groupby(cycles["num_draft_tokens"]).sum()
    return int(max(told)) if told else int(held.index.to_numpy()[held.to_numpy().argmax()])


def tables_of(
    sample: Sample, files: Sequence[results.ReplayFile], args: argparse.Namespace
) -> Iterator[tuple[str, Table]]:
    """Yields (section of the page, table) in the order of the report."""
    for table in acceptance_tables(sample):
        yield ("main" if table.name.startswith("main_") else "details"), table
    for table in detail_tables(sample):
        yield "details", table
    for table in input_tables(sample, args):
        yield "inputs", table
    for table in audit_tables() if sample.labels.roles.plays_the_paper else ():
        yield "published", table
    yield (
        "provenance",
        Table(
            name="missing",
            title="What this study lacks",
            caption="Combinations that a complete study would hold: every method, benchmark, temperature and seed, "
            "every row on every benchmark, and the evaluated nodes of every replay. Seed -1 stands for all seeds.",
            frame=results.missing(sample.cycles, expected=expected(args.roles), files=files),
        ),
    )
    if found := inputs.notes(args.failure, drafters=args.drafter, calibrations=args.calibration, choices=args.tuned):
        yield "provenance", found
    yield (
        "provenance",
        Table(
            name="sources",
            title="Replay files behind the numbers",
            caption="A cell of a table comes from the file of its temperature, method, benchmark and seeds.",
            frame=results.sources(files),
        ),
    )


def input_tables(sample: Sample, args: argparse.Namespace) -> Iterator[Table]:
    """Yields the tables whose files were given."""
    if args.cost:
        yield from speeds.speed(sample, args.cost)
    if args.live:
        yield speeds.live_check(args.live)
    if args.tuned:
        yield from best_trees.best_trees(sample, args.tuned)
    if args.drafter:
        yield from inputs.training(args.drafter)
    if args.calibration:
        yield inputs.calibration(args.calibration)
    if args.audit:
        yield inputs.corpora(args.audit)
    if args.overlap:
        yield inputs.overlap(args.overlap)


def index_entry(table: Table) -> dict[str, Any]:
    """Returns what the page needs of a table: words, column titles and printed cells."""
    return {
        "name": table.name,
        "title": table.title,
        "caption": table.caption,
        "columns": list(table.shown.columns),
        "rows": table.shown.to_numpy().tolist(),
    }


if __name__ == "__main__":
    run(main)
