"""The code digest: blind to comments, docstrings and layout; sensitive to logic anywhere in the import closure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from taps.plumbing.code_digest import code_digest, import_closure

STAGE = '"""Stage."""\nfrom taps.science import formula\n\n\ndef main():\n    return formula(1)\n'
SCIENCE = '"""Science."""\n\n\ndef formula(x):\n    """Twice x."""\n    return 2 * x  # a comment\n'
FILES = {
    "__init__.py": "",
    "stage.py": STAGE,
    "science.py": SCIENCE,
    "other.py": "import taps.deep.part\n",
    "deep/__init__.py": "from . import part\nfrom .part import value as v\n",
    "deep/numbers.csv": "1, 2",
    "deep/README.md": "About the numbers.",
    "page.py": "import taps.deep\nPAGE = 'forms'\n",
    "forms/page.html": "<p>",
    "forms/more/page.css": "p {}",
    "deep/part.py": "def value():\n    from ..science import formula\n    return formula\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A package `taps` of six small files with the real digest module inside."""
    for name, text in FILES.items():
        path = tmp_path / "taps" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def digest(checkout: Path, module: str, what: str = "code_digest") -> str:
    """Returns the digest as a fresh process computes it for the package at `checkout`."""
    import taps.plumbing.code_digest as real

    code = (
        f"exec(open({real.__file__!r}).read()); r = {what}({module!r}); print(r if isinstance(r, str) else sorted(r))"
    )
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout.strip()


def edit(checkout: Path, name: str, old: str, new: str) -> None:
    path = checkout / "taps" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("name", "old", "new", "changes"),
    [
        ("stage.py", '"""Stage."""', '"""Another text."""', False),
        ("stage.py", '"""Stage."""\n', "", False),
        ("science.py", '"""Twice x."""', '"""x, doubled."""', False),
        ("science.py", "# a comment", "# another", False),
        ("science.py", "return 2 * x", "return (2*x)", False),
        ("science.py", "2 * x", "3 * x", True),
        ("stage.py", "formula(1)", "formula(2)", True),
        ("other.py", "import taps.deep.part", "x = 1", False),
    ],
)
def test_digest_of_a_stage_after_an_edit(checkout: Path, name: str, old: str, new: str, changes: bool) -> None:
    before = digest(checkout, "taps.stage")
    edit(checkout, name, old, new)
    assert (digest(checkout, "taps.stage") != before) is changes


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("deep/numbers.csv", {"other", "page"}),
        ("deep/README.md", set()),
        ("forms/page.html", {"page"}),
        ("forms/more/page.css", {"page"}),
    ],
)
def test_data_files_count_for_those_who_read_them(checkout: Path, name: str, changed: set[str]) -> None:
    stages = ("stage", "other", "page")
    before = {stage: digest(checkout, f"taps.{stage}") for stage in stages}
    (checkout / "taps" / name).write_text("edited")
    assert {stage for stage in stages if digest(checkout, f"taps.{stage}") != before[stage]} == changed


def test_a_docstring_alone_equals_pass(checkout: Path) -> None:
    edit(checkout, "other.py", "import taps.deep.part\n", 'def empty():\n    """Nothing."""\n')
    before = digest(checkout, "taps.other")
    edit(checkout, "other.py", '"""Nothing."""', "pass")
    assert digest(checkout, "taps.other") == before


def test_closure_follows_relative_late_and_package_imports(checkout: Path) -> None:
    assert digest(checkout, "taps.stage", "import_closure") == str(["taps", "taps.science", "taps.stage"])
    assert digest(checkout, "taps.other", "import_closure") == str(
        ["taps", "taps.deep", "taps.deep.part", "taps.other", "taps.science"]
    )


def test_closure_of_the_real_package_stays_light_where_it_should() -> None:
    assert {"taps.replay", "taps.decoding.walk", "taps.plumbing.errors", "taps"} <= import_closure("taps.replay")
    assert not any(name.startswith("taps.analysis") for name in import_closure("taps.replay"))
    assert code_digest("taps.replay") == code_digest("taps.replay") != code_digest("taps.bank")


def test_unknown_module_is_an_error() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"no module taps\.nowhere"):
        import_closure("taps.nowhere")
