"""What workflow/rules/features.smk and trace.smk ask: which hidden states of the target draft models read."""

from __future__ import annotations

from taps.model.family import FAMILIES
from taps.model.hidden_states import FINAL, recorded
from taps.study.contents import Config
from taps.study.flags import flags
from taps.study.roles import family_of


def hidden_states(config: Config) -> tuple[str, ...]:
    """Returns what features and traces hold: `final`, then what families of the study read beside it."""
    return recorded(FAMILIES.find(family_of(config, method)).features for method in config["methods"])


def hidden_state_flags(config: Config) -> list[str]:
    """Returns how a stage is told; nothing for the final state alone."""
    return flags(hidden_state=[name for name in hidden_states(config) if name != FINAL])
