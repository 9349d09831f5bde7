"""Tables of speed on this machine: predicted for every row, for trees tuned to it, and measured by decoding live.

Each reads an artefact of another stage; a study that lacks one simply has no such table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from taps.analysis.counted import weighted_sums
from taps.analysis.inputs import Labelled
from taps.analysis.labels import strategy_and_depth
from taps.analysis.ratios import ratios
from taps.analysis.rendering import Table, format_interval, format_number, in_print
from taps.analysis.sample import INTERVAL, Sample
from taps.analysis.shares import clopper_pearson
from taps.analysis.summaries import KEYS, SEED, paired_differences, with_domain_means
from taps.decoding.cost_model import CostModel
from taps.decoding.strategy import find
from taps.plumbing.artefacts import read_json


def speed(sample: Sample, path: Path) -> Iterator[Table]:
    """Yields predicted tokens per second of every row, beside plain decoding, and its paired differences.

    Args:
        path: The cost file: forward times measured on one machine.
    """
    content = read_json(path, kind="cost")
    cost = CostModel.from_json(content)
    cycles = sample.cycles[sample.cycles["num_draft_tokens"].eq(sample.num_draft_tokens)]
    seconds = pd.Series(0.0, index=cycles.index)
    for name, part in cycles.groupby("strategy", observed=True):
        strategy, depth = strategy_and_depth(str(name))
        seconds.loc[part.index] = cost.cycle_s(
            find(strategy),
            sample.num_draft_tokens,
            num_nodes=part["num_nodes"].to_numpy(),
            num_drafted=part["num_drafted"].to_numpy(),
            num_levels=part["num_levels"].to_numpy(),
            depth=depth,
        )
    timed = cycles.assign(seconds=seconds)
    sums = weighted_sums(timed, [*KEYS, SEED, "question"], ["emitted", "seconds"]).reset_index()
    rates = with_domain_means(ratios(sums, KEYS, "emitted", "seconds", training_seed=SEED), sample.labels)
    frame = rates.frame("tokens_per_s").sort_values(KEYS, ignore_index=True)
    frame["speedup"] = frame["tokens_per_s"] / cost.plain_tokens_per_s
    labels = sample.labels
    shown = frame[~labels.is_sweep(frame["drafters"])]
    text = in_print(shown[["temperature", "method", "benchmark"]])
    text["row"] = [labels.row(*row) for row in shown[["strategy", "drafters"]].itertuples(index=False)]
    numbers = shown[["tokens_per_s", "low", "high"]].itertuples(index=False, name=None)
    text["tokens per s"] = [format_interval(*row) for row in numbers]
    text["speed-up"] = shown["speedup"].map(format_number)
    yield Table(
        name="speed",
        title="Predicted speed",
        caption=f"Tokens per second from the cycles' own node counts and the forward times measured on this machine "
        f"({content['device']}, {content['num_threads']} threads, {content['dtype']}); plain decoding: "
        f"{cost.plain_tokens_per_s:.1f}. Prefill is left out. {INTERVAL} {sample.words()}",
        frame=frame,
        shown=text.reset_index(drop=True),
    )
    standards = [*labels.mixtures, *labels.specialists]
    differences = paired_differences(rates, standards, num_draft_tokens=sample.num_draft_tokens)
    yield Table(
        name="speed_differences",
        title="Paired differences of predicted speed",
        caption="Tokens per second of row a minus row b, over the same questions; against single drafters. "
        f"{INTERVAL} {sample.words()}",
        frame=differences,
    )


def live_check(reports: Labelled) -> Table:
    """Returns one row per live-checked strategy: equal texts, equal cycles, measured and predicted speed.

    Beside the strategies a row `plain` (the target alone) and a row `all` (the strategies' counts together).
    `diverged_percent` counts the tokens at which live decoding left the recorded text, per token decoded, with its
    exact 95 % interval.

    Args:
        reports: `method/benchmark` -> the live check's report.
    """
    rows = []
    for label, path in reports:
        method, _, benchmark = label.partition("/")
        content = read_json(path, kind="live_check")
        place = {"temperature": float(content["sampling"]["temperature"]), "method": method, "benchmark": benchmark}
        counts = {name: sum(row[name] for row in content["rows"]) for name in _LIVE_COUNTS}
        # All strategies together get the main budget of one of them, so that the claims find the row.
        budget = max((row["num_draft_tokens"] for row in content["rows"]), default=0)
        together = {"strategy": "all", "drafters": "", "num_draft_tokens": budget, **counts}
        plain = {"strategy": "plain", "drafters": "", "num_draft_tokens": 0, **content["plain"]}
        rows += [{**place, **_live_row(row)} for row in (plain, *content["rows"], together)]
    return Table(
        name="live_check",
        title="Live decoding against the recording",
        caption="Each strategy decodes prompts live and is compared with the recorded text and with the replay's "
        "cycles. `plain` is the target alone at batch size 1, also compared: a text that it leaves too is the "
        "target's own near-tie. Speeds are measured without prefill, all rows taking turns cycle by cycle; predicted "
        "ones come from the cost file. The speed-ups, over `plain`, are what holds at another load of the machine.",
        frame=pd.DataFrame(rows),
    )


_LIVE_COUNTS = ("num_texts", "num_equal_texts", "num_compared_cycles", "num_different_cycles", "num_tokens")

_LIVE_NUMBERS = ("tau", "tokens_per_s", "predicted_tokens_per_s", "speedup", "predicted_speedup")


def _live_row(row: Mapping[str, Any]) -> dict[str, Any]:
    num_diverged = row["num_texts"] - row["num_equal_texts"]
    low, high = map(float, clopper_pearson(num_diverged, row["num_tokens"]))
    return {
        **{name: row[name] for name in ("strategy", "drafters", "num_draft_tokens")},
        "depth": _number(row, "depth"),
        **{name: row.get(name, 0) for name in _LIVE_COUNTS},
        "diverged_percent": 100 * num_diverged / max(row["num_tokens"], 1),
        "low": 100 * low,
        "high": 100 * high,
        **{name: _number(row, name) for name in _LIVE_NUMBERS},
    }


def _number(row: Mapping[str, Any], name: str) -> float:
    value = row.get(name)
    return math.nan if value is None else float(value)
