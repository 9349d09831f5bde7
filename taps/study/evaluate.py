"""What workflow/rules/evaluate.smk asks: which banks are replayed with which strategies, what is timed and run live."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taps.decoding.strategy import STRATEGIES
from taps.plumbing.code_digest import code_digest
from taps.study import train
from taps.study.contents import (
    HELDOUT,
    Config,
    drafters_at,
    drafters_of,
    evaluations,
    first_combination,
    first_run,
    is_calibrated,
    strategies_of,
    training_seeds,
    variants,
)
from taps.study.data import learned_corpora
from taps.study.flags import flags

# --- calibration -----------------------------------------------------------------------------------------------------


def calibration(config: Config, method: str, training_seed: str) -> list[str]:
    """Returns the fitted temperatures of a method's drafters, if it needs any."""
    return [f"<results>/calibration/{method}/seed{training_seed}.json"] if is_calibrated(config, method) else []


def calibration_traces(config: Config, method: str) -> list[str]:
    """Returns the held-out texts that temperatures are fitted on."""
    return [f"<results>/traces/{HELDOUT}{corpus}/t0_s0.safetensors" for corpus in learned_corpora(config, method)]


def calibration_banks(config: Config, method: str, training_seed: str) -> list[str]:
    """Returns the banks, along these texts, of all drafters that are combined, or whose trees are tuned."""
    named = {drafter for group in config["strategies"]["combinations"] for drafter in group}
    tuning = config["evaluation"]["tuning"]
    if tuning and method in tuning["methods"] and f"{method}/seed{training_seed}" == first_run(config, method):
        named |= set(drafters_of(config, method))
    return [
        f"<results>/banks/{method}/seed{training_seed}/{name}/{HELDOUT}{corpus}/t0_s0.safetensors"
        for name in sorted(named.intersection(drafters_of(config, method)))
        for corpus in learned_corpora(config, method)
    ]


# --- replay ----------------------------------------------------------------------------------------------------------


def replays(config: Config) -> list[str]:
    """Returns all replays of the study."""
    return [
        f"<results>/replays/{method}/seed{training_seed}/{benchmark}/t{temperature}_s{seed}.parquet"
        for method, training_seed, benchmark, temperature, seed in evaluations(config)
    ]


def drafters(config: Config, method: str, training_seed: str, temperature: str) -> list[str]:
    """Returns the drafters that are evaluated under a condition."""
    return drafters_at(config, method, int(training_seed), float(temperature))


def banks(config: Config, method: str, training_seed: str, benchmark: str, temperature: str, seed: str) -> list[str]:
    """Returns their banks."""
    condition = f"{benchmark}/t{temperature}_s{seed}.safetensors"
    names = drafters(config, method, training_seed, temperature)
    return [f"<results>/banks/{method}/seed{training_seed}/{name}/{condition}" for name in names]


def replayed(config: Config, method: str, training_seed: str, temperature: str) -> str:
    """Returns the variants to replay under a condition, as `taps.replay --strategies` takes them."""
    return json.dumps(
        variants(config, strategies_of(config, method), drafters(config, method, training_seed, temperature))
    )


def replay_code(config: Config, method: str) -> str:
    """Returns the digest of the code that replays a method: the stage's and its strategies'."""
    return code_digest("taps.replay", modules=STRATEGIES.modules(strategies_of(config, method)))


# --- costs -----------------------------------------------------------------------------------------------------------


def timed_drafters(config: Config) -> list[str]:
    """Returns the folders of the first drafters that a strategy combines, else of the first; all have one shape."""
    method = next(iter(config["methods"]))
    names = [*config["strategies"]["combinations"], drafters_of(config, method)[:1]][0]
    return [f"<results>/drafters/{first_run(config, method)}/{name}" for name in names]


def timed_text(config: Config) -> str:
    """Returns the held-out text that they are timed on."""
    corpus = learned_corpora(config, next(iter(config["methods"])))[0]
    return f"<results>/traces/{HELDOUT}{corpus}/t0_s0.safetensors"


def cost_code(config: Config) -> str:
    """Returns the digest of the code that times them."""
    return train.code(config, next(iter(config["methods"])), stage="taps.cost")


def timed_flags(config: Config, folders: Sequence[str]) -> list[str]:
    """Returns them with their names."""
    return flags(drafter=[f"{Path(folder).name}={folder}" for folder in folders])


# --- live decoding: the first group of drafters that is combined, else the first drafter -----------------------------


def live_names(config: Config) -> list[str]:
    """Returns `method/benchmark` of every live check."""
    live = config["evaluation"]["live"] or {"methods": [], "benchmarks": []}
    return [f"{method}/{benchmark}" for method in live["methods"] for benchmark in live["benchmarks"]]


def live_drafters(config: Config, method: str) -> list[str]:
    """Returns the drafters that decode live."""
    return first_combination(config, drafters_of(config, method))


def live_folders(config: Config, method: str) -> list[str]:
    """Returns their folders."""
    return [f"<results>/drafters/{first_run(config, method)}/{name}" for name in live_drafters(config, method)]


def live_calibration(config: Config, method: str) -> list[str]:
    """Returns their fitted temperatures, if the method needs any."""
    return calibration(config, method, str(training_seeds(config, method)[0]))


def live_banks(config: Config, method: str, benchmark: str) -> list[str]:
    """Returns their banks along the greedy text."""
    run, names = first_run(config, method), live_drafters(config, method)
    return [f"<results>/banks/{run}/{name}/{benchmark}/t0_s0.safetensors" for name in names]


def live_strategies(config: Config, method: str) -> str:
    """Returns the variants to decode with, as `taps.live_check --strategies` takes them."""
    names = config["evaluation"]["live"]["strategies"]
    rows: list[dict[str, Any]] = variants(config, names, live_drafters(config, method), sweep=False)
    return json.dumps([{**row, "num_draft_tokens": config["drafting"]["num_draft_tokens"]} for row in rows])


def live_code(config: Config, method: str) -> str:
    """Returns the digest of the code of the live check: the stage's, its strategies' and the draft family's."""
    strategies = STRATEGIES.modules(config["evaluation"]["live"]["strategies"])
    return train.code(config, method, stage="taps.live_check", modules=strategies)
