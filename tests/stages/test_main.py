"""`taps` on the PATH: the overview is complete, a stage behind it is the stage itself, mistakes are one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import taps
from taps.__main__ import PURPOSES, STAGES, main, overview
from taps.plumbing.errors import TapsError

TAPS = Path(sys.executable).with_name("taps")


def test_every_stage_stands_in_the_overview_once() -> None:
    package = Path(taps.__file__).parent
    files = {path.stem for path in package.glob("*.py") if not path.stem.startswith("__")}
    assert sorted(STAGES) == sorted(files)
    lines = overview().splitlines()
    assert all(sum(line.startswith(f"  {stage:<16}") for line in lines) == 1 for stage in STAGES)
    assert all(f"{purpose}:" in lines for purpose in PURPOSES)
    assert max(map(len, lines)) < 140


def test_a_stage_is_called_with_its_flags(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    with pytest.raises(TapsError, match=r"none.yaml: cannot be read"):
        main(["config", str(missing)])
    main(["--version"])
    assert capsys.readouterr().out == f"taps {taps.__version__}\n"


@pytest.mark.skipif(not TAPS.exists(), reason="taps is not installed here, only importable")
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ([], 0, "usage: taps STAGE"),
        (["page", "--help"], 0, "usage: taps page [-h]"),
        (["export-draft", "--help"], 0, "usage: taps export_draft [-h]"),
        (["pge"], 1, "error: taps pge: no such stage; did you mean page?"),
    ],
)
def test_the_command_on_the_path(words: list[str], status: int, said: str) -> None:
    done = subprocess.run([TAPS, *words], capture_output=True, text=True)
    assert done.returncode == status
    assert (done.stderr if status else done.stdout).startswith(said)


def test_the_overview_loads_no_library() -> None:
    code = "import sys, taps.__main__ as m; m.main([]); print(sorted({'torch', 'numpy', 'yaml'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
