"""Makes child processes run under this interpreter and import this checkout, activated environment or not."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def use_checkout(root: Path) -> None:
    """Puts this interpreter's folder first on PATH and `root` first on PYTHONPATH, for everything started from here.

    `.venv/bin/snakemake` then works without activation, and `snakemake --sdm conda` without the package installed in
    the conda environment (whose own folder is put before ours when it is activated).
    """
    _prepend("PATH", str(Path(sys.executable).parent))
    _prepend("PYTHONPATH", str(root))


def _prepend(variable: str, folder: str) -> None:
    others = [entry for entry in os.environ.get(variable, "").split(os.pathsep) if entry and entry != folder]
    os.environ[variable] = os.pathsep.join([folder, *others])
