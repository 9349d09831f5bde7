"""What workflow/rules/report.smk asks: what the report is made of.

All of it leaves out what a failed run could not make (`without`), so that the report can do without that, too.
"""

from __future__ import annotations

from taps.decoding.strategy import STRATEGIES
from taps.model.family import FAMILIES
from taps.plumbing.catalogue import modules_of
from taps.plumbing.code_digest import code_digest
from taps.study import evaluate, tune
from taps.study.contents import (
    Config,
    Evaluation,
    combinations_of,
    drafters_at,
    drafters_of,
    evaluations,
    is_calibrated,
    trained_methods,
    training_runs,
)
from taps.study.flags import as_json, flags
from taps.study.roles import roles_of

_FOUND_BY_NAME = {"taps.figures": ["taps.analysis.figures"], "taps.claims": ["taps.analysis.claims"]}


def roles(config: Config) -> str:
    """Returns who is who in the study and what it replays, as `taps.tables --roles` takes it."""
    return as_json({**roles_of(config).to_json(), "evaluations": evaluations(config)})


def code(stage: str) -> str:
    """Returns the digest of a report stage: its code, what it finds by name, and the catalogues' titles and looks."""
    found = [module for package in _FOUND_BY_NAME.get(stage, ()) for module in modules_of(package)]
    return code_digest(stage, modules=[*found, *STRATEGIES.modules(), *FAMILIES.modules()], printed=True)


def made(config: Config, path: str) -> bool:
    """Returns whether a file can be had."""
    return path.replace("<results>", f"results/{config['study']}", 1) not in config["without"]


def replays(config: Config) -> list[str]:
    """Returns the replays."""
    return [path for path in evaluate.replays(config) if made(config, path)]


def audits(config: Config) -> dict[str, str]:
    """Returns source -> its audit."""
    corpora = {corpus: f"<results>/corpora/{corpus}.audit.json" for corpus in config["corpora"]}
    prompts = {benchmark: f"<results>/prompts/{benchmark}.audit.json" for benchmark in config["benchmarks"]}
    return {name: path for name, path in [*corpora.items(), *prompts.items()] if made(config, path)}


def trained(config: Config) -> list[str]:
    """Returns `method/seed0/mixture` of every draft model that the study trains."""
    names = [
        f"{run}/{mixture}"
        for method in trained_methods(config)
        for run in training_runs(config, [method])
        for mixture in drafters_of(config, method)
    ]
    return [name for name in names if made(config, f"<results>/drafters/{name}")]


def calibrated(config: Config) -> list[str]:
    """Returns `method/seed0` of all whose drafters a temperature is fitted for."""
    names = training_runs(config, [method for method in config["methods"] if is_calibrated(config, method)])
    return [name for name in names if made(config, f"<results>/calibration/{name}.json")]


def live(config: Config) -> list[str]:
    """Returns `method/benchmark` of the live checks."""
    return [name for name in evaluate.live_names(config) if made(config, f"<results>/live/{name}.json")]


def tuned(config: Config) -> list[str]:
    """Returns the methods whose trees are tuned."""
    return [method for method in tune.methods(config) if made(config, f"<results>/tuned/{method}.json")]


def overlap(config: Config) -> list[str]:
    """Returns the count of prompts in the corpora."""
    return [path for path in ["<results>/overlap.json"] if made(config, path)]


def cost(config: Config) -> list[str]:
    """Returns the measured times."""
    return [path for path in ["<results>/cost.json"] if made(config, path)]


def failures(config: Config) -> list[str]:
    """Returns what failed and why, as `taps.tables --failure` takes it."""
    found = [f"{path}={why}" for path, why in sorted(config["without"].items()) if why]
    return flags(failure=found)


# --- the draft trees that are drawn ----------------------------------------------------------------------------------


def _drawn(config: Config) -> Evaluation:
    """Returns the evaluation whose answers are drawn: the first that could be made."""
    every = evaluations(config)
    found = (item for item, path in zip(every, evaluate.replays(config), strict=True) if made(config, path))
    return next(found, every[0])


def drawn_drafters(config: Config) -> list[str]:
    """Returns the drafters whose trees are drawn: the first that a strategy combines; none without strategies."""
    drawn = _drawn(config)
    held = drafters_at(config, drawn.method, drawn.training_seed, float(drawn.temperature))
    return next(iter(combinations_of(config, held)), [])


def drawn_trace(config: Config) -> list[str]:
    """Returns the trace along which, if trees are drawn."""
    return [f"<results>/traces/{_condition(config)}"] if drawn_drafters(config) else []


def drawn_banks(config: Config) -> list[str]:
    """Returns the banks along it."""
    drawn = _drawn(config)
    run = f"{drawn.method}/seed{drawn.training_seed}"
    return [f"<results>/banks/{run}/{name}/{_condition(config)}" for name in drawn_drafters(config)]


def _condition(config: Config) -> str:
    drawn = _drawn(config)
    return f"{drawn.benchmark}/t{drawn.temperature}_s{drawn.seed}.safetensors"


def drawn_target(config: Config) -> list[str]:
    """Returns the target, whose tokenizer writes the labels, if trees are drawn."""
    return ["<results>/target"] if drawn_drafters(config) else []
