"""Claims that compare draft families, temperatures and targets: C22 to C25, K6."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from taps import published
from taps.analysis.claims.registry import Claim, Step, Topic, asks, contrast, numbered
from taps.analysis.findings import Findings, Where
from taps.analysis.labels import MEAN, Labels
from taps.analysis.verdicts import LOSSLESS_PERCENT, Direction, Evidence, gain_margin


@asks
def one_family_is_at_least_as_good_as_another(labels: Labels) -> Iterator[Claim]:
    """Yields, for each two methods that are compared and no controls, whether the later one is not worse."""
    methods = labels.roles.methods
    papers = published.paper()["families"]
    pairs = [
        (name, other)
        for name, method in methods.items()
        for other in method.compared_with
        if not (method.control or (other in methods and methods[other].control))
    ]
    special = (papers["better"], papers["base"])
    if labels.roles.plays_the_paper and special not in pairs:
        pairs.append(special)
    for better, base in pairs:
        words = f"{labels.method(better)} is at least as good as {labels.method(base)} trained on the same data"
        yield numbered(
            labels,
            "C22" if (better, base) == special else "",
            f"{better} as good as {base}",
            statement=words,
            finding=words,
            topic=Topic.CONDITIONS,
            steps=partial(_at_least_as_good, better=better, base=base),
        )


def _at_least_as_good(found: Findings, where: Where, *, better: str, base: str) -> Iterator[Step]:
    if where.method != better:
        return  # judged once, under the better one
    labels, other = found.labels, Where(where.temperature, base)
    what = f"{labels.method(better)} − {labels.method(base)}, mean over rows and benchmarks"
    taus = [tau for row in labels.variants if (tau := found.tau(other, MEAN, row)) is not None]
    margin = gain_margin(sum(taus) / len(taus)) if taus else 0.0
    yield from contrast(found, where, "family", what, Direction.NOT_WORSE, against=base, margin=margin)


@asks
def one_family_wins_at_equal_compute(labels: Labels) -> Iterator[Claim]:
    """Yields, for each method whose cost a control was trained to match, whether it beats that control."""
    methods = labels.roles.methods
    pairs = [(method.matches_cost_of, name) for name, method in methods.items() if method.matches_cost_of]
    papers = published.paper()["families"]
    if labels.roles.plays_the_paper and not any(better == papers["better"] for better, _ in pairs):
        pairs.append((papers["better"], ""))
    for better, control in pairs:
        base = labels.method(methods[control].family) if control else labels.method(papers["base"])
        words = f"{labels.method(better or '')} beats {base} trained with the same compute"
        yield numbered(
            labels,
            "K6" if better == papers["better"] else "",
            f"{better} at equal compute",
            statement=words,
            finding=words,
            topic=Topic.CONDITIONS,
            steps=partial(_wins_at_equal_compute, better=str(better), control=control),
        )


def _wins_at_equal_compute(found: Findings, where: Where, *, better: str, control: str) -> Iterator[Step]:
    if where.method != better:
        return  # judged once, under the better one
    labels = found.labels
    if not control:
        yield f"no method was trained to match the cost of {labels.method(better)}"
        return
    what = f"{labels.method(better)} − {labels.method(control)}, mean over specialists and benchmarks"
    yield from contrast(found, where, "specialists", what, Direction.GREATER, against=control)


@asks
def sampling_shortens_acceptance(labels: Labels) -> Iterator[Claim]:
    """Yields whether acceptance at T = 1 is below that at T = 0, as one number over rows and benchmarks."""
    words = "acceptance is shorter at T > 0 than at T = 0"
    yield numbered(
        labels,
        "C23",
        "shorter when sampling",
        statement=f"{words[0].upper()}{words[1:]}",
        finding=words,
        topic=Topic.CONDITIONS,
        steps=_shorter_when_sampling,
    )


def _shorter_when_sampling(found: Findings, where: Where) -> Iterator[Step]:
    if where.temperature == 0:
        return  # judged once, under the higher temperature
    what = f"T = {where.temperature:g} − T = 0, mean over rows and benchmarks"
    yield from contrast(found, where, "temperature", what, Direction.LESS)


@asks
def output_is_lossless(labels: Labels) -> Iterator[Claim]:
    """Yields whether live decoding leaves the text that the target writes alone at fewer than LOSSLESS_PERCENT."""
    words = "speculative decoding leaves the output distribution unchanged"
    yield numbered(
        labels,
        "C24",
        "lossless",
        statement=f"{words[0].upper()}{words[1:]}",
        finding=words,
        topic=Topic.CONDITIONS,
        steps=_lossless,
    )


def _lossless(found: Findings, where: Where) -> Iterator[Step]:
    labels, frame = found.labels, found.at("live_check", where)
    if frame.empty:
        yield "the live check was not run: it compares live decoding with the recorded text"
        return
    for benchmark in frame["benchmark"].unique():
        what = f"tokens at which live decoding leaves the text, %, all strategies, {labels.benchmark(benchmark)}"
        interval = found.interval("live_check", where, "diverged_percent", strategy="all", benchmark=benchmark)
        if interval is not None:
            yield Evidence(what=what, direction=Direction.SIMILAR, interval=interval, margin=LOSSLESS_PERCENT)


@asks
def specialisation_on_other_targets(labels: Labels) -> Iterator[Claim]:
    """Yields the paper's claim about other targets, which a study of one target cannot test."""
    if labels.roles.plays_the_paper:
        finding = "specialisation also holds for other targets"
        yield numbered(labels, "C25", "", statement="", finding=finding, topic=Topic.CONDITIONS, steps=_one_target_only)


def _one_target_only(found: Findings, where: Where) -> Iterator[Step]:
    yield "a study has one target; run the same workflow with another one and compare the reports"
