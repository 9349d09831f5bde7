"""The tables behind the acceptance lengths: depth, node signals, routing, and what each row spends."""

from __future__ import annotations

from collections.abc import Iterator

from taps.analysis import depths, pooled, routing, summaries
from taps.analysis.rendering import Table
from taps.analysis.sample import INTERVAL, Sample

_PUBLISHED_SHARES = (
    "The published shares (EAGLE-2, confidence, math percent: MT-Bench 18.8, GSM8K 90.8, MATH-500 97.0, SVAMP 93.0) "
    "come from comparing finished runs, here the row `routed per question in hindsight`. "
)
_OFFLINE = "`routed per question in hindsight` is the published offline router, which looks at finished runs. "


def detail_tables(sample: Sample) -> Iterator[Table]:
    """Yields depth, node signals, routing shares and node budgets."""
    labels = sample.labels
    counts = depths.depth_counts(sample.cycles, labels, num_draft_tokens=sample.num_draft_tokens)
    yield Table(
        name="acceptance_by_depth",
        title="Acceptance by depth",
        caption="Conditional acceptance: percent of the cycles that reached a depth which accept one token more (so "
        "survivors only); `step` is the change from the depth before, `joint` the product down to the depth. One "
        f"drafter each. {sample.words()}",
        frame=depths.acceptance_by_depth(counts),
    )
    rates = depths.depth_rates(counts)
    yield Table(
        name="depth_contrasts",
        title="How acceptance changes with depth, as one number",
        caption=f"{pooled.DEPTH_WORDS} {INTERVAL} {sample.words()}",
        frame=pooled.of_depth(rates, depths.reached(counts, rates), labels),
    )
    for pair in labels.pairs:
        yield Table(
            name=labels.depth_gap(pair),
            title="Lead of the {} drafter over the {} drafter by depth".format(*map(labels.drafters, pair)),
            caption="Difference of conditional acceptance in points; `growth` is the lead minus that at depth 1. "
            f"{INTERVAL} {sample.words()}",
            frame=depths.depth_gap(counts, pair),
        )
    if len(sample.nodes):
        yield Table(
            name="node_signals",
            title="Entropy and confidence of accepted and rejected nodes",
            caption="Means over nodes that the target judged: the accepted path, and the children of its last node "
            "(rejected). Entropy of the distribution a node was drawn from, in nats; confidence is the node's "
            f"probability given its parent. `difference` is rejected minus accepted. {sample.words()}",
            frame=summaries.node_signals(sample.nodes, labels),
        )
    shares = routing.routing_shares(sample.cycles, num_draft_tokens=sample.num_draft_tokens)
    yield Table(
        name="routing_shares",
        title="Which drafter each router picks",
        caption="Percent of cycles, and of questions (a question counts for the drafter that most of its cycles went "
        f"to). {_PUBLISHED_SHARES if labels.roles.plays_the_paper else ''}{sample.words()}",
        frame=shares,
    )
    accuracy, differences = routing.router_accuracy(sample.cycles, labels, num_draft_tokens=sample.num_draft_tokens)
    yield Table(
        name="router_accuracy",
        title="How often each router finds the matched specialist",
        caption="Balanced accuracy: percent of a domain's questions whose cycles mostly went to its matched "
        "specialist, mean over domains. A router that always picks the same drafter has 100 / number of domains. "
        f"{_OFFLINE if labels.roles.plays_the_paper else ''}{INTERVAL} {sample.words()}",
        frame=accuracy,
    )
    yield Table(
        name="router_differences",
        title="Routing by confidence against other routers",
        caption=f"Balanced accuracy of router a minus that of router b, in points, paired. {INTERVAL} {sample.words()}",
        frame=differences,
    )
    yield Table(
        name="node_budgets",
        title="What each row spends",
        caption="Means per cycle: nodes verified (root not counted) and drafters run; and what 100 emitted tokens cost "
        f"in target forwards and draft trees. {sample.words()}",
        frame=summaries.node_budgets(sample.cycles),
    )
