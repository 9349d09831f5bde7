"""The five additions of CONTRIBUTING.md, taken from its text: each works, and reruns what the text names."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from taps.faults import ROOT, Reference, Study

pytestmark = pytest.mark.slow

GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
REPORT = {"tabulate", "draw", "judge", "publish", "all"}
SECTIONS = ("A strategy", "A format of prompts", "A draft family", "A measure, and a figure of it", "A claim")


@dataclass(frozen=True)
class Addition:
    """What a section of the guide adds.

    Attributes:
        files: Path in the repository -> text.
        appended: Path -> text to add at its end.
        config: Keys of the study to set.
    """

    files: dict[str, str]
    appended: dict[str, str]
    config: dict[str, Any]

    def apply(self, study: Study) -> None:
        """Adds it to a study's checkout."""
        for name, text in self.files.items():
            (study.checkout / name).write_text(text, encoding="utf-8")
        for name, text in self.appended.items():
            path = study.checkout / name
            path.write_text(f"{path.read_text(encoding='utf-8')}\n\n{text}", encoding="utf-8")
        config = study.checkout / "workflow" / "studies" / "smoke.yaml"
        merged = _merged(yaml.safe_load(config.read_text(encoding="utf-8")), self.config)
        config.write_text(yaml.safe_dump(merged, allow_unicode=True, sort_keys=False), encoding="utf-8")


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    nested = {key: _merged(base[key], value) for key, value in over.items() if isinstance(value, dict) and key in base}
    return {**base, **over, **nested}


def addition(section: str) -> Addition:
    """Returns what a section's code blocks say."""
    text = GUIDE.partition(f"\n### {section}\n")[2].split("\n### ")[0].split("\n## ")[0]
    files, appended, config = {}, {}, {}
    for block in re.findall(r"^```\w+\n(.*?)^```", text, flags=re.M | re.S):
        heading, _, body = block.partition("\n")
        name = heading.removeprefix("# ")
        if name == "study":
            config = yaml.safe_load(body)
        elif name.endswith(" (appended)"):
            appended[name.removesuffix(" (appended)")] = body
        else:
            files[name] = body
    return Addition(files=files, appended=appended, config=config)


@pytest.fixture
def study(finished_smoke: Reference, tmp_path: Path) -> Study:
    """Returns a copy of the finished smoke study with a checkout of its own."""
    copy = Study(tmp_path / "checkout", tmp_path / "study")
    shutil.copytree(finished_smoke.study.checkout, copy.checkout)
    shutil.copytree(finished_smoke.study.folder, copy.folder, symlinks=True)
    copy.run("touch.log", "--touch", "--quiet", "all")  # the code's folder is part of what made it
    assert would_run(copy) == {}
    return copy


def would_run(study: Study) -> dict[str, int]:
    """Returns rule -> jobs that the documented command would run now."""
    study.run("dry.log", "--dry-run", "--quiet", "rules", "all")
    output = study.log("dry.log")
    if "Job stats:" not in output:
        assert "Nothing to be done" in output
        return {}
    counts = dict(re.findall(r"^(\w+) +(\d+)$", output.rsplit("Job stats:", 1)[1], flags=re.M))
    return {rule: int(count) for rule, count in counts.items() if rule != "total"}


def test_a_strategy_reruns_replay_and_what_follows(study: Study) -> None:
    added = addition("A strategy")
    config = yaml.safe_load((study.checkout / "workflow/studies/smoke.yaml").read_text())
    added.config["strategies"]["names"] = [*config["strategies"]["names"], "routed_cautious"]
    Addition(added.files, {}, {}).apply(study)
    assert would_run(study).keys() <= REPORT  # its title and look, which a report prints
    added.apply(study)
    jobs = would_run(study)
    assert {"replay", "tabulate"} <= jobs.keys() <= {"replay", "live_check"} | REPORT
    study.run("run.log")
    table: Any = pd.read_csv(study.folder / "reports/smoke/tables/acceptance_length.csv")
    assert table["strategy"].eq("routed_cautious").any()
    page = (study.folder / "reports/smoke/index.html").read_text()
    assert "routed by least confidence" in page.lower()


def test_a_format_of_prompts_runs_its_benchmark(study: Study) -> None:
    addition("A format of prompts").apply(study)
    jobs = would_run(study)
    assert jobs["prompts"] == 1
    assert jobs["trace"] == jobs["replay"] == 2  # temperatures
    assert jobs.keys() - REPORT <= {"fetch_file", "prompts", "overlap", "trace", "bank", "replay", "live_check"}
    study.run("run.log")
    rows = (study.folder / "results/smoke/prompts/riddles.jsonl").read_text()
    assert "What has hands and cannot clap?" in rows
    table: Any = pd.read_csv(study.folder / "reports/smoke/tables/acceptance_length.csv")
    assert set(table.loc[table["benchmark"] == "riddles", "num_questions"]) == {2}


def test_a_draft_family_trains_its_drafters(study: Study) -> None:
    added = addition("A draft family")
    added.config["methods"]["normed"]["mixtures"] = ["math", "chat"]
    added.apply(study)
    jobs = would_run(study)
    assert jobs["train"] == 2
    assert jobs.keys() - REPORT <= {"train", "average", "bank", "calibrate", "replay", "cost", "live_check"}
    assert jobs["replay"] == 4  # two benchmarks at two temperatures, of the new method alone
    study.run("run.log")
    folder = study.folder / "results/smoke/drafters/normed/seed0/math"
    assert json.loads((folder / "config.json").read_text())["family"] == "normed"
    table: Any = pd.read_csv(study.folder / "reports/smoke/tables/acceptance_length.csv")
    assert table.loc[table["method"] == "normed", "tau"].ge(1).all()
    assert "EAGLE-2, normed" in (study.folder / "reports/smoke/index.html").read_text()


def test_a_measure_and_a_figure_rerun_the_report(study: Study) -> None:
    added = addition("A measure, and a figure of it")
    Addition(added.files, {}, {}).apply(study)
    assert would_run(study).keys() == {"draw", "publish", "all"}
    added.apply(study)
    assert would_run(study).keys() == REPORT
    study.run("run.log")
    table: Any = pd.read_csv(study.folder / "reports/smoke/tables/acceptance_length.csv")
    assert table["accepted_per_cycle"].between(0, table["tau"]).all()
    assert (study.folder / "reports/smoke/figures/accepted.png").stat().st_size > 3000


def test_a_claim_is_judged_and_published(study: Study) -> None:
    addition("A claim").apply(study)
    assert would_run(study).keys() == {"judge", "publish", "all"}
    study.run("run.log")
    table: Any = pd.read_csv(study.folder / "reports/smoke/claims/claims.csv")
    assert table["claim"].eq("double budget gains").sum() == 2


def test_the_guide_has_no_other_additions() -> None:
    text = GUIDE.partition("\n## Five additions\n")[2].split("\n## ")[0]
    assert tuple(re.findall(r"^### (.*)$", text, flags=re.M)) == SECTIONS
    assert all(addition(section).files for section in SECTIONS)


def test_a_help_text_reruns_nothing(study: Study) -> None:
    for path in _with_help(study.checkout):
        path.write_text(re.sub(r'help="', 'help="In other words: ', path.read_text()))
    assert would_run(study) == {}


def _with_help(checkout: Path) -> Iterator[Path]:
    paths = [path for path in (checkout / "taps").glob("*.py") if 'help="' in path.read_text()]
    assert len(paths) > 20
    yield from paths
