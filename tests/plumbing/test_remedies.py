"""Every remedy that an error names exists: stages, flags, keys of a study, commands that make a file again."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from taps.plumbing.code_digest import import_closure
from taps.plumbing.kinds import KINDS
from taps.plumbing.remedies import rebuild_command
from taps.study.schema import SCHEMA

ROOT = Path(__file__).parents[2]
STAGES = sorted(f"taps.{path.stem}" for path in (ROOT / "taps").glob("*.py") if not path.stem.startswith("__"))
STAGES += ["taps.plumbing.lease"]
FILE_ENDINGS = ("json", "jsonl", "jinja", "safetensors", "parquet", "gguf", "bin", "model", "txt", "csv", "yaml", "py")
SECTIONS = yaml.safe_load(SCHEMA.read_text(encoding="utf-8"))["properties"]
COMMON_FLAGS = {"--cores", "--force", "--help"}  # of snakemake; of everybody


class Remedy(NamedTuple):
    """What a user is told to do, `{}` for what is filled in, and the module that says so."""

    module: str
    text: str

    def __str__(self) -> str:
        return f"{self.module}: {self.text}"


def remedies() -> Iterator[Remedy]:
    """Yields every text that the package gives as `remedy=` or `expected=`, or keeps in a variable of such a name."""
    for path in sorted((ROOT / "taps").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            values: list[ast.expr] = []
            if isinstance(node, ast.Call):
                values = [keyword.value for keyword in node.keywords if keyword.arg in ("remedy", "expected")]
            elif isinstance(node, ast.Assign) and re.fullmatch(
                "remedy|hint|expected|_AGAIN|_NO_MEMORY", ast.unparse(node.targets[0])
            ):
                values = [node.value]
            elif isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                values = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "remedy"]
            for value in values:
                yield from (Remedy(module, text) for text in texts(value))
    from taps.plumbing.disk import _WORDS

    yield from (Remedy("taps.plumbing.disk", remedy) for _, remedy in _WORDS.values())


def texts(node: ast.expr) -> Iterator[str]:
    """Yields the texts that an expression may be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)  # type: ignore[misc]
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from texts(value)


ALL = sorted(set(remedies()))


@cache
def flags_of(stage: str) -> frozenset[str]:
    parser = importlib.import_module(stage).build_parser()
    return frozenset(parser._option_string_actions)


@cache
def stages_that_reach(module: str) -> frozenset[str]:
    """Returns the stages during which a module may raise; those that ask the study to check itself stand for all."""
    reached = {stage for stage in STAGES if module in import_closure(stage)}
    return frozenset(reached)


@cache
def keys_of_a_study() -> frozenset[str]:
    """Returns every dotted key of the schema; names that a study chooses are `*`."""
    schema: dict[str, Any] = yaml.safe_load(SCHEMA.read_text(encoding="utf-8"))
    found: set[str] = set()

    def visit(part: dict[str, Any], key: str) -> None:
        if "$ref" in part:
            part = {**schema["$defs"][part["$ref"].rsplit("/", 1)[1]], **part}
        found.add(key)
        for name, inner in part.get("properties", {}).items():
            visit(inner, f"{key}.{name}" if key else name)
        if isinstance(inner := part.get("additionalProperties"), dict):
            visit(inner, f"{key}.*")

    visit(schema, "")
    return frozenset(found)


def is_key(text: str) -> bool:
    patterns = (re.escape(key).replace(r"\*", r"[a-z0-9_]+") for key in keys_of_a_study())
    return any(re.fullmatch(pattern, text) for pattern in patterns)


def test_there_are_remedies_and_wrong_ones_would_be_seen() -> None:
    assert len(ALL) > 60
    for text in ("set features.mode to online", "use --no-such-flag", "run python -m taps.nothing"):
        with pytest.raises(AssertionError):
            test_a_remedy_exists(Remedy("taps.features", text))


@pytest.mark.parametrize("remedy", ALL, ids=str)
def test_a_remedy_exists(remedy: Remedy) -> None:
    named = re.findall(r"\btaps(?:\.[a-z_]+)+", remedy.text)
    for module in named:
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").exists(), module
    stages = {name for name in named if name in STAGES} | stages_that_reach(remedy.module)
    assert stages or remedy.module == "taps.__main__", "no stage says this"
    for flag in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", remedy.text):
        assert flag in COMMON_FLAGS or any(flag in flags_of(stage) for stage in stages), f"{flag} of {stages}"
    for key in re.findall(r"(?<![\w./-])[a-z_]+(?:\.[a-z_]+)+", remedy.text):
        if key.split(".")[0] in SECTIONS and key.rsplit(".", 1)[1] not in FILE_ENDINGS:
            assert is_key(key), f"no such key of a study: {key}"
    for key, value in re.findall(r"\b([a-z_]+): ([a-z_]+) in the study", remedy.text):
        assert value in SECTIONS[key].get("enum", [])


# --- making an artefact again ----------------------------------------------------------------------------------------

IN_SMOKE = {
    "corpus": "corpora/math.jsonl",
    "audit": "corpora/math.audit.json",
    "prompts": "prompts/mt_bench.jsonl",
    "overlap": "overlap.json",
    "tokens": "tokens/math.safetensors",
    "draft_vocab": "draft_vocab.safetensors",
    "mixture": "mixtures/math.json",
    "target": "target/config.json",
    "features": "features/math/manifest.json",
    "feature_shard": "features/math/shard-00000-of-00001.safetensors",
    "drafter": "drafters/eagle2/seed0/math/model.safetensors",
    "training": "drafters/eagle2/seed0/math/training.json",
    "metrics": "drafters/eagle2/seed0/math/metrics.jsonl",
    "trace": "traces/mt_bench/t0_s0.safetensors",
    "bank": "banks/eagle2/seed0/math/mt_bench/t0_s0.safetensors",
    "replay": "replays/eagle2/seed0/mt_bench/t0_s0.parquet",
    "replay_nodes": "replays/eagle2/seed0/mt_bench/t0_s0.nodes.parquet",
    "cost": "cost.json",
    "tables": "tables/tables.json",
    "figures": "figures/figures.json",
    "claims": "claims/claims.json",
}


def command_for(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the remedy for an artefact of the smoke study, as words; it lies where the study has it."""
    place = "reports" if kind in ("tables", "figures", "claims") else "results"
    path = Path(place) / "smoke" / IN_SMOKE[kind]
    if KINDS[kind].record or kind in ("feature_shard", "training", "metrics"):
        record = (folder / path).with_name(KINDS[kind].record or KINDS["drafter"].record)
        record.parent.mkdir(parents=True, exist_ok=True)
        record.touch()
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("TAPS_SNAKEMAKE_OPTIONS")
    text = rebuild_command(path, kind)
    assert text.startswith("rebuild it with: snakemake --cores 1 --force ")
    return text.removeprefix("rebuild it with: ").split()


@pytest.mark.slow
def test_the_command_that_makes_an_artefact_again_is_one_that_snakemake_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = []
    for kind in IN_SMOKE:
        with monkeypatch.context() as patch:
            *_, target = command_for(kind, tmp_path / "made", patch)
        targets.append(target)
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--directory", tmp_path / "study"]
    command += ["--replace-workflow-config", "--configfile", ROOT / "workflow" / "studies" / "smoke.yaml"]
    (tmp_path / "study").mkdir()
    done = subprocess.run(
        [*map(str, command), "--cores", "1", "--dry-run", "--quiet", "all", "--force", *sorted(set(targets))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("kind", KINDS)
def test_outside_the_workflow_the_stage_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """`snakemake --force p8.jsonl` is no remedy: Snakemake knows no such file."""
    monkeypatch.delenv("TAPS_SNAKEMAKE_OPTIONS")
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / "p8.jsonl", Path("p8.jsonl"), Path("/elsewhere/results/x.json"), Path("my/results/x.json")):
        text = rebuild_command(path, kind)
        assert text == f"make it again with: {' or '.join(f'python -m {stage}' for stage in KINDS[kind].stages)}"
    assert rebuild_command(Path("p8.jsonl")) == "make it again"
