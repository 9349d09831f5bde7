"""What is committed: reports within their size, and prose that names only what is there."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from taps import __version__

ROOT = Path(__file__).parents[2]
KEPT = {".csv", ".md", ".json", ".png", ".html"}
BOILERPLATE = re.compile(
    r"^runs the stage|the command line of this stage|returns nothing|main function|entry point of the|this function|"
    r"this method|this class|helper function|fixme",
    flags=re.IGNORECASE | re.MULTILINE,
)
SOURCES = [path for folder in ("taps", "tests") for path in sorted((ROOT / folder).rglob("*.py"))]


def committed(folder: str = ".") -> list[Path]:
    """Returns the files that git tracks below a folder of the repository."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    found = subprocess.run(
        ["git", "ls-files", "-z", folder], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    return [path for name in found if name and (path := ROOT / name).exists()]


def test_reports_stay_small() -> None:
    assert sum(path.stat().st_size for path in committed("reports")) < 3_000_000


def test_a_page_stays_small_without_its_images() -> None:
    pages = [path for path in committed("reports") if path.suffix == ".html"]
    assert pages
    for page in pages:
        text = re.sub(r"data:image/[\w+]+;base64,[\w+/=]+", "", page.read_text(encoding="utf-8"))
        assert len(text.encode()) < 1_000_000, page


def test_tables_are_committed_in_one_form_for_machines_and_one_for_people() -> None:
    reports = committed("reports")
    assert {path.suffix for path in reports} <= KEPT
    for path in reports:
        if path.suffix == ".json" and path.parent.name == "tables":
            assert path.stat().st_size < 20_000, f"{path}: the CSV files hold these cells"
    linked = {
        (page.parent / link).resolve()
        for page in reports
        if page.suffix == ".html"
        for link in re.findall(r'href="([^":]+\.csv)"', page.read_text(encoding="utf-8"))
    }
    assert linked
    assert linked <= {path.resolve() for path in reports}
    for table in (path for path in reports if path.suffix == ".csv"):
        assert table.resolve() in linked or table.with_suffix(".md") in reports, table


def test_versions_agree() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    (version, day), *_ = re.findall(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert citation["version"] == version == __version__
    assert str(citation["date-released"]) == day


def test_formatters_of_a_commit_are_those_of_the_environment() -> None:
    locked = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE))
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    for tool, repository in (("ruff", "astral-sh/ruff-pre-commit"), ("snakefmt", "snakemake/snakefmt")):
        (found,) = [item["rev"] for item in hooks if item["repo"].endswith(repository)]
        assert found == f"v{locked[tool]}"


def test_public_ci_runs_what_ci_runs() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    assert ".ci/run" in [step.get("run") for job in jobs.values() for step in job["steps"]]
    assert (ROOT / ".ci/run").stat().st_mode & 0o100


def docstrings(path: Path) -> Iterator[str]:
    """Yields all docstrings of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("folder", ["taps", "tests"])
def test_docstrings_say_something(folder: str) -> None:
    paths = [path for path in SOURCES if path.is_relative_to(ROOT / folder)]
    found = {
        path.name: match.group() for path in paths for text in docstrings(path) if (match := BOILERPLATE.search(text))
    }
    assert found == {}


def test_arguments_are_told_in_more_than_their_shape() -> None:
    bare = re.compile(r"^ {4}\w+: ([A-Za-z]|(int|float|bool)\d*( \[[^]]*\])?|\[[^]]*\]|Its?|How much|Where|Who)\.$")
    paths = [path for path in SOURCES if path.is_relative_to(ROOT / "taps")]
    lines = [(path.name, line) for path in paths for text in docstrings(path) for line in text.splitlines()]
    assert [(name, line) for name, line in lines if bare.match(line)] == []


def outputs() -> list[re.Pattern[str]]:
    """Returns the patterns of what the laptop study's rules write below results/laptop."""
    rules = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "workflow" / "rules").glob("*.smk"))
    written = re.findall(r'"(?:<results>|results/\{STUDY\})/([^"]+)"', rules)
    assert len(written) > 20
    return [re.compile(re.sub(r"(\\\{)+\w+(\\\})+", "[^/]+", re.escape(name))) for name in written]


@pytest.mark.parametrize("path", sorted((ROOT / "taps").glob("*.py")), ids=lambda path: path.stem)
def test_a_stage_s_example_names_files_of_the_laptop_study(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    for name in re.findall(r"(?<!cd )results/laptop/([\w./]*\w)", text):
        written = any(
            pattern.fullmatch(name) or pattern.fullmatch(f"{name}/x/seed0/x/t0_s0.parquet") for pattern in outputs()
        )
        assert written, f"no rule writes results/laptop/{name}"


def test_prose_names_files_that_exist() -> None:
    added = re.compile(r"^```\w+\n# [^\n]*\n.*?^```", flags=re.MULTILINE | re.DOTALL)  # what a reader is to write
    for path in committed():
        if path.suffix not in {".py", ".md", ".smk", ".yaml", ".toml", ""} or path.is_relative_to(ROOT / "reports"):
            continue
        text = added.sub("", path.read_text(encoding="utf-8"))
        for name in re.findall(r"\b((?:taps|tests|workflow|docs|profiles|envs)/[\w./-]+\.(?:py|ya?ml|smk|md))\b", text):
            assert (ROOT / name).exists(), f"{path.relative_to(ROOT)} names {name}"
