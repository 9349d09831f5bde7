"""The model card of an exported drafter: target, corpora and licences, training, acceptance lengths, how to serve it.

It says what the artefacts say. What they leave open (where corpora come from, who may use them) comes from the study's
config and from flags, or is said to be open.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from taps.model.family import FAMILIES
from taps.plumbing.artefacts import read_json
from taps.plumbing.errors import TapsError
from taps.plumbing.folder_records import check_folder
from taps.plumbing.kinds import KINDS
from taps.plumbing.lineage import check_made_from
from taps.plumbing.provenance import provenance_of
from taps.study.contents import Config

OF_TABLES = "acceptance_length.csv"
MEAN = "mean"  # the row over all benchmarks
TREE = {"depth": 5, "top_k": 8, "num_draft_tokens": 40}
"""Of the commands on the card, where no study says otherwise."""


def model_card(
    drafter: Path,
    target: Path,
    *,
    flavour: str,
    name: str,
    repo: str,
    token_map: tuple[str, int] | None = None,
    tables: Path | None = None,
    config: Config | None = None,
    licences: Mapping[str, str] | None = None,
) -> str:
    """Returns the card in Markdown.

    Args:
        drafter: Folder of our draft model, not of its export.
        target: Folder of its target.
        flavour: Who is to read the export.
        name: Heading.
        repo: What a server is told: a folder or a Hub repository.
        token_map: (file in `repo`, number of tokens) that SGLang drafts over.
        tables: Folder of a report's tables, for acceptance lengths.
        config: The study, for where target and corpora come from.
        licences: Of `target`, `drafter` and corpora, by name.

    Raises:
        TapsError: tables or config are of another study, or a licence is of nothing here.
    """
    made, licences = provenance_of(drafter, kind="drafter"), dict(licences or {})
    corpora = [name.removeprefix("tokens.") for name in made.get("inputs", {}) if name.startswith("tokens.")]
    check_licences(licences, corpora)
    family = json.loads((drafter / "config.json").read_text(encoding="utf-8")).get("family", "eagle2")
    origins = origins_of(config, drafter, corpora) if config else {}
    budgets, taus = read_taus(tables, made.get("method", family), drafter, target) if tables else ([], [])
    training = drafter / "training.json"
    return (
        jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
        .from_string((resources.files("taps.analysis") / "templates" / "model_card.md").read_text(encoding="utf-8"))
        .render(
            name=name,
            repo=repo,
            flavour=flavour,
            family=FAMILIES.find(family).title,
            base_model=hub_of_target(config),
            target=target_facts(target) | {"origin": origins.get("target")},
            corpora=[{"name": c, "origin": origins.get(c), "licence": licences.get(c)} for c in corpora],
            licences={key: licences.get(key) for key in ("drafter", "target")},
            average=made.get("weights"),
            imported=", ".join(f"{key} {value}" for key, value in made.get("origin", {}).items()),
            training=read_json(training, kind="training") if training.exists() else None,
            training_seed=made.get("training_seed", 0),
            made={key: made.get(key) for key in ("taps", "git")},
            tree=TREE | {key: config["drafting"][key] for key in TREE} if config else TREE,
            budgets=budgets,
            taus=taus,
            vocabulary="Drafted over a draft vocabulary." if "draft_vocab" in made.get("inputs", {}) else "",
            token_map=token_map[0] if token_map else None,
            num_mapped=token_map[1] if token_map else None,
        )
    )


def check_licences(licences: Mapping[str, str], corpora: list[str]) -> None:
    """Checks that every licence is of something on the card.

    Raises:
        TapsError: one is not.
    """
    known = ["target", "drafter", *corpora]
    if unknown := sorted(set(licences) - set(known)):
        raise TapsError("--licence", "of nothing on the card", expected=", ".join(known), found=", ".join(unknown))


def target_facts(target: Path) -> dict[str, Any]:
    """Returns name and digest of what a target was made from, as far as its record tells."""
    record = target / KINDS["target"].record
    source = read_json(record, kind="target").get("source", {}) if record.exists() else {}
    return {"name": source.get("name", target.name), "digest": source.get("digest")}


def hub_of_target(config: Config | None) -> str | None:
    """Returns the Hub repository that a study's target is, if it is one."""
    asset = config["target"]["asset"] if config else None
    return config["assets"][asset].get("hub") if config and asset else None


def origins_of(config: Config, drafter: Path, corpora: list[str]) -> dict[str, str]:
    """Returns where the target and each corpus come from, in words.

    Raises:
        TapsError: the draft model read a corpus that this study does not have.
    """
    if unknown := sorted(set(corpora) - set(config["corpora"])):
        found = ", ".join(unknown)
        raise TapsError(drafter, "trained on corpora of another study", expected="those of --config", found=found)
    origins = {name: _corpus_origin(config, config["corpora"][name]) for name in corpora}
    if asset := config["target"]["asset"]:
        origins["target"] = _asset_origin(config["assets"][asset])
    return origins


def _corpus_origin(config: Config, corpus: Mapping[str, Any]) -> str:
    if not corpus["asset"]:
        return f"generated: reasoning-gym {corpus['task']}, seed {corpus['seed']}"
    words = [f"{corpus['asset']}: {_asset_origin(config['assets'][corpus['asset']])}"]
    if corpus["part"]:
        words.append("part {:g} to {:g}".format(*corpus["part"]))
    if corpus["regenerate"] is not None:
        words.append("answers by the target itself")
    return ", ".join(words)


def _asset_origin(asset: Mapping[str, Any]) -> str:
    if asset.get("hub"):
        return f"{asset['hub']} at {asset['revision']}"
    if asset.get("package"):
        return f"{Path(asset['file']).name} of the package {asset['package']} {asset['version']}"
    return Path(asset["path"]).name


def read_taus(tables: Path, method: str, drafter: Path, target: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """Returns (headings, rows) of a draft model's acceptance lengths: a row per benchmark, a cell per node budget.

    Args:
        tables: Folder of `taps.tables`.
        method: Of the draft model.
        drafter: Its folder, of the name that the tables know it by.
        target: That both must be of.

    Raises:
        TapsError: no such table, of another target, or without this draft model.
    """
    path = tables / OF_TABLES
    check_folder(tables, kind="tables", names=[OF_TABLES])
    check_made_from(tables, {"target": target}, kind="tables")
    try:
        with open(path, encoding="utf-8", newline="") as file:
            read = list(csv.DictReader(file))
    except FileNotFoundError:
        raise TapsError(path, "missing", expected="the tables of a report", remedy="see taps tables --help") from None
    own = [row for row in read if (row["method"], row["strategy"], row["drafters"]) == (method, "single", drafter.name)]
    if not own:
        found = ", ".join(sorted({row["drafters"] for row in read if row["strategy"] == "single"}))
        raise TapsError(path, f"has no row of {method} {drafter.name}", found=found)
    budgets = sorted({int(row["num_draft_tokens"]) for row in own})
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for row in own:
        key = row["benchmark"], row["temperature"]
        facts = {"benchmark": key[0], "temperature": key[1], "questions": row["num_questions"]}
        entry = rows.setdefault(key, facts | {"seeds": row["num_training_seeds"], "cells": ["–"] * len(budgets)})
        tau, low, high = (float(row[name]) for name in ("tau", "tau_low", "tau_high"))
        entry["cells"][budgets.index(int(row["num_draft_tokens"]))] = f"{tau:.2f} [{low:.2f}, {high:.2f}]"
    ordered = sorted(rows.values(), key=lambda row: (float(row["temperature"]), row["benchmark"] == MEAN))
    return [f"τ, {budget} nodes" for budget in budgets], ordered
