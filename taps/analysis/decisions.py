"""What one interval says about a comparison that claims a direction, "no effect" included.

    whole interval inside +-margin          no effect: if there is one, it is smaller than what matters
    whole interval on the claimed side      holds
    whole interval on the other side        fails
    else, or no interval                    open: it cannot be told

The margin of an acceptance length is a share of the *gain* tau - 1: a draft model that never helps has tau = 1. An
interval inside the margin counts as no effect even if it leaves out 0: that an effect is real does not make it matter.
No effect is a result, shown at 2.5 % on either side; open is the absence of a result.

Source: equivalence by two one-sided tests, D. Schuirmann (1987).
"""

from __future__ import annotations

from enum import StrEnum

SIMILAR_SHARE = 0.05  # of the gain


class Outcome(StrEnum):
    """What one interval says about one comparison."""

    HOLDS = "holds"
    FAILS = "fails"
    NO_EFFECT = "no effect"
    OPEN = "open"


def gain_margin(tau: float, share: float = SIMILAR_SHARE) -> float:
    """Returns the half-width of "the same" around an acceptance length: a share of its gain tau - 1."""
    return share * max(tau - 1, 0.0)


def is_equivalent(low: float, high: float, margin: float) -> bool:
    """Returns whether an interval lies inside +-margin; [0, 0] does at any margin, NaN never."""
    return low >= -margin and high <= margin


def outcome(low: float, high: float, *, positive: bool = True, margin: float = 0.0) -> Outcome:
    """Returns what an interval says about "the quantity is above 0" (`positive`) or below it.

    Args:
        low, high: NaN for no interval.
        margin: Half-width of no effect, in the quantity's unit; at 0 only [0, 0] is no effect.
    """
    if is_equivalent(low, high, margin):
        return Outcome.NO_EFFECT
    if low > 0:
        return Outcome.HOLDS if positive else Outcome.FAILS
    if high < 0:
        return Outcome.FAILS if positive else Outcome.HOLDS
    return Outcome.OPEN
