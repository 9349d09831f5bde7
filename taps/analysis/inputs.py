"""Tables of what went into a study: corpora, their overlap with benchmarks, training, calibration.

Each reads artefacts of other stages; a study that lacks one simply has no such table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from taps.analysis.rendering import Table, format_count
from taps.plumbing.artefacts import read_json, read_jsonl
from taps.plumbing.provenance import provenance_of
from taps.plumbing.remedies import rebuild_command

Labelled = Sequence[tuple[str, Path]]  # label, path


def facts(drafters: Labelled, cost: Path | None) -> list[tuple[str, str]]:
    """Returns (name, value) lines for the summary of the page: how much was trained, and on which machine."""
    records = [
        read_json(folder / "training.json", kind="training")["own"]
        for _, folder in drafters
        if (folder / "training.json").exists()
    ]
    lines = []
    if records:
        tokens, seconds = (sum(record[name] for record in records) for name in ("num_tokens", "seconds"))
        trained = f"{len(records)} draft models, {format_count(tokens)} tokens read in {seconds / 60:.1f} minutes"
        lines.append(("Training", trained))
    if cost is not None:
        machine = read_json(cost, kind="cost")
        lines.append(("Machine", f"{machine['device']}, {machine['num_threads']} threads, {machine['dtype']}"))
    return lines


def made_by(drafters: Labelled, cost: Path | None) -> list[tuple[str, str]]:
    """Returns (name, value) lines for the page's provenance: versions and commits behind the draft models and times."""
    artefacts = [(folder / "training.json", "training") for _, folder in drafters]
    artefacts += [(cost, "cost")] if cost else []
    made = [provenance_of(path, kind=kind) for path, kind in artefacts if path.exists()]
    versions = {name: version for item in made for name, version in item.get("versions", {}).items()}
    lines = [("Commit of the training and measuring code", sorted({item["git"] for item in made if "git" in item}))]
    lines += [("Versions there", [f"{name} {version}" for name, version in sorted(versions.items())])]
    return [(name, ", ".join(values)) for name, values in lines if values]


def corpora(audits: Labelled) -> Table:
    """Returns one row per source: records read, kept and dropped, with reasons.

    Args:
        audits: Source -> its `.audit.json`.
    """
    rows = []
    for name, path in audits:
        content = read_json(path, kind="audit")
        dropped: dict[str, dict[str, Any]] = content["dropped"]
        reasons = [f"{reason} {entry['count']}" for reason, entry in sorted(dropped.items())]
        rows.append(
            {
                "source": name,
                "origin": content["source"],
                "read": content["read"],
                "kept": content["kept"],
                "dropped": sum(entry["count"] for entry in dropped.values()),
                "reasons": "; ".join(reasons),
                "notes": "; ".join(content["notes"]),
            }
        )
    return Table(
        name="corpora",
        title="Sources: records read, kept and dropped",
        caption="Every record read is kept or dropped for a reason with a code; examples are in the audit files.",
        frame=pd.DataFrame(rows),
    )


def overlap(path: Path) -> Table:
    """Returns how much of each benchmark's prompts stands in each training corpus.

    Args:
        path: The overlap file of `taps.overlap`.
    """
    columns = ["corpus", "benchmark", "num_prompts", "num_too_short", "num_exact", "num_shared", "mean_coverage"]
    return Table(
        name="overlap",
        title="Benchmark prompts in the training corpora",
        caption="Prompts with a turn that is word for word a training turn (exact), or that shares 13 words in a row "
        "with one (shared); coverage is the mean share of a prompt's 13-grams that stand in the corpus.",
        frame=pd.DataFrame(read_json(path, kind="overlap"), columns=columns),
    )


def run_of(label: str) -> dict[str, Any]:
    """Returns method and training seed of e.g. `eagle2/seed0`; a method alone is of seed 0."""
    method, _, seed = label.partition("/seed")
    return {"method": method, "training_seed": int(seed or 0)}


def training(drafters: Labelled) -> tuple[Table, Table]:
    """Returns (summary, curves) of trained draft models.

    Args:
        drafters: `method/seed0/mixture` -> the drafter's folder; one without a training record (an average) is skipped.
    """
    rows: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for label, folder in drafters:
        if not (folder / "training.json").exists():
            continue
        run, _, mixture = label.rpartition("/")
        record = read_json(folder / "training.json", kind="training")
        metrics = read_jsonl(folder / "metrics.jsonl", kind="metrics")
        key = {**run_of(run), "drafters": mixture}
        curves += [{**key, **entry} for entry in metrics]
        last = metrics[-1] if metrics else {}
        rows.append(
            {
                **key,
                "num_epochs": last.get("epoch", math.nan),
                "num_steps": record["num_steps"],
                "num_tokens": record["total"]["num_tokens"],
                "num_supervised": record["num_supervised"],
                "alignment_passes": record["alignment_passes"],
                "teraflop": record["total"]["flops"] / 1e12,
                "seconds": record["total"]["seconds"],
                "tokens_per_s": record["total"]["num_tokens"] / max(record["total"]["seconds"], 1e-9),
                **{
                    name: last.get(name, math.nan)
                    for name in ("validation_value", "validation_top1", "validation_top3")
                },
            }
        )
    caption = (
        "Tokens, operations and seconds include an initial drafter's own training. `validation` values are of the last "
        "epoch, on held-out conversations: SmoothL1 loss per supervised token, share of the target's first and first "
        "three tokens met."
    )
    summary = Table(name="training", title="Training", caption=caption, frame=pd.DataFrame(rows))
    return summary, Table(
        name="training_curves",
        title="Training, epoch by epoch",
        caption="Training losses are means per supervised token; `tau` columns are acceptance lengths on held-out "
        "conversations, by replay.",
        frame=pd.DataFrame(curves),
    )


def calibration(fits: Labelled) -> Table:
    """Returns one row per method and drafter: the fitted temperature, calibration error before and after.

    Args:
        fits: `method/seed0` -> its calibration file.
    """
    rows = [
        {
            **run_of(run),
            "drafters": drafter,
            "inverse_temperature": fit["inverse_temperature"],
            "num_nodes": fit["num_nodes"],
            "error_before": fit["before"]["expected_calibration_error"],
            "error_after": fit["after"]["expected_calibration_error"],
        }
        for run, path in fits
        for drafter, fit in sorted(read_json(path, kind="calibration")["drafters"].items())
    ]
    return Table(
        name="calibration",
        title="Calibration of the drafters' probabilities",
        caption="One inverse temperature per drafter, fitted on held-out conversations (below 1: the drafter is "
        "over-confident). The error is the expected calibration error over nodes that the target judged.",
        frame=pd.DataFrame(rows),
    )


def notes(
    failures: Sequence[tuple[str, str]],
    *,
    drafters: Labelled = (),
    calibrations: Labelled = (),
    choices: Labelled = (),
) -> Table | None:
    """Returns what could not be made, found or fitted, and why; None if there is nothing to say.

    Args:
        failures: File -> the error with which its stage failed.
        drafters: As in `training`; one that was trained and has lost its record is named.
        calibrations: `method/seed0` -> its calibration file.
        choices: Method -> its tuned trees.
    """
    rows = list(failures)
    for label, folder in drafters:
        made = provenance_of(folder, kind="drafter")
        if made.get("stage") == "taps.train" and not (folder / "training.json").exists():
            rows.append((f"training of {label}", f"training.json is missing; {rebuild_command(folder, 'drafter')}"))
    for run, path in calibrations:
        fits = read_json(path, kind="calibration")["drafters"]
        rows += [(f"calibration of {run}/{drafter}", fit["note"]) for drafter, fit in fits.items() if "note" in fit]
    for method, path in choices:
        rows += [(f"tuned trees of {method}", note) for note in read_json(path, kind="tuned").get("notes", [])]
    if not rows:
        return None
    return Table(
        name="notes",
        title="What could not be made, found or fitted",
        caption="The report does without what failed; what could not be fitted is neutral.",
        frame=pd.DataFrame(rows, columns=["part", "note"]),
    )
