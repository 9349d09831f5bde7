"""Acceptance length in every definition in use, and what else the cycles of a replay tell.

A *cycle* is one draft and one target forward. It *accepts* a path of `accepted` tokens and *emits* that and one token
of the target's, cut at the end of the answer. The token that prefill gives is not counted, cycles count from 1, and the
cycles of all turns and seeds of a question belong to that question.

A definition is a ratio of sums over questions, sum(numerator) / sum(denominator), so that each can be given an interval
over questions. To add one, write a function under `@definition(...)`: it becomes a column of the acceptance table, and
of the table of definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from taps.analysis.counted import WEIGHT, weighted_sums, weights
from taps.decoding.node_groups import NODE_KINDS

Ratio = tuple[pd.Series, pd.Series]


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A definition of acceptance length.

    Attributes:
        name: What its column is called.
        words: What is divided by what, for captions.
        function: The frame of `question_sums` -> numerators and denominators of its rows.
        excess: The column that holds by how many percent it exceeds tau, if there is to be one.
    """

    name: str
    words: str
    function: Callable[[pd.DataFrame], Ratio]
    excess: str | None = None

    def __call__(self, sums: pd.DataFrame) -> Ratio:
        """Returns numerators and denominators of the rows of `sums`."""
        return self.function(sums)


DEFINITIONS: dict[str, Definition] = {}
"""Name -> definition, `tau` first; each is a column of the acceptance table."""


def definition(words: str, *, excess: str | None = None) -> Callable[[Callable[[pd.DataFrame], Ratio]], Definition]:
    """Registers a function as a definition of acceptance length under its name; arguments as in Definition."""

    def register(function: Callable[[pd.DataFrame], Ratio]) -> Definition:
        entry = Definition(name=function.__name__, words=words, function=function, excess=excess)
        DEFINITIONS[entry.name] = entry
        return entry

    return register


@definition("emitted tokens per cycle over all cycles")
def tau(sums: pd.DataFrame) -> Ratio:
    """Returns all emitted tokens and all cycles: the headline, 1 <= tau <= depth + 2."""
    return sums["tokens"], sums["cycles"]


@definition("is the mean over questions")
def tau_macro(sums: pd.DataFrame) -> Ratio:
    """Returns each question's tau, and ones."""
    return sums["tokens"] / sums["cycles"], _ones(sums)


@definition("divides by the zero-based index of the last cycle", excess="eagle_excess_percent")
def tau_published_eagle(sums: pd.DataFrame) -> Ratio:
    """Returns all emitted tokens, and per answer the ZERO-based index of its last cycle: cycles - 1.

    The published EAGLE rows; 0.7 to 3.5 % too high. NaN if no answer took two cycles.
    """
    return sums["tokens"], sums["cycles"] - sums["answers"]


@definition("is the mean over questions of accepted tokens plus one", excess="hass_excess_percent")
def tau_published_hass(sums: pd.DataFrame) -> Ratio:
    """Returns each question's mean accepted length plus one, and ones.

    The published HASS rows; counts a token of the target's even where the answer ended before it.
    """
    return sums["accepted"] / sums["cycles"] + 1, _ones(sums)


def _ones(sums: pd.DataFrame) -> pd.Series:
    return pd.Series(1.0, index=sums.index)


def question_sums(cycles: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Returns raw counts per question, indexed by [*by, question]: tokens, cycles, accepted, answers; int64.

    Args:
        cycles: Rows of replays: the columns of `by`, question, cycle, emitted, accepted, perhaps counted (`weight`).
        by: Columns that tell variants and conditions apart; those left out (seed, turn) are pooled.
    """
    counted = cycles.assign(tokens=cycles["emitted"], cycles=1, answers=cycles["cycle"] == 1)
    return weighted_sums(counted, [*by, "question"], ["tokens", "cycles", "accepted", "answers"]).astype(np.int64)


def value(name: str, sums: pd.DataFrame) -> float:
    """Returns one definition over all questions of `sums`; NaN where its denominator is 0 or a count is unknown."""
    numerators, denominators = DEFINITIONS[name](sums)
    total = float(denominators.sum())
    return float(numerators.sum(skipna=False)) / total if total else float("nan")


def acceptance_by_depth(cycles: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Returns acceptance by depth of the draft tree, one row per group of `by` and depth up to the deepest accepted.

    Columns: [*by], depth, num_reached (cycles that accepted a path of depth - 1 and whose text goes on behind it),
    num_accepted (those that accepted one more), conditional = num_accepted / num_reached, and joint = the product of
    the conditional rates up to this depth. Where no text ends inside a tree, joint is the share of all cycles that
    accept at least `depth` tokens; a cycle that the end cut short counts as far as it went, and not beyond.
    """
    keys = list(by)
    ended = cycles["emitted"] == cycles["accepted"]
    lengths = cycles[[*keys, "accepted"]].assign(ended=ended, **{WEIGHT: weights(cycles)})
    deepest = int(lengths["accepted"].max()) if len(lengths) else 0
    tables = []
    for depth in range(1, deepest + 1):
        reached = (lengths["accepted"] >= depth) | ((lengths["accepted"] == depth - 1) & ~lengths["ended"])
        counts = lengths[[*keys, WEIGHT]].assign(
            depth=depth, num_reached=reached, num_accepted=lengths["accepted"] >= depth
        )
        tables.append(weighted_sums(counts, [*keys, "depth"], ["num_reached", "num_accepted"]))
    columns = [*keys, "depth", "num_reached", "num_accepted", "conditional", "joint"]
    if not tables:
        return pd.DataFrame(columns=columns)
    table = pd.concat(tables).sort_index().reset_index()
    table["conditional"] = table["num_accepted"] / table["num_reached"].where(table["num_reached"] > 0)
    rates = table["conditional"]
    table["joint"] = rates.groupby([table[key] for key in keys], observed=True).cumprod() if keys else rates.cumprod()
    return table[columns]


def judged_nodes(nodes: pd.DataFrame, by: Sequence[str] = (), *, published: bool = False) -> pd.DataFrame:
    """Returns mean entropy (nats) and confidence of accepted and rejected nodes, one row per group of `by` and verdict.

    Args:
        nodes: Rows of `.nodes.parquet` files with the columns of `by`.
        by: Columns that tell groups apart.
        published: Rejected means all nodes that are not accepted, judged or not (the published way), instead of the
            children of the last accepted node.

    Columns: [*by], verdict (`accepted` | `rejected`), count of nodes, and node-weighted means of entropy, confidence
    and conditional_confidence (as in `taps.decoding.node_groups`).
    """
    accepted, rejected, unverified = NODE_KINDS
    verdicts = {accepted: "accepted", rejected: "rejected"} | ({unverified: "rejected"} if published else {})
    kept = nodes.assign(verdict=nodes["kind"].astype(str).map(verdicts)).dropna(subset="verdict")
    means = ["entropy", "confidence", "conditional_confidence"]
    weighted = kept.assign(**{name: kept[name].astype(np.float64) * kept["count"] for name in means})
    sums = weighted.groupby([*by, "verdict"], observed=True)[["count", *means]].sum().reset_index()
    sums[means] = sums[means].div(sums["count"], axis=0)
    return sums


def routing_shares(cycles: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Returns how often deployed routers chose each of their drafters: one row per group of `by`, drafters and drafter.

    Columns: [*by], drafters, drafter, share_of_cycles, share_of_questions (a question counts for the drafter that most
    of its cycles went to; in equal parts where several lead). Merged rows are left out.
    """
    routed = cycles[cycles["chosen"] >= 0]
    keys = [*by, "drafters"]
    per_question = list(dict.fromkeys([*keys, "question"]))
    counts = weighted_sums(routed.assign(cycles=1), [*per_question, "chosen"], ["cycles"])["cycles"]
    of_question = counts.unstack("chosen", fill_value=0)
    most = max((str(drafters).count("+") + 1 for drafters in routed["drafters"].unique()), default=0)
    of_question = of_question.reindex(columns=pd.RangeIndex(most, name="chosen"), fill_value=0)
    leads = of_question.eq(of_question.max(axis=1), axis=0)
    votes = leads.div(leads.sum(axis=1), axis=0)
    by_cycles, by_questions = (
        counts.groupby(keys, observed=True).sum().pipe(lambda sums: sums.div(sums.sum(axis=1), axis=0))
        for counts in (of_question, votes)
    )
    table = pd.concat([by_cycles.stack(), by_questions.stack()], axis=1, keys=["share_of_cycles", "share_of_questions"])
    table = table.reset_index()
    groups = [str(drafters).split("+") for drafters in table["drafters"]]
    chosen = table["chosen"].tolist()
    table.insert(
        len(keys), "drafter", [group[at] if at < len(group) else "" for group, at in zip(groups, chosen, strict=True)]
    )
    return table[table["drafter"] != ""].drop(columns="chosen").reset_index(drop=True)
