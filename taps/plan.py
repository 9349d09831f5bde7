"""What a study will cost, before it runs: jobs per rule, disk by artefact, operations, device hours, and what is short.

    python -m taps.plan --snakefile Snakefile --config workflow/studies/paper.yaml --output reports/paper/plan.json

Jobs come from a dry run in an empty folder, so they are exact. Disk and operations come from shapes and from the
expectations under `plan:` in the study (tokens per row, per answer), so they are as good as those. Operations count a
multiplication and an addition apart; hours are operations over the sustained rates that the study gives per device, or
those of reading a training's features where these are more. Memory of each rule comes from shapes as well.

Beside ours stands the original procedure: it decodes every row of every table with the target in the loop, and
computes the features of each mixture anew.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taps.plumbing.artefacts import write_json
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.provenance import provenance
from taps.study.budget import hours, original_work, reading_hours, study_disk, study_work
from taps.study.config import read, validate
from taps.study.needs import needs


def free_bytes(folder: Path) -> int:
    """Returns the free space of the file system that `folder` is, or will be, on."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


# --- jobs ------------------------------------------------------------------------------------------------------------


def jobs_per_rule(snakefile: Path, files: Sequence[Path]) -> dict[str, int]:
    """Returns rule -> jobs of the whole study, from a dry run in an empty folder.

    Raises:
        TapsError: the dry run failed; its last line says why.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "snakemake",
            "--snakefile",
            snakefile,
            "--directory",
            folder,
            "--dry-run",
            "all",
        ]
        command += [
            "--quiet",
            "rules",
            "--replace-workflow-config",
            "--configfile",
            *(file.resolve() for file in files),
        ]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    if done.returncode or "Job stats:" not in output:
        last = output.strip().splitlines()[-1] if output.strip() else "no output"
        raise TapsError(snakefile, "the dry run failed", found=last.removeprefix("error: "))
    table = output.rsplit("Job stats:", 1)[1].split("\n\n")[0]
    counts = {rule: int(count) for rule, count in re.findall(r"^(\w+) +(\d+)$", table, flags=re.MULTILINE)}
    return {rule: count for rule, count in counts.items() if rule not in ("all", "total")}


# --- the report ------------------------------------------------------------------------------------------------------


def as_text(plan: Mapping[str, Any]) -> str:
    """Returns the plan as Markdown."""
    lines = [f"# Plan of the study {plan['study']}", "", "| rule | jobs |", "|---|---:|"]
    lines += [f"| {rule} | {count:,} |" for rule, count in plan["jobs"].items()]
    lines += [f"| all | {sum(plan['jobs'].values()):,} |", "", "| artefact | GB |", "|---|---:|"]
    lines += [f"| {name} | {size / 1e9:,.1f} |" for name, size in plan["disk_bytes"].items() if size]
    total = sum(plan["disk_bytes"].values())
    lines += [f"| all | {total / 1e9:,.1f} |", f"| free here | {plan['free_bytes'] / 1e9:,.1f} |", ""]
    devices = list(plan["devices"])
    lines += [f"| operations (10^15) | model | ours | original |{''.join(f' ours, {name} h |' for name in devices)}"]
    lines += ["|---|---|---:|---:|" + "---:|" * len(devices)]
    for stage, model, ours, theirs, spent in plan["work"]:
        cells = "".join(f" {spent[name]:,.1f} |" for name in devices)
        lines.append(f"| {stage} | {model} | {ours / 1e15:,.2f} | {theirs / 1e15:,.2f} |{cells}")
    for name, cost in plan["devices"].items():
        lines += ["", f"{name}: {cost['ours_h']:,.1f} device hours; the original procedure {cost['original_h']:,.1f}."]
        if cost["reading_h"]:
            lines[-1] += f" Training reads features for {cost['reading_h']:,.1f} of them, beside its computing."
    lines += ["", "| rule | memory, GB | of each device, GB | devices |", "|---|---:|---:|---:|"]
    for rule, (host_mb, device_gb, gpus) in plan["needs"].items():
        device = f"{device_gb:,.1f}" if device_gb else ""
        lines.append(f"| {rule} | {host_mb / 1e3:,.1f} | {device} | {gpus or ''} |")
    if total > plan["free_bytes"]:
        lines += ["", f"WARNING: needs {total / 1e9:,.1f} GB, {plan['free_bytes'] / 1e9:,.1f} GB are free here."]
    return "\n".join(lines) + "\n"


def make_plan(config: Mapping[str, Any], jobs: Mapping[str, int], free: int) -> dict[str, Any]:
    """Returns the plan as plain data: jobs, disk_bytes, free_bytes, work (stage by stage), devices, needs by rule."""
    ours, theirs = study_work(config), original_work(config)
    rates = config["plan"]["devices"]
    work = []
    for stage, model in dict.fromkeys((item.stage, item.model) for item in [*ours, *theirs]):
        mine = [item for item in ours if (item.stage, item.model) == (stage, model)]
        other = [item for item in theirs if (item.stage, item.model) == (stage, model)]
        spent = {name: hours(mine, rate) for name, rate in rates.items()}
        work.append([stage, model, sum(item.flops for item in mine), sum(item.flops for item in other), spent])
    devices = {
        name: {
            "ours_h": hours(ours, rate),
            "original_h": hours(theirs, rate),
            "reading_h": reading_hours(ours, rate),
        }
        for name, rate in rates.items()
    }
    memory = {rule: (need.host_mb, need.device_gb, need.gpus) for rule, need in needs(config).items() if rule in jobs}
    return {
        "study": config["study"],
        "jobs": dict(jobs),
        "disk_bytes": study_disk(config),
        "free_bytes": free,
        "work": work,
        "devices": devices,
        "needs": memory,
    }


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.plan", __doc__)
    parser.add_argument("--snakefile", type=Path, required=True, help="the workflow")
    parser.add_argument(
        "--config", type=Path, nargs="+", required=True, help="study; later files override earlier ones"
    )
    parser.add_argument("--output", type=Path, required=True, help="plan to write (.json)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    name = " + ".join(map(str, args.config))
    config = validate(read(args.config), file=name, root=args.snakefile.resolve().parent)
    if config["plan"] is None:
        raise TapsError(f"{name}: plan", "missing", expected="what to plan with: target_shape, tokens_per_row, ...")
    plan = make_plan(config, jobs_per_rule(args.snakefile, args.config), free_bytes(args.output.parent))
    write_json(args.output, plan, kind="plan", provenance=provenance(stage="taps.plan"))
    print(as_text(plan), end="")


if __name__ == "__main__":
    run(main)
