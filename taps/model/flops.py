"""Floating point operations of training, counted from shapes, so that equal compute means the same on any machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from taps.model.drafter import DrafterConfig, num_parameters


@dataclass(frozen=True, kw_only=True)
class TrainingCost:
    """What training costs, in operations (a multiply and an add are two).

    Attributes:
        per_input: All passes over one input: projections, MLP and norms.
        per_pair: Attention of all passes between one query and one key of its row.
        per_supervised: The head's losses of all passes at one supervised input.
    """

    per_input: float
    per_pair: float
    per_supervised: float

    def flops(self, lengths: Sequence[int], num_supervised: int) -> float:
        """Returns the operations of training once on rows of these lengths, in inputs; a query sees half its row."""
        num_pairs = sum(length * length for length in lengths) / 2
        return self.per_input * sum(lengths) + self.per_pair * num_pairs + self.per_supervised * num_supervised


def training_cost(config: DrafterConfig, *, head_columns: int, num_passes: int) -> TrainingCost:
    """Returns what training costs by the shapes alone.

    A weight costs 2 forward, 2 for its gradient and 2 for its input's gradient; fc's input needs none. Attention scores
    and sums cost 4 per visible key and channel forward, twice that backward. The head is frozen: 2 for the target's
    logits, once for all passes, and 2 + 2 for the draft's, per pass.

    Args:
        config: Shape of the draft model.
        head_columns: Tokens of the (draft) vocabulary.
        num_passes: Alignment passes.
    """
    fc = 2 * config.hidden_size**2
    channels = config.num_attention_heads * config.head_dim
    return TrainingCost(
        per_input=num_passes * (6 * num_parameters(config) - 2 * fc),
        per_pair=num_passes * 12 * channels,
        per_supervised=2 * config.hidden_size * head_columns * (1 + 2 * num_passes),
    )


def num_steps_within(budget: float, step_flops: Iterable[float]) -> int:
    """Returns how many steps, at least one, bring the sum of their operations nearest to `budget`.

    Args:
        budget: Operations.
        step_flops: Operations of each step; endless, or the steps there are.
    """
    spent, num_steps = 0.0, 0
    for flops in step_flops:
        if spent + flops / 2 > budget:
            break
        spent += flops
        num_steps += 1
    return max(num_steps, 1)


def target_flops(config: DrafterConfig, *, num_layers: int, num_tokens: int, mean_length: float) -> float:
    """Returns the operations of the target's layers over some tokens, without its head.

    A weight costs 2 per token, a visible key and channel 4 (score and sum); a token sees half its row.

    Args:
        config: Shape of the target as its draft model repeats it.
        num_layers: The target's layers.
        num_tokens: Tokens of all rows.
        mean_length: Tokens per row.
    """
    layer = num_parameters(config) - 2 * config.hidden_size**2
    channels = config.num_attention_heads * config.head_dim
    return num_tokens * num_layers * (2 * layer + 4 * channels * mean_length / 2)
