"""The workflow as a user sees it: snakemake in a process of its own, on a checkout of its own where code is edited."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from taps.study.config import read, validate
from taps.study.contents import drafters_at, drafters_of, evaluations, texts, training_seeds

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SMOKE = ROOT / "workflow" / "studies" / "smoke.yaml"
RULES = sorted([*(ROOT / "workflow" / "rules").glob("*.smk"), ROOT / "Snakefile"])


def snakemake(
    folder: Path, *options: object, root: Path = ROOT, config: Path | None = SMOKE, fails: bool = False
) -> str:
    """Returns what a run in `folder` prints (stdout and stderr together)."""
    command = [BIN / "snakemake", "--snakefile", root / "Snakefile", "--directory", folder, "--cores", "2"]
    if config:
        command += ["--replace-workflow-config", "--configfile", config]
    # options last, after a flag that takes one value: --configfile would swallow targets
    command += ["--printshellcmds", *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    text = done.stdout + done.stderr
    assert (done.returncode != 0) is fails, text
    return text


def jobs(output: str) -> dict[str, int]:
    """Returns the job counts of a dry run's table; empty if there is nothing to be done."""
    if "Job stats:" not in output:
        assert "Nothing to be done" in output, output
        return {}
    table = output.rsplit("Job stats:", 1)[1].split("\n\n")[0]
    counts = dict(re.findall(r"^(\w+) +(\d+)$", table, flags=re.MULTILINE))
    counts.pop("total")
    return {rule: int(count) for rule, count in counts.items()}


def edited_config(folder: Path, edits: dict[str, object], base: Path = SMOKE) -> Path:
    """Returns a copy of a study with some keys (`a.b.c`) set."""
    config = yaml.safe_load(base.read_text())
    for path, value in edits.items():
        *parents, last = path.split(".")
        place = config
        for key in parents:
            place = place[key]
        place[last] = value
    copy = folder / "study.yaml"
    copy.write_text(yaml.safe_dump(config, allow_unicode=True))
    return copy


def test_lint_is_clean() -> None:
    done = subprocess.run([BIN / "snakemake", "--lint"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "good condition" in done.stdout + done.stderr


def test_every_value_in_a_shell_command_is_quoted() -> None:
    for path in RULES:
        for block in re.findall(r'shell:\s+("""(?:.*?)"""|"[^"]*")', path.read_text(), flags=re.DOTALL):
            fields = re.findall(r"(?<!\{)\{([^{}]+)\}(?!\})", block)
            assert fields
            unquoted = [field for field in fields if not field.endswith(":q")]
            assert unquoted == [], path


def test_every_rule_says_what_it_does_and_keeps_a_log() -> None:
    for path in RULES:
        for name, body in re.findall(r"^ *rule (\w+):\n(.*?)(?=^ *rule |\Z)", path.read_text(), flags=re.M | re.S):
            assert body.lstrip().startswith('"""'), name
            assert "run:" not in body, name
            if "shell:" in body:
                assert "log:" in body, name
                assert "conda:" in body, name
            if "python -m" in body:
                assert re.search(r"code=(code_digest\(|\w+\.\w*code\(|ask\(\w+\.\w*code,)", body), name


def test_dry_run_of_the_laptop_study(tmp_path: Path) -> None:
    counts = jobs(snakemake(tmp_path, "--dry-run", "--quiet", "rules", config=None))
    config = validate(read([ROOT / "config.yaml"]), root=ROOT)
    replays = evaluations(config)
    banks = {
        (item, drafter)
        for item in replays
        for drafter in drafters_at(config, item.method, item.training_seed, float(item.temperature))
    }
    assert counts["corpus"] == counts["features"] == counts["heldout"] == len(config["corpora"])
    assert counts["trace"] == len(texts(config)) + len(config["corpora"])
    assert counts["replay"] == len(replays)
    trained = sum(len(drafters_of(config, name)) * len(training_seeds(config, name)) for name in config["methods"])
    assert counts["train"] == trained
    calibrated = counts["bank"] - len(banks)
    assert calibrated % len(config["corpora"]) == 0


def test_no_path_variable_reaches_a_command(tmp_path: Path) -> None:
    for config in (None, SMOKE):
        commands = [line for line in snakemake(tmp_path, "--dry-run", config=config).splitlines() if "python" in line]
        assert len(commands) > 50
        assert not [line for line in commands if "<results>" in line or "<reports>" in line or "<logs>" in line]


def test_dry_run_of_the_paper_study(tmp_path: Path) -> None:
    counts = jobs(snakemake(tmp_path, "--dry-run", "--quiet", "rules", config=ROOT / "workflow/studies/paper.yaml"))
    expected = {"fetch_file": 6, "fetch_folder": 1, "features": 16, "join_features": 2, "mixture": 4}
    # 2 families x 4 mixtures + 2 controls x 2; 2 sweeps of 9 weights + 1; 4 benchmarks x (1 + 3 seeds)
    # + 2 held-out, traces in 4 parts; the controls at temperature 0 only
    expected |= {"train": 12, "average": 19, "trace": 72, "join_traces": 18, "replay": 40, "calibrate": 2, "bank": 252}
    assert {rule: counts[rule] for rule in expected} == expected


@pytest.mark.parametrize(
    ("edits", "parts"),
    [
        ({"benchmraks": {}}, ["benchmraks: unknown key", "did you mean benchmarks?"]),
        ({"benchmarks.mt_bench.reader": "mtbench"}, ["benchmarks.mt_bench.reader", "did you mean mt_bench?"]),
        ({"assets.chat.path": "no/such/file.json"}, ["assets.chat.path: no such file", "no/such/file.json"]),
        ({"training.learning_rate": "3e-5"}, ["training.learning_rate", "write 3.0e-5"]),
        ({"assets.chat.path": "a {study} b"}, ["assets.chat.path: not allowed", "a path without { } < >"]),
        ({"study": "a; touch pwned"}, ["study: not allowed", "lower-case letters"]),
    ],
    ids=["unknown key", "unknown benchmark", "missing file", "text number", "braces", "study name"],
)
def test_a_bad_config_is_one_clear_line(tmp_path: Path, edits: dict[str, object], parts: list[str]) -> None:
    config = edited_config(tmp_path, edits)
    lines = [line for line in snakemake(tmp_path, "--dry-run", config=config, fails=True).splitlines() if line]
    assert [line for line in lines if not line.startswith(("Using ", "Config file "))] == lines[-1:]
    assert lines[-1].startswith("error: ")
    assert "study.yaml: " in lines[-1]
    assert [part for part in parts if part not in lines[-1]] == []


def test_the_released_checkpoints_need_their_revisions(tmp_path: Path) -> None:
    output = snakemake(tmp_path, "-n", config=ROOT / "workflow/studies/paper_pretrained.yaml", fails=True)
    assert "assets.eagle2_math.revision: missing, needed beside hub, expected the repository's commit" in output


HOSTILE = [
    "; touch pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "a 'b' \"c\" d",
    "naïve 数据 ‮",
    "-rf *",
    "& touch pwned",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_config_values_never_reach_a_shell_unquoted(tmp_path: Path, name: str) -> None:
    source = tmp_path / "in" / f"{name}.json"
    source.parent.mkdir()
    source.write_text('[{"id": "a", "conversations": []}]')
    config = edited_config(tmp_path, {"assets.chat.path": str(source)})
    folder = tmp_path / "run"
    snakemake(folder, f"resources/chat/{name}.json", config=config)
    assert (folder / "resources" / "chat" / f"{name}.json").read_text() == source.read_text()
    assert not list(tmp_path.rglob("pwned"))


def test_a_task_name_is_an_argument_not_a_command(tmp_path: Path) -> None:
    config = edited_config(tmp_path, {"corpora.math.task": "x; touch pwned"})
    output = snakemake(tmp_path, "results/smoke/corpora/math.jsonl", config=config, fails=True)
    assert len(re.findall(r"^error: .*$", output, flags=re.M)) == 1
    assert not list(tmp_path.rglob("pwned"))


def test_a_study_is_run_by_one_snakemake_at_a_time(tmp_path: Path) -> None:
    from taps.plumbing.lease import hold_file

    with hold_file(tmp_path / "results" / "smoke" / ".lock", what="the study smoke"):
        output = snakemake(tmp_path, "results/smoke/corpora/math.jsonl", fails=True)
        assert re.search(r"^error: .*the study smoke is in use by process \d+; wait for it to end", output, flags=re.M)
        assert not (tmp_path / "results" / "smoke" / "corpora").exists()
        snakemake(tmp_path, "--dry-run")  # looking is allowed
