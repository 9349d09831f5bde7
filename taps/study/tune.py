"""What workflow/rules/tune.smk asks: on which texts, for which strategies and drafters trees are tuned.

All of it is done with a method's first training seed at temperature 0, in the order of the config.
"""

from __future__ import annotations

from taps.decoding.strategy import STRATEGIES
from taps.plumbing.code_digest import code_digest
from taps.study.contents import (
    HELDOUT,
    Config,
    combinations_of,
    drafters_of,
    evaluations,
    first_combination,
    first_run,
    is_calibrated,
    variants,
)
from taps.study.data import learned_corpora
from taps.study.evaluate import live_calibration
from taps.study.flags import as_json


def methods(config: Config) -> list[str]:
    """Returns the methods whose trees are tuned."""
    return list((config["evaluation"]["tuning"] or {"methods": []})["methods"])


def strategies(config: Config) -> list[str]:
    """Returns the strategies that are tuned."""
    return list(config["evaluation"]["tuning"]["strategies"])


def heldout(config: Config, method: str) -> list[str]:
    """Returns the held-out texts that the choice sees: of every corpus that one of the drafters learned."""
    return [f"<results>/traces/{HELDOUT}{corpus}/t0_s0.safetensors" for corpus in learned_corpora(config, method)]


def benchmarks(config: Config, method: str) -> list[str]:
    """Returns the benchmarks on which the choice is then valued."""
    found = [item.benchmark for item in evaluations(config) if item.method == method and item.temperature == "0"]
    return list(dict.fromkeys(found))


def traces(config: Config, method: str) -> list[str]:
    """Returns their texts."""
    return [f"<results>/traces/{name}/t0_s0.safetensors" for name in benchmarks(config, method)]


def banks(config: Config, method: str) -> list[str]:
    """Returns the banks of all trained drafters along both."""
    names = [text.split("/")[2] for text in [*heldout(config, method), *traces(config, method)]]
    run = first_run(config, method)
    return [
        f"<results>/banks/{run}/{drafter}/{name}/t0_s0.safetensors"
        for name in names
        for drafter in drafters_of(config, method)
    ]


def rows(config: Config, method: str) -> str:
    """Returns the variants to tune, as `taps.tune --strategies` takes them."""
    found = variants(config, strategies(config), drafters_of(config, method), sweep=False)
    return as_json([{**row, "num_draft_tokens": config["drafting"]["num_draft_tokens"]} for row in found])


def calibration(config: Config, method: str) -> list[str]:
    """Returns the drafters' fitted temperatures, if the method has any."""
    return live_calibration(config, method) if is_calibrated(config, method) else []


# --- the router that reads the prompt --------------------------------------------------------------------------------


def router(config: Config, method: str) -> list[str]:
    """Returns the router of a method, if one of its tuned strategies asks for one."""
    wanted = method in methods(config) and any(STRATEGIES[name].uses_prompt for name in strategies(config))
    return [f"<results>/routers/{method}.json"] if wanted and routed(config, method) else []


def routed(config: Config, method: str) -> list[str]:
    """Returns the drafters that it chooses from."""
    held = drafters_of(config, method)
    return first_combination(config, held) if combinations_of(config, held) else []


def router_banks(config: Config, method: str) -> list[str]:
    """Returns their banks along the held-out texts."""
    names = [text.split("/")[2] for text in heldout(config, method)]
    run = first_run(config, method)
    return [
        f"<results>/banks/{run}/{drafter}/{name}/t0_s0.safetensors"
        for name in names
        for drafter in routed(config, method)
    ]


def router_flags(config: Config, method: str) -> list[str]:
    """Returns them as `taps.fit_router` takes them."""
    return ["--drafters", *routed(config, method)]


def code(config: Config) -> str:
    """Returns the digest of the code that tunes: the stage's and its strategies'."""
    return code_digest("taps.tune", modules=STRATEGIES.modules(strategies(config)))


def tuned(config: Config, method: str) -> list[str]:
    """Returns the choices for a method, if its trees are tuned."""
    return [f"<results>/tuned/{method}.json"] if method in methods(config) else []
