"""Each claim of the paper (C1 to C25) and each control (K1 to K9) as a function of the tables.

The statements and the published numbers' own verdicts are data (`published/claims.json`); the modules here say which
comparisons a statement makes.
"""

from __future__ import annotations

from typing import Any

from taps import published
from taps.analysis.claims import acceptance, conditions, controls, signals
from taps.analysis.claims.registry import Judgement, judge

__all__ = ["Judgement", "acceptance", "conditions", "controls", "judge", "signals", "statements"]


def statements() -> list[dict[str, Any]]:
    """Returns all statements in order: the paper's, then the controls, which have no published verdict."""
    own = [{"id": number, "statement": text, "published": []} for number, text in controls.STATEMENTS.items()]
    return [*published.claims(), *own]
