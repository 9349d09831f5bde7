"""Does training on a mixture give one draft model that is good everywhere? C5, C6, K7."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from taps import published
from taps.analysis.claims.registry import (
    Claim,
    Step,
    Topic,
    above_on_average,
    asks,
    compare,
    every,
    matched_benchmarks,
    numbered,
)
from taps.analysis.findings import Findings, Where
from taps.analysis.labels import MEAN, Labels, Row
from taps.analysis.verdicts import Direction


def _mixtures(labels: Labels, part: str) -> list[tuple[str, bool]]:
    """Returns (mixture, whether the paper's claim is about it) of the study, the paper's first."""
    special = published.paper()["mixtures"][part] if labels.roles.plays_the_paper else None
    own = [name for name in labels.roles.mixtures if name != special]
    return [*([(special, True)] if special else []), *((name, False) for name in own)]


@asks
def mixtures_are_as_good_as_the_matched_specialist(labels: Labels) -> Iterator[Claim]:
    """Yields, for each mixture, whether it is not worse than the matched specialist on any benchmark."""
    for mixture, is_papers in _mixtures(labels, "large"):
        title, name = ("The large mixture", "the large mixture") if is_papers else (labels.drafters(mixture),) * 2
        yield numbered(
            labels,
            "K7" if is_papers else "",
            f"{mixture} as good as matched",
            statement=f"{title} is as good as the matched specialist on every benchmark",
            finding=f"{name} is as good as the matched specialist on every benchmark",
            topic=Topic.MIXTURES,
            steps=partial(_as_good_as_matched, mixture=Row("single", mixture)),
            is_key=is_papers or not labels.roles.plays_the_paper,
        )


def _as_good_as_matched(found: Findings, where: Where, *, mixture: Row) -> Iterator[Step]:
    for benchmark, matched in matched_benchmarks(found, where):
        yield from compare(found, where, benchmark, mixture, Direction.NOT_WORSE, matched)


@asks
def mixtures_beat_every_specialist_on_average(labels: Labels) -> Iterator[Claim]:
    """Yields, for each mixture, whether its mean over benchmarks is above every specialist's."""
    for mixture, is_papers in _mixtures(labels, "small"):
        title = "the small mixture" if is_papers else labels.drafters(mixture)
        yield numbered(
            labels,
            "C5" if is_papers else "",
            f"{mixture} beats specialists",
            statement=f"The average of {title} is above that of {every(labels)}",
            finding=f"{title} beats {every(labels)} on average",
            topic=Topic.MIXTURES,
            steps=partial(_beats_specialists, mixture=Row("single", mixture)),
        )


def _beats_specialists(found: Findings, where: Where, *, mixture: Row) -> Iterator[Step]:
    yield from above_on_average(found, where, mixture, found.labels.specialists)


@asks
def large_mixture_wins_only_at_zero(labels: Labels) -> Iterator[Claim]:
    """Yields the paper's claim that the large mixture's mean beats the small one's at T = 0 and loses at T = 1."""
    if labels.roles.plays_the_paper:
        yield numbered(
            labels,
            "C6",
            "",
            statement="",
            finding="the large mixture beats the small one at T = 0 and loses to it at T = 1",
            topic=Topic.MIXTURES,
            steps=_large_wins_only_at_zero,
        )


def _large_wins_only_at_zero(found: Findings, where: Where) -> Iterator[Step]:
    large, small = (Row("single", published.paper()["mixtures"][part]) for part in ("large", "small"))
    direction = Direction.GREATER if where.temperature == 0 else Direction.LESS
    yield from compare(found, where, MEAN, large, direction, small)
