"""What all rules share: the checked config, and how a rule asks the study. What a study contains is in taps/study."""

import os
import sys
from pathlib import Path

ROOT = Path(workflow.basedir)
sys.path.insert(0, str(ROOT))

from snakemake.logging import logger
from taps.plumbing.checkout import name_study, use_checkout
from taps.plumbing.code_digest import code_digest
from taps.plumbing.errors import TapsError
from taps.plumbing.lease import hold_file
from taps.study import assets, average, contents, data, evaluate, reporting, trace, train, tune
from taps.study.config import read, validate
from taps.study.flags import flags
from taps.study.roles import family_of

use_checkout(ROOT)

CONFIG_FILES = workflow.config_settings.configfiles or workflow.configfiles
CONFIG_NAME = " + ".join(os.path.relpath(file, ROOT) for file in CONFIG_FILES)

name_study(workflow.config_settings, root=ROOT)

try:
    read(map(Path, CONFIG_FILES))  # Snakemake keeps the last of a key that is given twice
    config = validate(config, file=CONFIG_NAME, root=ROOT)
except TapsError as error:
    sys.exit(f"error: {error}")

STUDY = config["study"]
TARGET = config["target"]
DRAFTING = config["drafting"]
EVALUATION = config["evaluation"]
PARALLEL = config["parallel"]
ON_GPU = config["device"] == "cuda"

logger.info(
    f"Study {STUDY}: results in results/{STUDY}, the report in reports/{STUDY}, logs in logs/{STUDY}",
    extra={
        "taps_study": {
            "study": STUDY,
            "results": f"results/{STUDY}",
            "report": f"reports/{STUDY}/index.html",
            "logs": f"logs/{STUDY}",
        }
    },
)


def ask(function, *names, **facts):
    """Returns an input or params function: what the study says about these wildcards, e.g. ask(data.corpus_flags, "corpus").

    Snakemake compares a params function of `wildcards` alone between runs, so an edited config reruns what it concerns.
    """
    return lambda wildcards: function(config, *(wildcards[name] for name in names), **facts)


def ask_about(function, inputs, *names):
    """Returns a params function: the same about the named inputs, whose paths come last."""
    return lambda wildcards, input: function(config, *(wildcards[name] for name in names), list(input.get(inputs)))


def each(flag, inputs):
    """Returns a params function that repeats `flag` before each of the named inputs."""
    return lambda wildcards, input: flags(**{flag: list(input.get(inputs))})


def each_named(flag, inputs, names, *of):
    """Returns a params function that writes `--flag name=path` for each of the named inputs.

    `names` asks the study, or is what it says.
    """

    def repeat(wildcards, input):
        found = names(config, *(wildcards[name] for name in of)) if callable(names) else names
        named = zip(found, input.get(inputs), strict=True)
        return flags(**{flag: [f"{name}={path}" for name, path in named]})

    return repeat


def either(names):
    """Returns the pattern that matches exactly these names, or nothing if there are none."""
    return "|".join(names) or "(?!)"


wildcard_constraints:
    asset="[a-z0-9_]+",
    corpus=either(config["corpora"]),
    mixture=either(config["mixtures"]),
    drafter=either(contents.all_drafters(config)),
    method=either(config["methods"]),
    benchmark="[a-z0-9_]+",
    temperature=r"[0-9.]+",
    seed="[0-9]+",
    training_seed="[0-9]+",
    shard="[0-9]+",


def lease(gpus):
    """Returns the words in front of a command that needs devices of its own."""
    return ["python", "-m", "taps.plumbing.lease", "--gpus", str(gpus), "--"] if ON_GPU else []


def shard_of(num_shards):
    """Returns a params function: which shard a job computes; no flags where one job does all."""
    return lambda wildcards: flags(shard=wildcards.shard, num_shards=num_shards) if num_shards > 1 else []


def measuring_threads(wildcards):
    """Returns all cores, so that nothing else runs beside a measurement; on a cluster one job has its own."""
    return workflow.cores if workflow.local_exec else PARALLEL["model_threads"]


def hold_study():
    """Keeps other runs of this study out until this process ends; kill -9 releases it too, unlike Snakemake's own lock."""
    try:
        workflow.globals["STUDY_LOCK"] = hold_file(Path("results", STUDY, ".lock"), what=f"the study {STUDY}")
    except TapsError as error:
        sys.exit(f"error: {error}")
