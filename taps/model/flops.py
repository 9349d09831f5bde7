"""Floating point operations of training, counted from shapes, so that equal compute means the same on any machine."""

from __future__ import annotations

from taps.model.drafter import DrafterConfig, num_parameters


def training_flops(
    config: DrafterConfig,
    *,
    num_inputs: int,
    num_supervised: int,
    mean_length: float,
    head_columns: int,
    num_passes: int,
) -> float:
    """Returns the operations (multiply and add counted apart) of training on some inputs.

    A weight costs 2 forward, 2 for its gradient and 2 for its input's gradient; fc's input needs none. Attention scores
    and sums cost 4 per visible key and channel forward, twice that backward. The head is frozen: 2 for the target's
    logits, once for all passes, and 2 + 2 for the draft's, per pass.

    Args:
        config: Shape of the draft model.
        num_inputs: Inputs, one pass each counted once.
        num_supervised: Inputs that reach the head.
        mean_length: Mean inputs per row.
        head_columns: Tokens of the (draft) vocabulary.
        num_passes: Alignment passes.
    """
    fc = 2 * config.hidden_size**2
    layer = 6 * num_parameters(config) - 2 * fc
    channels = config.num_attention_heads * config.head_dim
    attention = 12 * channels * mean_length / 2
    head = 2 * config.hidden_size * head_columns
    return num_passes * num_inputs * (layer + attention) + num_supervised * head * (1 + 2 * num_passes)


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
