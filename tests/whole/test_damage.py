"""Whatever befalls an artefact, the stage that reads it names it and stops, in one line.

The matrix follows from the catalogue of kinds: every kind that a stage reads, file by file, against every damage.
"""

from __future__ import annotations

import ast
import contextlib
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from taps.plumbing.cli import run
from taps.plumbing.envelopes import sidecar_of
from taps.plumbing.kinds import KINDS, Shape
from taps.plumbing.lineage import inputs_of
from tests.support.artefact_studies import UNREAD, USES, Study, Use

PACKAGE = Path(__file__).parents[2] / "taps"
ROOTS = {
    "asset": "what it should be is said by --sha256 alone, which taps.fetch has compared",
    "prompts": "nothing that the trace is made from was made from them",
    "audit": "printed under the name that its flag gives",
    "overlap": "printed under the names in it",
}
"""Kinds of which another study's file is as good as any: no other input of their readers depends on them."""

OTHER_KIND = {
    ".safetensors": "draft_vocab.safetensors",
    ".jsonl": "heldout.jsonl",
    ".json": "overlap.json",
    ".parquet": "replays/t0_s0.nodes.parquet",
    ".csv": "tables/tables.json",
    ".png": "tables/tables.json",
}
"""Suffix -> a file to put in the place of another."""


def other_kind(path: str) -> str:
    """Returns a file of another kind that may be mistaken for one."""
    stand_in = OTHER_KIND[Path(path).suffix]
    if path in (stand_in, "prompts.jsonl"):  # held-out prompts are prompts
        return {".safetensors": "tokens/math.safetensors", ".json": "cost.json"}.get(
            Path(path).suffix, "corpora/math.jsonl"
        )
    return "replays/t0_s0.parquet" if path.endswith(".nodes.parquet") else stand_in


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


DAMAGES = ("flipped", "truncated", "empty", "other kind", "other study")
CHANGES = {"flipped": flipped, "truncated": lambda data: data[: len(data) // 2], "empty": lambda data: b""}


@contextlib.contextmanager
def damaged(study: Study, other: Study, path: str, how: str) -> Iterator[Path]:
    """Damages a file of a study, with the sidecar where another file takes its place; yields it and mends it."""
    victim = study.folder / path
    files = [file for file in (victim, sidecar_of(victim)) if file.exists()]
    whole = {file: (file.read_bytes(), file.stat()) for file in files}
    for file in files:
        file.unlink()  # it may be linked to another
        file.write_bytes(whole[file][0])
    if how in CHANGES:
        victim.write_bytes(CHANGES[how](whole[victim][0]))
    else:
        source = other.folder / path if how == "other study" else study.folder / other_kind(path)
        for get in (lambda file: file, sidecar_of):
            if get(source).exists():
                shutil.copyfile(get(source), get(victim))
    try:
        yield victim
    finally:
        if sidecar_of(victim) not in whole:
            sidecar_of(victim).unlink(missing_ok=True)
        for file, (content, _) in whole.items():
            file.write_bytes(content)


def outcome(use: Use, study: Study, output: Path, capsys: pytest.CaptureFixture) -> str:
    """Returns the one line that a stage ends with."""
    flags = [*use.flags(study), "--output", str(output / "out.safetensors")]
    flags += ["--audit", str(output / "audit.json")] if use.stage.__module__ in ("taps.corpus", "taps.tokenise") else []
    flags += ["--state", str(output / "state")] if use.stage.__module__ == "taps.train" else []
    with pytest.raises(SystemExit) as ended:
        run(lambda: use.stage(flags))
    printed = capsys.readouterr().err
    assert ended.value.code == 1
    assert "Traceback" not in printed
    (line,) = [line for line in printed.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.slow
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("use", USES, ids=str)
def test_a_damaged_artefact_is_refused_by_name(
    studies: tuple[Study, Study], use: Use, how: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    if how == "other study" and use.kind in ROOTS:
        pytest.skip(ROOTS[use.kind])
    study, other = studies
    path = use.path.format(shard="shard-00001-of-00006.safetensors")
    if how == "other study" and (other.folder / path).read_bytes() == (study.folder / path).read_bytes():
        pytest.skip("the same in both")
    with damaged(study, other, path, how) as victim:
        line = outcome(use, study, tmp_path, capsys)
    assert str(victim.parent if KINDS[use.kind].shape == Shape.FOLDER else victim) in line, line
    assert not (tmp_path / "out.safetensors").is_file()
    assert not list((tmp_path / "out.safetensors").glob("*.json"))  # of a folder, the record comes last


@pytest.mark.slow
@pytest.mark.parametrize("use", [use for use in USES if KINDS[use.kind].shape in (Shape.ROWS, Shape.SOURCE)], ids=str)
@pytest.mark.parametrize("how", [*CHANGES, "missing"])
def test_a_damaged_sidecar_is_refused_by_name(
    studies: tuple[Study, Study], use: Use, how: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    study, other = studies
    if use.kind == "asset" and how == "missing":
        pytest.skip("a file without a sidecar is a user's own")
    with damaged(study, other, str(sidecar_of(Path(use.path))), how if how in CHANGES else "empty") as victim:
        if how == "missing":
            victim.unlink()
        line = outcome(use, study, tmp_path, capsys)
    assert Path(use.path).name in line


@pytest.mark.slow
def test_an_undamaged_study_is_read_without_complaint(studies: tuple[Study, Study], tmp_path: Path) -> None:
    """Mending after each damage leaves what was there: else the tests above would prove little."""
    study, _ = studies
    for number, use in enumerate(use for use in USES if use.kind in ("bank", "tokens", "claims", "calibration")):
        use.stage([*use.flags(study), "--output", str(tmp_path / f"{number}.json")])


@pytest.mark.slow
def test_every_artefact_names_what_it_was_made_from(studies: tuple[Study, Study]) -> None:
    for use in USES:
        kind = KINDS[use.kind]
        path = studies[0].folder / use.path.format(shard="shard-00001-of-00006.safetensors")
        if not kind.made_from or (kind.shape == Shape.FOLDER and path.name != kind.record):
            continue
        named = inputs_of(path.parent if kind.shape == Shape.FOLDER else path, kind=kind.name)
        for name in kind.made_from:
            assert any(own == name or (name.endswith((".", "_")) and own.startswith(name)) for own in named), (
                use,
                name,
            )
        assert all(len(digest) == 64 for digest in named.values())


# --- the catalogue ---------------------------------------------------------------------------------------------------


def test_the_matrix_has_every_kind() -> None:
    assert {use.kind for use in USES} | set(UNREAD) == set(KINDS)
    assert not {use.kind for use in USES} & set(UNREAD)


def kinds_in_code() -> dict[str, set[str]]:
    """Returns name of a function -> kinds that calls in the package give it as `kind=`; under `_KIND`, those that
    constants of such a name hold."""
    found: dict[str, set[str]] = {"_KIND": set()}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                kinds = [keyword.value for keyword in node.keywords if keyword.arg == "kind"]
                found.setdefault(name, set()).update(text_of(kinds))
            if isinstance(node, ast.Assign) and re.search(r"_KIND\b", ast.unparse(node.targets[0])):
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                found["_KIND"].update(text for text in text_of(values) if not text.endswith(".json"))
    return found


def text_of(nodes: Iterable[ast.expr]) -> set[str]:
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_every_kind_that_is_written_is_in_the_catalogue_and_the_other_way_round() -> None:
    calls = kinds_in_code()
    writers = [name for name in calls if name.startswith("write_") or name in ("table_writer", "_KIND")]
    assert set().union(*(calls[name] for name in writers)) == set(KINDS)


def test_no_stage_reads_what_is_said_to_be_unread() -> None:
    calls = kinds_in_code()
    read = set().union(*(calls[name] for name in calls if name.startswith(("read_", "check_", "verify_"))))
    assert not read & set(UNREAD)


def test_stages_that_write_a_kind_exist() -> None:
    for kind in KINDS.values():
        for stage in kind.stages:
            assert (PACKAGE.parent / f"{stage.replace('.', '/')}.py").exists()
