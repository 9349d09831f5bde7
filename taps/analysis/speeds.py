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


def tuned(sample: Sample, method: str, path: Path) -> Iterator[Table]:
    """Yields what trees tuned for this machine bring over plain decoding.

    Args:
        sample: Whose labels name rows in print.
        method: The method whose drafters were tuned.
        path: The choices of `taps.tune`.
    """
    labels, content = sample.labels, read_json(path, kind="tuned")
    rows = {(row["strategy"], "+".join(row["drafters"])): row for row in content["rows"]}
    sums = []
    for key, row in rows.items():
        for benchmark, own in row["benchmarks"].items():
            for tree in ("default", "tuned"):
                held = own[tree]
                plain = [count * content["plain_s"] for count in held["num_tokens"]]
                frame = pd.DataFrame({"question": own["questions"], "plain_s": plain, "seconds": held["seconds"]})
                place = {"strategy": key[0], "drafters": key[1], "tree": tree, "benchmark": benchmark, "method": method}
                sums.append(frame.assign(temperature=0.0, **place))
    keys = ["temperature", "method", "strategy", "drafters", "tree", "benchmark"]
    if not sums:
        return
    speedups = with_domain_means(ratios(pd.concat(sums, ignore_index=True), keys, "plain_s", "seconds"), labels)
    frame = speedups.frame("speedup").sort_values(keys, ignore_index=True)
    usual = {"depth": content["drafting"]["depth"], "num_draft_tokens": sample.num_draft_tokens}
    cells: Any = frame[keys].itertuples(index=False)
    chosen = pd.DataFrame(
        [_tree(rows[row[2:4]], row.tree, usual, content["plain_s"]) for row in cells],
        columns=["depth", "num_draft_tokens", "heldout_tokens_per_s", *_SERVERS],
    )
    frame = pd.concat([frame, chosen.astype(float)], axis=1)
    text = frame[["method", "benchmark", "tree"]].copy()
    text["row"] = [labels.row(*row) for row in frame[["strategy", "drafters"]].itertuples(index=False)]
    text["shape"] = [
        "plain decoding" if math.isnan(depth) else f"depth {depth:.0f}, {nodes:.0f} nodes"
        for depth, nodes in frame[["depth", "num_draft_tokens"]].itertuples(index=False)
    ]
    text["of plain speed"] = [
        format_interval(*row) for row in frame[["speedup", "low", "high"]].itertuples(index=False)
    ]
    yield Table(
        name=f"tuned_{method}",
        title=f"Trees tuned for this machine: {labels.method(method)}",
        caption="Speed as a multiple of plain decoding, predicted from the replayed cycles and this machine's measured "
        "times. `tuned` trees were chosen on held-out texts alone; `default` is the study's tree. The CSV also has the "
        "tuned trees as settings of SGLang and vLLM. Depth counts from 0. First training seed, "
        f"T = 0. {INTERVAL}",
        frame=frame,
        shown=text,
    )
    yield Table(
        name=f"tree_shapes_{method}",
        title=f"Every tree that was tried on held-out texts: {labels.method(method)}",
        caption="Acceptance length and predicted tokens per second on held-out texts, which the choice saw; "
        "`inexact share` is the share of cycles in which the stored trees hold fewer nodes than the shape asks for. "
        f"Plain decoding: {1 / content['plain_s']:.1f} tokens per second.",
        frame=pd.DataFrame(
            [
                {"method": method, "strategy": key[0], "drafters": key[1], **shape, "plain": 1 / content["plain_s"]}
                for key, row in rows.items()
                for shape in row["shapes"]
            ]
        ),
    )


_SERVERS = {
    "sglang_steps": ("sglang", "speculative_num_steps"),
    "sglang_topk": ("sglang", "speculative_eagle_topk"),
    "sglang_draft_tokens": ("sglang", "speculative_num_draft_tokens"),
    "vllm_tokens": ("vllm", "num_speculative_tokens"),
}
"""Column of a tuned table -> server and its setting."""


def _tree(row: Mapping[str, Any], tree: str, usual: Mapping[str, int], plain_s: float) -> dict[str, float | None]:
    """Returns a tree's shape, its speed on held-out texts and, of a tuned one, the servers' settings; plain: no shape.

    Args:
        row: Of the choices.
        tree: `default` or `tuned`.
        usual: Shape of the default tree.
        plain_s: Seconds of a plain token.
    """
    shape = usual if tree == "default" else row["best"]
    if not shape:
        return {"heldout_tokens_per_s": 1 / plain_s}
    tried = [item for item in row["shapes"] if all(item[name] == shape[name] for name in usual)]
    speed = tried[0]["tokens_per_s"] if tried else None
    settings = row["servers"] if tree == "tuned" else {}
    servers = {name: settings.get(server, {}).get(key) for name, (server, key) in _SERVERS.items()}
    return {**shape, "heldout_tokens_per_s": speed, **servers}


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
        "target's own near-tie. Speeds are measured without prefill; predicted ones come from the cost file.",
        frame=pd.DataFrame(rows),
    )


_LIVE_COUNTS = ("num_texts", "num_equal_texts", "num_compared_cycles", "num_different_cycles", "num_tokens")


def _live_row(row: Mapping[str, Any]) -> dict[str, Any]:
    num_diverged = row["num_texts"] - row["num_equal_texts"]
    low, high = map(float, clopper_pearson(num_diverged, row["num_tokens"]))
    return {
        **{name: row[name] for name in ("strategy", "drafters", "num_draft_tokens")},
        **{name: row.get(name, 0) for name in _LIVE_COUNTS},
        "diverged_percent": 100 * num_diverged / max(row["num_tokens"], 1),
        "low": 100 * low,
        "high": 100 * high,
        **{name: _number(row, name) for name in ("tau", "tokens_per_s", "predicted_tokens_per_s")},
    }


def _number(row: Mapping[str, Any], name: str) -> float:
    value = row.get(name)
    return math.nan if value is None else float(value)
