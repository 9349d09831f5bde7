"""What all rules share: the checked config, and how a rule asks the study. What a study contains is in taps/study."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(workflow.basedir)
sys.path.insert(0, str(ROOT))

import yaml
from snakemake.logging import logger
from snakemake_logger_plugin_taps import stage_logs
from snakemake_logger_plugin_taps.handler import REPORTED, SAID, STUDY as STUDY_FACTS
from taps.plumbing.checkout import name_study, use_checkout
from taps.plumbing.code_digest import code_digest
from taps.plumbing.errors import TapsError
from taps.plumbing.lease import hold_file
from taps.study import assets, average, contents, data, evaluate, reporting, trace, train, tune, unfinished
from taps.study.config import read, validate
from taps.study.features import hidden_state_flags
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
        STUDY_FACTS: {
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


def ask_unseen(function, *names):
    """Returns a params function for what changes no result: one of more than `wildcards` Snakemake does not compare."""
    return lambda wildcards, threads: function(config, *(wildcards[name] for name in names))


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


def report_the_rest():
    """Makes the report without what failed jobs and those that need them would have made; it names what it lacks.

    A run of its own does it, as Snakemake starts nothing whose inputs could not be made. A run that was stopped, and one
    that was not to make a report, or has no replay to make it of, is left at that; so is one that does without already.
    """
    if config["without"]:
        return
    dag, failed = workflow.dag, workflow.scheduler.failed
    unmade = {
        str(file): stage_logs.error(stage_logs.read_lines(Path(job.log[0]))) if job in failed and job.log else None
        for job in unfinished.blocked(failed, {job: dag.dependencies[job] for job in dag.needrun_jobs()})
        for file in job.output
    }
    stopped = any(str(file) not in unmade for job in dag.needrun_jobs() for file in job.output)
    awaited = unmade.get(f"reports/{STUDY}/tables", "not asked for, or made") is None
    if stopped or not awaited or not reporting.replays({**config, "without": unmade}):
        return
    record = Path("results", STUDY, "unfinished.yaml")
    record.write_text(yaml.safe_dump({"without": unmade}, allow_unicode=True), encoding="utf-8")
    files = [*(os.path.abspath(ROOT / file) for file in CONFIG_FILES), record.absolute()]
    options = ["figures", "--snakefile", ROOT / "Snakefile", "--directory", Path.cwd(), "--replace-workflow-config"]
    options += ["--rerun-triggers", "mtime"]  # the run has just made what can be made
    options = [str(option) for option in [*options, "--configfile", *files]]
    if not workflow.local_exec:  # such a report can be more than the machine should carry that one logs in to
        logger.info(f"The report without them: {shlex.join(['snakemake', *options])}", extra={REPORTED: options})
        return
    logger.info("All else is done. Now the report, without what failed", extra={SAID: True})
    workflow.globals["STUDY_LOCK"].close()
    with open(Path("logs", STUDY, "report_the_rest.log"), "w") as log:
        command = [sys.executable, "-m", "snakemake", *options, "--cores", str(workflow.cores)]
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    if done.returncode == 0:
        logger.info(f"The report without them: reports/{STUDY}/index.html", extra={REPORTED: []})


def forget_failures():
    """Removes the record of what an earlier run could not make."""
    Path("results", STUDY, "unfinished.yaml").unlink(missing_ok=True)
