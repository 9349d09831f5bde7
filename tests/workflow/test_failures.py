"""A study with an impossible condition: it costs its rows, which the report names, and the screen says how to go on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
import yaml

from taps.plumbing.artefacts import read_json

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
IMPOSSIBLE = "results/small/traces/impossible/t0_s0.safetensors"


class Run(NamedTuple):
    """A finished run: where, with which status, and what was on its screen."""

    folder: Path
    status: int
    screen: list[str]


def small_study(folder: Path) -> dict[str, Any]:
    """Returns the smoke study cut down to one drafter, with a benchmark whose prompts are longer than any context."""
    config = yaml.safe_load((ROOT / "workflow/studies/smoke.yaml").read_text())
    prompts = [{"question_id": place, "category": "writing", "turns": ["word " * 5000]} for place in range(2)]
    (folder / "long.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
    config |= {"study": "small", "mixtures": {"math": {"math": 1.0}}, "training": {"epochs": 1, "batch_size": 4}}
    config["target"]["tiny"]["steps"] = 20
    config["assets"] = {"long": {"path": str(folder / "long.jsonl")}}
    del config["corpora"]["chat"], config["benchmarks"]["mt_bench"], config["averaging"]
    config["benchmarks"]["impossible"] = {
        "reader": "question_jsonl",
        "assets": ["long"],
        "num_prompts": 2,
        "max_new_tokens": 8,
    }
    config["evaluation"] = {"sampling": [{"temperature": 0, "seeds": [0]}], "batch_size": 4, "live": None}
    config["strategies"] = {"names": ["single", "single_double"]}
    return config


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Returns a run of it."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "study.yaml").write_text(yaml.safe_dump(small_study(folder)))
    command = [Path(sys.executable).parent / "snakemake", "all", "--snakefile", ROOT / "Snakefile", "--cores", "2"]
    command += ["--directory", folder, "--replace-workflow-config", "--configfile", folder / "study.yaml"]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return Run(folder, done.returncode, done.stdout.splitlines())


def test_the_run_fails_and_makes_all_that_it_can(run: Run) -> None:
    assert run.status == 1
    assert not (run.folder / IMPOSSIBLE).exists()
    assert len(list((run.folder / "results/small/replays").rglob("t0_s0.parquet"))) == 1
    assert (run.folder / "reports/small/index.html").is_file(), "\n".join(run.screen)


def test_the_report_names_what_it_lacks_and_why(run: Run) -> None:
    missing: Any = pd.read_csv(run.folder / "reports/small/tables/missing.csv")
    assert missing[["benchmark", "what"]].to_numpy().tolist() == [["impossible", "not replayed"]]
    notes: Any = pd.read_csv(run.folder / "reports/small/tables/notes.csv")
    why = notes.set_index("part")["note"]
    assert "no prompt fits the target's context" in why[IMPOSSIBLE]
    assert "no prompt fits the target" in (run.folder / "reports/small/index.html").read_text()


def test_the_screen_says_what_is_run_what_came_out_and_how_to_go_on(run: Run) -> None:
    screen = [line for line in run.screen if not line.startswith("Using workflow specific profile")]
    found = re.fullmatch(r"Study small: (\d+) jobs on 2 cores.*", screen[0])
    assert found
    assert screen[1].endswith(f"the report will be {run.folder}/reports/small/index.html")
    finished = [line for line in screen if re.match(r" *\d+/\d+  ", line)]
    corpus = next(line for line in finished if "  corpus math: " in line)
    assert re.search(r"read 60, kept 60 \(\d+ (s|min)\)$", corpus)
    record = read_json(run.folder / "results/small/corpora/math.audit.json", kind="audit")
    assert record["kept"] == 60
    last = screen[-8:]
    num_done = len(finished)
    # of the rest, one failed and the others needed it
    assert f"Study small: {num_done} of {found[1]} jobs done in" in last[0], screen
    assert f"1 failed, {int(found[1]) - num_done - 1} that need it were not started." in last[0]
    assert last[1] == f"The report without them: {run.folder}/reports/small/index.html"
    assert last[3] == "FAILED  trace impossible/t0_s0"
    assert last[4].startswith("error: ")
    assert "no prompt fits the target's context" in last[4]
    log = Path(last[5].removeprefix("log: "))
    assert last[4] in log.read_text()
    assert last[-1].startswith("How to go on: ")
    noise = [line for line in screen if re.search(r"reason:|resources:|jobid|CalledProcessError|\r", line)]
    assert noise == []


def test_the_same_command_then_wants_only_what_is_lacking(run: Run) -> None:
    command = [Path(sys.executable).parent / "snakemake", "all", "--snakefile", ROOT / "Snakefile", "--dry-run"]
    command += ["--directory", run.folder, "--replace-workflow-config", "--configfile", run.folder / "study.yaml"]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0
    jobs = {line.split(":")[0] for line in done.stdout.splitlines() if re.match(r"[a-z_]+( \S+)?: \w", line)}
    assert {job for job in jobs if "impossible" in job} == {
        "trace impossible/t0_s0",
        "bank eagle2/seed0/math/impossible/t0_s0",
        "replay eagle2/seed0/impossible/t0_s0",
    }
    assert {job.split()[0] for job in jobs} - {"all"} == {
        "trace", "bank", "replay", "tabulate", "draw", "judge", "publish"
    }  # fmt: skip
