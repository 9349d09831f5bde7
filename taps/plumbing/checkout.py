"""What the workflow tells its stages through the environment: the interpreter, the checkout, the study."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any


def use_checkout(root: Path) -> None:
    """Puts this interpreter's folder first on PATH and `root` first on PYTHONPATH, for everything started from here.

    `.venv/bin/snakemake` then works without activation, and `snakemake --sdm conda` without the package installed in
    the conda environment (whose own folder is put before ours when it is activated).
    """
    _prepend("PATH", str(Path(sys.executable).parent))
    _prepend("PYTHONPATH", str(root))


def name_study(settings: Any, *, root: Path) -> None:
    """Puts into TAPS_SNAKEMAKE_OPTIONS the options by which a command finds this study, for the remedies of errors.

    Args:
        settings: Snakemake's: `configfiles` of the command line and `replace_workflow_config`.
        root: The checkout, where such a command is given.
    """
    options = [] if Path.cwd() == root else ["--directory", str(Path.cwd())]
    if settings.configfiles:
        replace = ["--replace-workflow-config"] if settings.replace_workflow_config else []
        options += [*replace, "--configfile", *(os.path.relpath(file, root) for file in settings.configfiles)]
    os.environ["TAPS_SNAKEMAKE_OPTIONS"] = shlex.join(options)


def _prepend(variable: str, folder: str) -> None:
    others = [entry for entry in os.environ.get(variable, "").split(os.pathsep) if entry and entry != folder]
    os.environ[variable] = os.pathsep.join([folder, *others])
