"""What somebody should do who serves such traffic on such a machine: computed from the results, with how sure it is.

Every piece of advice follows from one interval: what lies above zero is advised, what cannot be told from zero goes to
the cheaper choice. `taps.analysis.findings` has the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from taps.analysis.findings import Findings, Where
from taps.analysis.labels import MEAN, MERGER, Row
from taps.analysis.rendering import format_interval
from taps.analysis.verdicts import Interval


@dataclass(frozen=True)
class Advice:
    """A question of somebody who has to decide, and the answer.

    Attributes:
        question: In their words.
        answer: What to do, in a few words.
        because: The numbers that say so.
    """

    question: str
    answer: str
    because: str


def advice(found: Findings) -> list[Advice]:
    """Returns what the study advises under its main condition; questions that it holds nothing about are left out."""
    where = found.main_condition
    asked = (_one_or_specialists, _combine_how, _which_tree, _how_sure)
    return [item for ask in asked if (item := ask(found, where)) is not None]


def over(found: Findings, where: Where) -> str:
    """Returns the mean over benchmarks, or the only benchmark."""
    names = found.benchmarks(where)
    return names[0] if len(names) == 1 else MEAN


# --- one drafter or specialists --------------------------------------------------------------------------------------


def _one_or_specialists(found: Findings, where: Where) -> Advice | None:
    """Compares the drafter of all data with the best use of the specialists at its number of nodes."""
    labels = found.labels
    everything = labels.roles.all_data or next(iter(labels.roles.mixtures), None)
    held = [*ways(found, where), *_held(found, where, labels.specialists)]
    if everything is None or not held:
        return None
    one, best = Row("single", everything), _longest(found, where, held)
    gain = found.difference(where, over(found, where), one, best)
    if gain is None or not gain.can_decide:
        return None
    what = f"{labels.row(*one)} − {labels.row(*best)}"
    words = f"{what}: {_tokens(gain)} per cycle."
    if gain.high < 0:
        answer = f"Specialists, together: {labels.row(*best)}."
        cost = f"It costs {_passes(found, where, best)} draft passes a cycle instead of 1."
        return Advice(_ONE, answer, f"{words} {cost}")
    answer = f"One draft model on everything: {labels.row(*one)}."
    why = "" if gain.low > 0 else " Not told apart, and one model is cheaper."
    return Advice(_ONE, answer, f"{words}{why}")


_ONE = "One draft model on everything, or specialists?"


def ways(found: Findings, where: Where) -> list[Row]:
    """Returns the ways to combine specialists that can be served and verify no more nodes than one drafter's tree."""
    frame, labels = found.at("node_budgets", where), found.labels
    if frame.empty:
        return []
    frame = frame[frame["drafters"].eq(labels.main) & ~frame["strategy"].isin(labels.hindsight)]
    nodes = frame.groupby("strategy")["num_nodes"].max()
    names = [str(name) for name in nodes.index[nodes.to_numpy() <= found.num_draft_tokens + 0.5]]
    return _held(found, where, [labels.averaged, *map(labels.combined, names)])


def _held(found: Findings, where: Where, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if found.tau(where, over(found, where), row) is not None]


def _longest(found: Findings, where: Where, rows: Sequence[Row]) -> Row:
    return max(rows, key=lambda row: found.tau(where, over(found, where), row) or 0.0)


def _passes(found: Findings, where: Where, row: Row) -> str:
    return f"{_spent(found, where, row, 'num_drafted'):.1f}"


def _spent(found: Findings, where: Where, row: Row, what: str) -> float:
    """Returns the mean over benchmarks of what a row spends in a cycle."""
    frame = found.at("node_budgets", where)
    own = frame[frame["strategy"].eq(row.strategy) & frame["drafters"].eq(row.drafters)]
    return float(own[what].mean())


# --- combine how -----------------------------------------------------------------------------------------------------


def _combine_how(found: Findings, where: Where) -> Advice | None:
    """Compares averaging, routing and merging with the best specialist."""
    labels = found.labels
    tried, alone = ways(found, where), _held(found, where, labels.specialists)
    if not tried or len(alone) < 2:
        return None
    specialist = _longest(found, where, alone)
    gains = {row: found.difference(where, over(found, where), row, specialist) for row in tried}
    known = {row: gain for row, gain in gains.items() if gain is not None and gain.can_decide}
    better = {row: gain for row, gain in known.items() if gain.low > 0}
    if not known:
        return None
    row = max(better or known, key=lambda row: known[row].estimate)
    words = f"{labels.row(*row)} − {labels.row(*specialist)}: {_tokens(known[row])} per cycle."
    if not better:
        answer = f"Not at all: none is shown to beat {labels.row(*specialist)} alone."
        return Advice(_HOW, answer, f"{words} {_cost(found, where, row)}")
    doubled = found.difference(where, over(found, where), labels.combined(MERGER), row)
    more = ""
    if doubled is not None and doubled.low > 0:
        more = f" With all their nodes ({labels.strategy(MERGER)}): another {_tokens(doubled)}."
    best = f"The best of {len(tried)} ways at one draft model’s number of nodes."
    return Advice(_HOW, f"{labels.row(*row)}.", f"{best} {words} {_cost(found, where, row)}{more}")


_HOW = "If I have specialists, how do I combine them?"


def _cost(found: Findings, where: Where, row: Row) -> str:
    passes, nodes = (_spent(found, where, row, name) for name in ("num_drafted", "num_nodes"))
    key = {"benchmark": over(found, where), **row._asdict()}
    speed = found.interval("speed", where, "speedup", "speedup", "speedup", **key)
    times = "" if speed is None else f"; predicted {speed.estimate:.2f} times plain decoding’s speed, default tree"
    return f"Cost: {passes:.1f} draft passes and {nodes:.0f} verified nodes a cycle{times}."


# --- which tree ------------------------------------------------------------------------------------------------------


def _which_tree(found: Findings, where: Where) -> Advice | None:
    """Advises the row and tree that were fastest on held-out texts, valued on the benchmarks."""
    tuned = found.of_method("best_trees", where.method)
    if tuned.empty:
        return _default_tree(found, where)
    mean = tuned[tuned["benchmark"].eq(over(found, where))]
    chosen, default = (mean[mean["tree"].eq(name)] for name in ("tuned", "default"))
    best = _largest(chosen, "heldout_tokens_per_s")
    if math.isnan(best["depth"]):
        return Advice(_TREE, "None: plain decoding is faster than every tree tried.", _of_default(found, default))
    words = [
        "Chosen on held-out texts and predicted from times measured on this machine.",
        *([] if best["low"] > 1 else ["It is not shown to be faster than plain decoding."]),
        *_usual(best, default),
        *_settings(found, best, chosen),
    ]
    answer = f"{_shape(found, best)}: {_times(best)} plain decoding’s speed."
    return Advice(_TREE, answer, " ".join(words))


_TREE = "Which tree do I serve on this machine, and what does it bring?"


def _largest(frame: pd.DataFrame, column: str) -> Any:
    """Returns the row with the largest value of a column."""
    return frame.iloc[int(np.nanargmax(frame[column].to_numpy(dtype=float)))]


def _shape(found: Findings, row: Any) -> str:
    title = found.labels.row(row["strategy"], row["drafters"])
    return f"{title}, depth {row['depth']:.0f}, {row['num_draft_tokens']:.0f} nodes"


def _usual(best: Any, default: pd.DataFrame) -> Iterator[str]:
    """Yields what the default tree brings with the same drafters."""
    own = default[default["strategy"].eq(best["strategy"]) & default["drafters"].eq(best["drafters"])]
    if len(own):
        yield f"With the default tree: {_times(own.iloc[0])}."


def _settings(found: Findings, best: Any, chosen: pd.DataFrame) -> Iterator[str]:
    """Yields the tree as settings of servers, which draft with one model: the best such row's."""
    single = chosen[chosen["strategy"].eq("single") & chosen["depth"].notna()]
    if single.empty:
        return
    row = _largest(single, "heldout_tokens_per_s")
    if best["strategy"] != "single":
        yield f"Servers draft with one model; the fastest of these is {_shape(found, row)}, {_times(row)}."
    steps, width, nodes = (f"{row[f'sglang_{name}']:.0f}" for name in ("steps", "topk", "draft_tokens"))
    yield (
        f"SGLang: `--speculative-num-steps {steps}` `--speculative-eagle-topk {width}` "
        f"`--speculative-num-draft-tokens {nodes}`. vLLM, which drafts chains: "
        f"`num_speculative_tokens` {row['vllm_tokens']:.0f}."
    )


def _times(row: Any) -> str:
    return f"{format_interval(row['speedup'], row['low'], row['high'])} times"


def _of_default(found: Findings, default: pd.DataFrame) -> str:
    best = _largest(default, "speedup")
    row = found.labels.row(best["strategy"], best["drafters"])
    return f"Of the default trees the fastest is {row}: {_times(best)} its speed."


def _default_tree(found: Findings, where: Where) -> Advice | None:
    """Advises from the predicted speeds of the study's one tree, where none was tuned."""
    speed = found.at("speed", where)
    if speed.empty:
        return None
    real = speed[speed["benchmark"].eq(over(found, where)) & ~speed["strategy"].isin(found.labels.hindsight)]
    best = _largest(real, "tokens_per_s")
    plain = best["tokens_per_s"] / best["speedup"]
    row = found.labels.row(best["strategy"], best["drafters"])
    number = format_interval(*(best[name] / plain for name in ("tokens_per_s", "low", "high")))
    nodes = found.num_draft_tokens
    words = f"Predicted from this machine’s measured times for one tree of {nodes} nodes; none was tuned."
    if best["high"] < plain:
        return Advice(_TREE, f"None: plain decoding is faster; the best, {row}, has {number} of its speed.", words)
    return Advice(_TREE, f"{row}: {number} times plain decoding’s speed.", words)


# --- how sure --------------------------------------------------------------------------------------------------------


def _how_sure(found: Findings, where: Where) -> Advice | None:
    frame = found.at("acceptance_length", where)
    frame = frame[frame["benchmark"].ne(MEAN)]
    if frame.empty:
        return None
    questions = int(frame.groupby("benchmark")["num_questions"].max().sum())
    seeds = int(frame["num_training_seeds"].max())
    covered = f"questions and {seeds} training seeds" if seeds > 1 else "questions, not another training"
    again = "" if seeds > 1 else " Each draft model was trained once; another training may differ by more."
    answer = f"Brackets are 95 % intervals over {questions} questions; they cover {covered}."
    condition = f"{found.labels.method(where.method)}, T = {where.temperature:g}."
    return Advice("How sure is that?", answer, " ".join([*_live(found, where), f"All of it for {condition}{again}"]))


def _live(found: Findings, where: Where) -> Iterator[str]:
    live = found.table("live_check")
    if live.empty:
        return
    live = live[live["method"].eq(where.method) & live["temperature"].eq(where.temperature)]
    live = live[~live["strategy"].isin(["plain", "all"])].dropna(subset=["tokens_per_s", "predicted_tokens_per_s"])
    if len(live):
        ratio = live["tokens_per_s"] / live["predicted_tokens_per_s"]
        yield f"Live decoding ran at {ratio.min():.2f} to {ratio.max():.2f} times the predicted speed."


def _tokens(gain: Interval) -> str:
    return f"{format_interval(gain.estimate, gain.low, gain.high)} tokens"
