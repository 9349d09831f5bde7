"""Claims that compare draft families, temperatures and targets: C22 to C25."""

from __future__ import annotations

from collections.abc import Iterator

from taps.analysis import names
from taps.analysis.claims.registry import VARIANTS, Step, claim
from taps.analysis.findings import Findings, Where
from taps.analysis.verdicts import LOSSLESS_PERCENT, SIMILAR_SHARE, Direction, Evidence


@claim("C22")
def hass_is_at_least_as_good(found: Findings, where: Where) -> Iterator[Step]:
    """HASS is not worse than EAGLE-2 trained on the same tokens, for every variant and benchmark."""
    if where.method != "hass":
        return  # judged once, under HASS
    for benchmark in found.benchmarks(where):
        for row in VARIANTS:
            what = f"HASS − EAGLE-2, {row.title}, {names.benchmark_title(benchmark)}"
            key = {**row._asdict(), "benchmark": benchmark, "b_method": "eagle2"}
            interval = found.interval("method_differences", where, "difference", **key)
            if interval is None:
                yield f"{what}: not replayed with both"
                continue
            margin = SIMILAR_SHARE * (found.tau(Where(where.temperature, "eagle2"), benchmark, row) or 0.0)
            yield Evidence(what=what, direction=Direction.NOT_WORSE, interval=interval, margin=margin)


@claim("C23")
def sampling_shortens_acceptance(found: Findings, where: Where) -> Iterator[Step]:
    """Acceptance at T = 1 is below that at T = 0, for every variant and benchmark."""
    if where.temperature == 0:
        return  # judged once, under the higher temperature
    for benchmark in found.benchmarks(where):
        for row in VARIANTS:
            what = f"T = {where.temperature:g} − T = 0, {row.title}, {names.benchmark_title(benchmark)}"
            key = {**row._asdict(), "benchmark": benchmark}
            interval = found.interval("temperature_differences", where, "difference", **key)
            if interval is None:
                yield f"{what}: not replayed at both temperatures"
            else:
                yield Evidence(what=what, direction=Direction.LESS, interval=interval)


@claim("C24")
def output_is_lossless(found: Findings, where: Where) -> Iterator[Step]:
    """Live decoding leaves the text that the target writes alone at fewer than LOSSLESS_PERCENT of the tokens."""
    frame = found.at("live_check", where)
    if frame.empty:
        yield "the live check was not run: it compares live decoding with the recorded text"
        return
    for benchmark in frame["benchmark"].unique():
        what = f"tokens at which live decoding leaves the text, %, all strategies, {names.benchmark_title(benchmark)}"
        interval = found.interval("live_check", where, "diverged_percent", strategy="all", benchmark=benchmark)
        if interval is not None:
            yield Evidence(what=what, direction=Direction.SIMILAR, interval=interval, margin=LOSSLESS_PERCENT)


@claim("C25")
def specialisation_on_other_targets(found: Findings, where: Where) -> Iterator[Step]:
    """Not testable in a study of one target."""
    yield "a study has one target; run the same workflow with another one and compare the reports"
