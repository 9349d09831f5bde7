"""Floating point operations from shapes alone, so that equal compute means the same on any machine; without torch.

A multiplication and an addition count apart. A weight costs 2 per token forward, 2 for its gradient and 2 for the
gradient of its input; attention costs 4 per query, visible key and channel (score and sum), twice that backward.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol


class LayerSizes(Protocol):
    """Sizes of one decoder layer, which is the target's and the draft model's; `taps.model.drafter.DrafterConfig`."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def intermediate_size(self) -> int: ...
    @property
    def num_attention_heads(self) -> int: ...
    @property
    def num_key_value_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def attention_bias(self) -> bool: ...
    @property
    def bias(self) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of one decoder layer as a study's plan or a config.json gives them; fields as in DrafterConfig."""

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    attention_bias: bool = False
    bias: bool = False


def num_channels(sizes: LayerSizes) -> int:
    """Returns query heads x head size."""
    return sizes.num_attention_heads * sizes.head_dim


def layer_parameters(sizes: LayerSizes) -> int:
    """Returns the parameters of one layer of a draft model: attention, gated MLP and the norm between."""
    channels, shared = num_channels(sizes), sizes.num_key_value_heads * sizes.head_dim
    attention = sizes.hidden_size * (2 * channels + 2 * shared)
    biases = channels + 2 * shared if sizes.attention_bias else 0
    return attention + biases + 3 * sizes.hidden_size * sizes.intermediate_size + sizes.hidden_size


def num_parameters(sizes: LayerSizes) -> int:
    """Returns the trained parameters of a draft model: its layer and the `fc` in front of it."""
    fc = 2 * sizes.hidden_size**2 + (sizes.hidden_size if sizes.bias else 0)
    return layer_parameters(sizes) + fc


@dataclass(frozen=True, kw_only=True)
class TrainingCost:
    """What training costs, in operations.

    Attributes:
        per_input: All passes over one input: projections, MLP and norms.
        per_pair: Attention of all passes between one query and one key of its row.
        per_supervised: The head's losses of all passes at one supervised input.
    """

    per_input: float
    per_pair: float
    per_supervised: float

    def flops(self, lengths: Sequence[float], num_supervised: float) -> float:
        """Returns the operations of training once on rows of these lengths, in inputs; a query sees half its row."""
        num_pairs = sum(length * length for length in lengths) / 2
        return self.per_input * sum(lengths) + self.per_pair * num_pairs + self.per_supervised * num_supervised


def training_cost(sizes: LayerSizes, *, head_columns: int, num_passes: int) -> TrainingCost:
    """Returns what training costs; fc's input needs no gradient, and the head is frozen.

    The head costs 2 for the target's logits, once for all passes, and 2 + 2 for the draft's, per pass.

    Args:
        sizes: Of the draft model.
        head_columns: Tokens of the (draft) vocabulary.
        num_passes: Alignment passes of a step.
    """
    fc = 2 * sizes.hidden_size**2
    return TrainingCost(
        per_input=num_passes * (6 * num_parameters(sizes) - 2 * fc),
        per_pair=num_passes * 12 * num_channels(sizes),
        per_supervised=2 * sizes.hidden_size * head_columns * (1 + 2 * num_passes),
    )


def num_steps_within(budget: float, step_flops: Iterable[float]) -> int:
    """Returns how many steps, at least one, bring the sum of their operations nearest to `budget`.

    Args:
        budget: Operations that may be spent.
        step_flops: Operations of each step; endless, or the steps there are.
    """
    spent, num_steps = 0.0, 0
    for flops in step_flops:
        if spent + flops / 2 > budget:
            break
        spent += flops
        num_steps += 1
    return max(num_steps, 1)


def target_flops(sizes: LayerSizes, *, num_layers: int, num_tokens: float, context: float) -> float:
    """Returns the operations of the target's layers over tokens that see `context` others each, without its head."""
    return num_tokens * num_layers * (2 * layer_parameters(sizes) + 4 * num_channels(sizes) * context)


def draft_flops(sizes: LayerSizes, *, num_tokens: float, context: float) -> float:
    """Returns the operations of the draft model over tokens that see `context` others each, without the head."""
    return num_tokens * (2 * num_parameters(sizes) + 4 * num_channels(sizes) * context)


def head_flops(hidden_size: int, head_columns: int, *, num_tokens: float) -> float:
    """Returns the operations of lm_head over tokens."""
    return num_tokens * 2 * hidden_size * head_columns
