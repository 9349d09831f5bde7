"""What a study contains, as names, paths and flags; the rules ask these helpers wherever a list depends on the config."""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(workflow.basedir))

from taps.study.config import validate
from taps.plumbing.checkout import name_study, use_checkout
from taps.plumbing.code_digest import code_digest
from taps.plumbing.errors import TapsError
from taps.plumbing.lease import hold_file
from taps.study.contents import (
    HELDOUT,
    averaged_name,
    drafters_at,
    evaluated_at,
    is_calibrated,
    mixtures_of,
    strategies_of,
)

use_checkout(Path(workflow.basedir))

CONFIG_FILES = workflow.config_settings.configfiles or workflow.configfiles
CONFIG_NAME = " + ".join(os.path.relpath(file, workflow.basedir) for file in CONFIG_FILES)

name_study(workflow.config_settings, root=Path(workflow.basedir))

try:
    config = validate(config, file=CONFIG_NAME, root=Path(workflow.basedir))
except TapsError as error:
    sys.exit(f"error: {error}")

STUDY = config["study"]
TARGET = config["target"]
DRAFTING = config["drafting"]
EVALUATION = config["evaluation"]
ON_GPU = config["device"] == "cuda"
FEATURE_SHARDS, TRACE_SHARDS, BANK_SHARDS = (
    config["parallel"][f"{what}_shards"] for what in ("feature", "trace", "bank")
)


def either(names):
    """Returns the pattern that matches exactly these names, or nothing if there are none."""
    return "|".join(names) or "(?!)"


wildcard_constraints:
    asset="[a-z0-9_]+",
    corpus=either(config["corpora"]),
    mixture=r"[a-z0-9_]+(\.[0-9]+)?",
    method=either(config["methods"]),
    benchmark="[a-z0-9_]+",
    temperature=r"[0-9.]+",
    seed="[0-9]+",
    shard="[0-9]+",


def hold_study():
    """Keeps other runs of this study out until this process ends; kill -9 releases it too, unlike Snakemake's own lock."""
    try:
        workflow.globals["STUDY_LOCK"] = hold_file(Path("results", STUDY, ".lock"), what=f"the study {STUDY}")
    except TapsError as error:
        sys.exit(f"error: {error}")


def flags(**values):
    """Returns command-line flags in the order given: lists repeat their flag, True stands alone, None and False vanish."""
    words = []
    for name, value in values.items():
        flag = f"--{name.replace('_', '-')}"
        for item in value if isinstance(value, list) else [value]:
            if item is not None and item is not False:
                words += [flag] if item is True else [flag, str(item)]
    return words


def lease(gpus):
    """Returns the words in front of a command that needs devices of its own."""
    return ["python", "-m", "taps.plumbing.lease", "--gpus", str(gpus), "--"] if ON_GPU else []


def shard_of(num_shards):
    """Returns a params function: which shard a job computes; no flags where one job does all."""
    return lambda wildcards: flags(shard=wildcards.shard, num_shards=num_shards) if num_shards > 1 else []


def measuring_threads(wildcards):
    """Returns all cores, so that nothing else runs beside a measurement; on a cluster one job has its own."""
    return workflow.cores if workflow.local_exec else config["parallel"]["model_threads"]


# A params function that takes `input` is not compared between runs (its inputs are); one of `wildcards` alone is.
# So values of the config must come through the latter, or an edit would rerun nothing.


def each(flag, inputs):
    """Returns a params function that repeats `flag` before each of the named inputs."""

    def repeat(wildcards, input):
        return flags(**{flag: list(input.get(inputs))})

    return repeat


def each_named(flag, inputs, names):
    """Returns a params function that writes `--flag name=path` for each of the named inputs; `names` lists the names."""

    def repeat(wildcards, input):
        return flags(
            **{flag: [f"{name}={path}" for name, path in zip(names(wildcards), input.get(inputs), strict=True)]}
        )

    return repeat
