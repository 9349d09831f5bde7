"""What routers choose: how often each drafter, and how often the one that matches the question's domain."""

from __future__ import annotations

import pandas as pd

from taps.analysis import measures
from taps.analysis.counted import weighted_sums
from taps.analysis.labels import ROUTER, Labels, routers
from taps.analysis.ratios import ratios, with_means
from taps.analysis.shares import question_shares
from taps.analysis.summaries import PLACE, SEED, columns_of, share_frame

_ROUTER = [*PLACE, "strategy", "num_draft_tokens"]


def routing_shares(cycles: pd.DataFrame, *, num_draft_tokens: int) -> pd.DataFrame:
    """Returns how often each router at one budget picks each of its drafters: percent of cycles and of questions.

    With one training seed the intervals of the questions' shares are exact.
    """
    shares = _router_votes(cycles, num_draft_tokens=num_draft_tokens)
    identity = [*_ROUTER, "drafters", "drafter"]
    of_cycles = ratios(shares, identity, "picked", "cycles", training_seed=SEED).scaled(100)
    table = share_frame(of_cycles, "cycles_percent", "cycles_low", "cycles_high")
    columns = ["questions_percent", "questions_low", "questions_high"]
    if shares[SEED].nunique() > 1:
        of_questions = ratios(shares.assign(one=1), identity, "share_of_questions", "one", training_seed=SEED)
        questions = share_frame(of_questions.scaled(100), *columns)[[*identity, *columns]]
    else:
        exact = question_shares(shares, identity, "share_of_questions")
        questions = exact[identity].assign(
            **{name: 100 * exact[part] for name, part in zip(columns, ("share", "low", "high"), strict=True)}
        )
    return table.merge(questions.astype({"benchmark": str}), on=identity).sort_values(identity, ignore_index=True)


def _router_votes(cycles: pd.DataFrame, *, num_draft_tokens: int) -> pd.DataFrame:
    """Returns per router, training seed, question and drafter: its share of the cycles, and its vote."""
    routed = cycles[cycles["strategy"].astype(str).isin(routers())]
    routed = routed[routed["num_draft_tokens"] == num_draft_tokens]
    group = [*_ROUTER, SEED, "drafters", "question"]
    shares = measures.routing_shares(routed, by=[*_ROUTER, SEED, "question"])
    sizes = weighted_sums(routed.assign(cycles=1), group, ["cycles"]).reset_index()
    shares = shares.merge(sizes, on=group)
    return shares.assign(picked=shares["share_of_cycles"] * shares["cycles"])


def router_accuracy(
    cycles: pd.DataFrame, labels: Labels, *, num_draft_tokens: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns how well each router finds the matched drafter (percent), and routing by confidence against the others.

    The measure is the mean over domains of the share of questions whose cycles went mostly to the matched drafter. A
    router that always picks the same one has 100 / number of domains. Benchmarks without a matched specialist are left
    out, and routers whose drafters lack it.
    """
    shares = _router_votes(cycles, num_draft_tokens=num_draft_tokens)
    matched = {name: labels.matched(name) for name in map(str, shares["benchmark"].unique())}
    right = shares[shares["drafter"].eq(shares["benchmark"].astype(str).map(matched))]
    columns = [*_ROUTER[:2], *_ROUTER[3:], "drafters"]
    if right.empty:
        numbers = ["low", "high", "num_questions"]
        keys = [*columns[:2], "drafters", "a_strategy", "b_strategy"]
        return pd.DataFrame(columns=[*columns, "accuracy_percent", *numbers]), pd.DataFrame(
            columns=[*keys, "difference", *numbers]
        )
    right = right.assign(benchmark=right["benchmark"].astype(str), one=1)
    found = ratios(right, [*_ROUTER, "drafters"], "share_of_questions", "one", training_seed=SEED)
    means = with_means(found, domains={name: str(matched[name]) for name in set(right["benchmark"])})
    means = means.take(means.keys["benchmark"].eq("mean").to_numpy()).scaled(100)
    pairs = []
    for _, group in means.keys.groupby([*_ROUTER[:2], "drafters", "num_draft_tokens"], observed=True, sort=True):
        rows = dict(zip(group["strategy"], group.index, strict=True))
        pairs += [(rows[ROUTER], other) for name, other in rows.items() if ROUTER in rows and name != ROUTER]
    a, b = columns_of(pairs)
    compared = means.keys.iloc[a].drop(columns=["benchmark", "strategy"]).assign(a_strategy=ROUTER)
    compared = compared.assign(b_strategy=means.keys["strategy"].to_numpy()[b])
    differences = means.minus(a, b, compared).frame("difference", p_value="p_value")
    table = share_frame(means, "accuracy_percent").drop(columns="benchmark").sort_values(columns, ignore_index=True)
    return table, differences
