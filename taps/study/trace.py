"""What workflow/rules/trace.smk asks: how long the texts of a benchmark, or of held-out prompts, may be."""

from __future__ import annotations

from taps.study.contents import HELDOUT, Config


def max_new_tokens(config: Config, benchmark: str) -> int:
    """Returns the most tokens of an answer."""
    if benchmark.startswith(HELDOUT):
        return int(config["heldout"]["max_new_tokens"])
    return int(config["benchmarks"][benchmark]["max_new_tokens"])
