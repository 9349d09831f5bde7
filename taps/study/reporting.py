"""What workflow/rules/report.smk asks: what the report is made of."""

from __future__ import annotations

from taps.decoding.strategy import STRATEGIES
from taps.model.family import FAMILIES
from taps.plumbing.catalogue import modules_of
from taps.plumbing.code_digest import code_digest
from taps.study.contents import (
    Config,
    combinations_of,
    drafters_at,
    drafters_of,
    evaluations,
    first_run,
    is_calibrated,
    trained_methods,
    training_runs,
)
from taps.study.flags import as_json
from taps.study.roles import roles_of

_FOUND_BY_NAME = {"taps.figures": ["taps.analysis.figures"], "taps.claims": ["taps.analysis.claims"]}


def roles(config: Config) -> str:
    """Returns who is who in the study and what it replays, as `taps.tables --roles` takes it."""
    return as_json({**roles_of(config).to_json(), "evaluations": evaluations(config)})


def code(stage: str) -> str:
    """Returns the digest of a report stage: its code, what it finds by name, and the catalogues' titles and looks."""
    found = [module for package in _FOUND_BY_NAME.get(stage, ()) for module in modules_of(package)]
    return code_digest(stage, modules=[*found, *STRATEGIES.modules(), *FAMILIES.modules()], printed=True)


def audited(config: Config) -> list[str]:
    """Returns the sources that have an audit."""
    return [*config["corpora"], *config["benchmarks"]]


def audits(config: Config) -> list[str]:
    """Returns their audits."""
    corpora = [f"<results>/corpora/{corpus}.audit.json" for corpus in config["corpora"]]
    return corpora + [f"<results>/prompts/{benchmark}.audit.json" for benchmark in config["benchmarks"]]


def trained(config: Config) -> list[str]:
    """Returns `method/seed0/mixture` of every draft model that the study trains."""
    return [
        f"{run}/{mixture}"
        for method in trained_methods(config)
        for run in training_runs(config, [method])
        for mixture in drafters_of(config, method)
    ]


def calibrated(config: Config) -> list[str]:
    """Returns `method/seed0` of all whose drafters a temperature is fitted for."""
    return training_runs(config, [method for method in config["methods"] if is_calibrated(config, method)])


# --- the draft trees that are drawn ----------------------------------------------------------------------------------


def drawn_drafters(config: Config) -> list[str]:
    """Returns the drafters whose trees are drawn: the first that a strategy combines; none without strategies."""
    method = next(iter(config["methods"]))
    first = evaluations(config)[0]
    held = drafters_at(config, method, first.training_seed, float(first.temperature))
    return next(iter(combinations_of(config, held)), [])


def drawn_condition(config: Config) -> str:
    """Returns `benchmark/t0_s0.safetensors` of the answer along which: that of the first evaluation."""
    first = evaluations(config)[0]
    return f"{first.benchmark}/t{first.temperature}_s{first.seed}.safetensors"


def drawn_trace(config: Config) -> list[str]:
    """Returns the trace of that answer, if trees are drawn."""
    return [f"<results>/traces/{drawn_condition(config)}"] if drawn_drafters(config) else []


def drawn_banks(config: Config) -> list[str]:
    """Returns the banks along it."""
    run = first_run(config, next(iter(config["methods"])))
    return [f"<results>/banks/{run}/{name}/{drawn_condition(config)}" for name in drawn_drafters(config)]


def drawn_target(config: Config) -> list[str]:
    """Returns the target, whose tokenizer writes the labels, if trees are drawn."""
    return ["<results>/target"] if drawn_drafters(config) else []
