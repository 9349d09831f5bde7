"""EAGLE-2: one pass over the target's features, value and probability losses.

Source: Li, Wei, Zhang, Zhang, "EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees" (2024).
"""

from __future__ import annotations

from taps.model.family import Family


class Eagle2(Family):
    """The draft model of `taps.model.drafter`, trained on the target's features."""

    name = "eagle2"
    title = "EAGLE-2"
