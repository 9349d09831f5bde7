"""Tables of trees tuned for this machine: what to serve, what it brings, and what was tried.

The choices come from `taps.tune`: made on held-out texts alone, then valued on the benchmarks question by question.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from taps.analysis.inputs import Labelled
from taps.analysis.labels import Labels, Row
from taps.analysis.ratios import ratios
from taps.analysis.rendering import Table, format_interval, format_number, in_print
from taps.analysis.sample import INTERVAL, Sample
from taps.analysis.summaries import KEYS, paired_differences, with_domain_means
from taps.decoding.strategy import find
from taps.plumbing.artefacts import read_json

_NAMES = ["method", "strategy", "drafters"]
_SPEED = ("tokens_per_s", "tokens_per_s_low", "tokens_per_s_high")
_SETTINGS = {  # of the servers: column -> server, its setting
    "sglang_steps": ("sglang", "speculative_num_steps"),
    "sglang_topk": ("sglang", "speculative_eagle_topk"),
    "sglang_draft_tokens": ("sglang", "speculative_num_draft_tokens"),
    "vllm_tokens": ("vllm", "num_speculative_tokens"),
}
_TIMES = (
    "Speeds are predicted from the replayed cycles and this machine's measured times, prefill left out; first training "
    "seed, T = 0."
)


class Tuning(NamedTuple):
    """The choices for one method's drafters, a row per strategy and drafters."""

    method: str
    content: Mapping[str, Any]

    @classmethod
    def read(cls, method: str, path: Path) -> Tuning:
        """Returns the content of a file of `taps.tune`."""
        return cls(method, read_json(path, kind="tuned"))

    def names(self, row: Mapping[str, Any]) -> dict[str, str]:
        """Returns method, strategy and drafters of a row."""
        return {"method": self.method, "strategy": row["strategy"], "drafters": "+".join(row["drafters"])}


def best_trees(sample: Sample, tuned: Labelled) -> Iterator[Table]:
    """Yields the chosen trees, their paired differences, and the shapes that were tried.

    Args:
        sample: Whose labels name rows in print.
        tuned: method -> the choices for its drafters.
    """
    tunings = [Tuning.read(method, path) for method, path in tuned]
    tunings = [tuning for tuning in tunings if tuning.content["rows"]]
    if not tunings:
        return
    yield chosen(sample, tunings)
    yield differences(sample, tunings)
    yield shapes(sample.labels, tunings)


def chosen(sample: Sample, tunings: list[Tuning]) -> Table:
    """Returns the table of tuned and default trees on every benchmark, beside plain decoding."""
    labels, keys = sample.labels, ["temperature", *_NAMES, "tree", "benchmark"]
    sums = pd.concat(
        [_sums(tuning, row, tree) for tuning in tunings for row in tuning.content["rows"] for tree in _TREES],
        ignore_index=True,
    )
    speeds = with_domain_means(ratios(sums, keys, "num_tokens", "seconds"), labels).frame(*_SPEED)
    tau = with_domain_means(ratios(sums, keys, "num_tokens", "num_cycles"), labels).frame("tau")
    frame = speeds.merge(tau[[*keys, "tau"]], on=keys)
    frame = frame.merge(pd.DataFrame([facts for tuning in tunings for facts in _facts(tuning)]), on=[*_NAMES, "tree"])
    plain_s = frame.pop("plain_s")
    for name, own in zip(_SPEED, ("speedup", "low", "high"), strict=True):
        frame[own] = frame[name] * plain_s
    frame["plain_tokens_per_s"] = 1 / plain_s
    frame = frame.sort_values(keys, ignore_index=True)
    text = in_print(frame[["method", "benchmark", "tree"]])
    text.insert(0, "row", _titles(labels, frame))
    text["shape"] = [shape_in_words(*row) for row in frame[["depth", "num_draft_tokens"]].itertuples(index=False)]
    text["tau"] = frame["tau"].map(format_number)
    text["tokens per s"] = _intervals(frame, *_SPEED)
    text["of plain speed"] = _intervals(frame, "speedup", "low", "high")
    text["SGLang: steps, top-k, draft tokens"] = _settings(frame, *list(_SETTINGS)[:3])
    text["vLLM: speculative tokens"] = _settings(frame, *list(_SETTINGS)[3:])
    return Table(
        name="best_trees",
        title="The tree to serve on this machine",
        caption="Per strategy and drafters, the depth and nodes with the most tokens per second on held-out texts "
        "(`tuned`; plain decoding where no tree is faster), and the study's own tree (`default`). A strategy that "
        "follows the machine has the same limits in both. SGLang counts the root among the draft tokens; vLLM drafts "
        f"chains, as long as the tree is deep. {_TIMES} {INTERVAL}",
        frame=frame,
        shown=text,
    )


def differences(sample: Sample, tunings: list[Tuning]) -> Table:
    """Returns paired differences of speed and tau between the tuned rows of each method.

    A fixed tree stands for itself or for plain decoding, as was chosen; one that follows the machine for itself.
    """
    labels, budget = sample.labels, sample.num_draft_tokens
    sums = pd.concat(
        [
            _sums(tuning, row, "default" if find(row["strategy"]).costed else "tuned")
            for tuning in tunings
            for row in tuning.content["rows"]
        ],
        ignore_index=True,
    ).assign(num_draft_tokens=budget)
    rows = [Row(*key) for key in sums[["strategy", "drafters"]].drop_duplicates().itertuples(index=False, name=None)]
    frame, tau = (
        paired_differences(
            with_domain_means(ratios(sums, KEYS, "num_tokens", bottom), labels), rows, num_draft_tokens=budget
        ).drop(columns="num_draft_tokens")
        for bottom in ("seconds", "num_cycles")
    )
    pair = ["temperature", "method", "benchmark", "a_strategy", "a_drafters", "b_strategy", "b_drafters"]
    numbers = ["difference", "low", "high", "p_value"]
    tau = tau[[*pair, *numbers]].rename(columns={name: f"tau_{name}" for name in numbers})
    frame = frame.merge(tau, on=pair)
    text = in_print(frame[["method", "benchmark"]])
    for side in ("a", "b"):
        text[side] = [
            labels.row(*row) for row in frame[[f"{side}_strategy", f"{side}_drafters"]].itertuples(index=False)
        ]
    text["tokens per s"] = _intervals(frame, "difference", "low", "high")
    text["tau"] = _intervals(frame, "tau_difference", "tau_low", "tau_high")
    return Table(
        name="best_tree_differences",
        title="Paired differences between tuned trees",
        caption="Row a minus row b, each with the tree that was chosen for it, over the same questions. Where no tree "
        f"was faster than plain decoding, plain decoding stands for the row. {_TIMES} {INTERVAL}",
        frame=frame,
        shown=text,
    )


def shapes(labels: Labels, tunings: list[Tuning]) -> Table:
    """Returns every shape that was tried on the held-out texts."""
    rows = [
        {**tuning.names(row), **shape, "plain": 1 / tuning.content["plain_s"],
         "chosen": row["best"] == {name: shape[name] for name in ("depth", "num_draft_tokens")}}
        for tuning in tunings
        for row in tuning.content["rows"]
        for shape in row["shapes"]
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    text = in_print(frame.drop(columns=["strategy", "drafters"]))
    text.insert(0, "row", _titles(labels, frame))
    return Table(
        name="best_tree_shapes",
        title="Trees tried on held-out texts",
        caption="Tokens per second of every depth and number of nodes that the banks hold, over all held-out texts. "
        "`inexact share`: cycles at which a bank may have left out a node of the smaller tree; only shapes without any "
        f"can be chosen. {_TIMES}",
        frame=frame,
        shown=text,
    )


def shape_in_words(depth: float, num_draft_tokens: float) -> str:
    """Returns e.g. `depth 1, 3 nodes`; NaN stands for no tree."""
    return "plain decoding" if math.isnan(depth) else f"depth {depth:.0f}, {num_draft_tokens:.0f} nodes"


# --- helpers ---------------------------------------------------------------------------------------------------------

_TREES = ("default", "tuned")


def _sums(tuning: Tuning, row: Mapping[str, Any], tree: str) -> pd.DataFrame:
    """Returns num_tokens, num_cycles and seconds of one row and tree, per benchmark and question."""
    parts = [
        pd.DataFrame({name: own[tree][name] for name in ("num_tokens", "num_cycles", "seconds")}).assign(
            question=own["questions"], benchmark=benchmark
        )
        for benchmark, own in row["benchmarks"].items()
    ]
    return pd.concat(parts, ignore_index=True).assign(temperature=0.0, tree=tree, **tuning.names(row))


def _facts(tuning: Tuning) -> Iterator[dict[str, Any]]:
    """Yields, per row and tree, its shape and the servers' settings; NaN where there is none."""
    usual = tuning.content["drafting"]
    for row in tuning.content["rows"]:
        default = {"depth": usual["depth"], "num_draft_tokens": row["num_draft_tokens"]}
        for tree, shape in (("default", default), ("tuned", row["best"])):
            servers = row["servers"] if tree == "tuned" else {}
            speeds = {(item["depth"], item["num_draft_tokens"]): item["tokens_per_s"] for item in row["shapes"]}
            plain = 1 / tuning.content["plain_s"]
            yield {
                **tuning.names(row),
                "tree": tree,
                **{name: math.nan if shape is None else shape[name] for name in default},
                "top_k": math.nan if shape is None else usual["top_k"],
                **{column: servers.get(server, {}).get(key, math.nan) for column, (server, key) in _SETTINGS.items()},
                "heldout_tokens_per_s": plain
                if shape is None
                else speeds.get((shape["depth"], shape["num_draft_tokens"]), math.nan),
                "plain_s": tuning.content["plain_s"],
            }


def _titles(labels: Labels, frame: pd.DataFrame, *columns: str) -> list[str]:
    columns = columns or ("strategy", "drafters")
    return [labels.row(*row) for row in frame[list(columns)].itertuples(index=False, name=None)]


def _intervals(frame: pd.DataFrame, *columns: str) -> list[str]:
    return [format_interval(*row) for row in frame[list(columns)].itertuples(index=False, name=None)]


def _settings(frame: pd.DataFrame, *columns: str) -> list[str]:
    """Returns the numbers side by side, empty where there are none."""
    rows = frame[list(columns)].itertuples(index=False, name=None)
    return ["" if math.isnan(row[0]) else ", ".join(f"{number:.0f}" for number in row) for row in rows]
