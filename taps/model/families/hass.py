"""HASS: the same network, trained on its own predictions too, so that it sees in training what it sees while drafting.

Source: Zhang, Wang, Huang, Xie, "Learning Harmonized Representations for Speculative Sampling" (2024).
"""

from __future__ import annotations

from taps.model.family import Family


class Hass(Family):
    """EAGLE-2 with three aligned passes (`taps.model.alignment`) and a loss on the target's most likely tokens."""

    name = "hass"
    title = "HASS"
    training = {"alignment_passes": 3, "top_k_weight": 1.0}  # noqa: RUF012 (annotated in the base class)
