"""Memory from shapes alone, in bytes, so that a study can ask for what it needs before it runs; without torch.

Formulas count what is alive at the worst moment and leave a tenth for what an allocator cannot reuse. Tests hold them
against the peak of the real code on tensors without numbers. Shape letters: h hidden size, I MLP width, H query heads,
G key-value heads, d head size, V vocabulary, T tokens, L tokens of a row, w bytes per number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taps.model.flops import LayerSizes, layer_parameters, num_channels, num_parameters

CUDA_CONTEXT = 1.5e9  # kernels, libraries and their workspaces, on the device
PROCESS = 3e9  # Python, PyTorch and its libraries, on the host
_SLACK = 1.1
_HEAD_ROWS = 256  # rows of logits at a time, in training
_OPTIMIZER = 12  # bytes per trained number: a master copy and two moments in fp32
_ZERO_BUCKETS = 2 * 500_000_000  # numbers: what DeepSpeed's ZeRO gathers gradients in


@dataclass(frozen=True, kw_only=True)
class TargetSizes:
    """What a target's memory follows from.

    Attributes:
        layer: Sizes of one of its layers.
        num_layers: How many layers it has.
        vocab: V, its vocabulary.
        tied: Whether embedding and head are one matrix.
        parameters: All its weights, where they are known better than from `layer` (routed experts).
    """

    layer: LayerSizes
    num_layers: int
    vocab: int
    tied: bool = False
    parameters: float = 0.0

    @property
    def num_weights(self) -> float:
        """Its weights."""
        ends = self.vocab * self.layer.hidden_size * (1 if self.tied else 2)
        return self.parameters or self.num_layers * layer_parameters(self.layer) + ends

    def weight_bytes(self, width: int) -> float:
        """Returns the bytes of its weights."""
        return self.num_weights * width * _SLACK

    def cache_bytes(self, width: int) -> float:
        """Returns the bytes of keys and values per token."""
        return 2.0 * self.num_layers * self.layer.num_key_value_heads * self.layer.head_dim * width


def forward_bytes(sizes: LayerSizes, num_tokens: float, width: int) -> float:
    """Returns the bytes of a target's forward over so many tokens at once, without its cache."""
    per_token = 6 * sizes.hidden_size + 2 * num_channels(sizes) + 3 * sizes.intermediate_size
    return num_tokens * per_token * width


def sequence_bytes(target: TargetSizes, *, prompt: int, new: int, width: int) -> float:
    """Returns the bytes that one more text takes in a batch of texts that the target continues.

    Its cache, its share of the prefill (with a mask of L x L) and, at temperature > 0, some rows of fp64 logits.

    Args:
        target: Sizes of the target.
        prompt: Tokens of the longest prompt, to which all are padded.
        new: Most tokens of an answer.
        width: w, bytes per number.
    """
    cache = (prompt + new) * target.cache_bytes(width)
    prefill = forward_bytes(target.layer, prompt, width) + prompt**2 * (1 + width)
    return _SLACK * (cache * (1 + 1 / target.num_layers) + max(prefill, target.vocab * 8 * 6))


def features_bytes(target: TargetSizes, *, batch_tokens: int, shard_tokens: int, width: int) -> float:
    """Returns the device bytes of computing features: weights, one batch, one shard's features, logits compared."""
    batch = forward_bytes(target.layer, batch_tokens, width)
    shard = 2 * shard_tokens * target.layer.hidden_size * 2
    return target.weight_bytes(width) + _SLACK * (batch + shard + _HEAD_ROWS * target.vocab * 4 * 6)


def training_bytes(
    target: TargetSizes,
    *,
    head_columns: int,
    lengths: Sequence[int],
    num_passes: int,
    width: int,
    zero_stage: int = 0,
    world: int = 1,
) -> float:
    """Returns the bytes of a training step of one process: weights, gradients, optimizer, activations.

    Per pass and token the layer keeps 15 h + 4 I numbers for the backward pass; three more h are alive beside them.
    Aligned passes (HASS) also keep their scores: for each row H x L x L numbers in compute precision and in fp32, and
    masks. Logits come in pieces and never add up.

    Args:
        target: Of the target, whose layer is the draft model's.
        head_columns: Columns of the head: V or the draft vocabulary.
        lengths: Tokens of each row of the micro-batch.
        num_passes: Alignment passes of a step.
        width: w, bytes per number; 2 means fp32 master weights.
        zero_stage: ZeRO 0, 1 or 2.
        world: How many processes train together.
    """
    layer, hidden = target.layer, target.layer.hidden_size
    trained = num_parameters(layer)
    shared = world if zero_stage else 1
    weights = trained * (2 * width + (_OPTIMIZER + 4 if width == 2 else 8) / shared)
    buckets = min(trained, _ZERO_BUCKETS) * (width + 4) if zero_stage else 0
    ends = hidden * (target.vocab + (head_columns if head_columns != target.vocab or not target.tied else 0)) * width
    per_token = num_passes * (15 * hidden + 4 * layer.intermediate_size) + 3 * hidden
    scores = (num_passes - 1) * layer.num_attention_heads * sum(length**2 for length in lengths) * (width + 6)
    return _SLACK * (weights + buckets + ends + sum(lengths) * per_token * width + scores)


def bank_bytes(target: TargetSizes, *, head_columns: int, context: int, chunk: int, top_k: int, width: int) -> float:
    """Returns the device bytes of drafting trees at `chunk` positions of a text of `context` tokens at once.

    Args:
        target: Sizes of the target.
        head_columns: Columns of the head.
        context: Tokens of the longest text.
        chunk: Positions that are drafted together.
        top_k: Nodes expanded per level and position.
        width: w, bytes per number.
    """
    layer, rows = target.layer, chunk * top_k
    weights = (num_parameters(layer) + layer.hidden_size * (target.vocab + head_columns)) * width
    logits = rows * head_columns * (width + 4 * 3)
    scores = rows * layer.num_attention_heads * context * (2 * width + 4 + 4)
    return _SLACK * (weights + logits + scores + forward_bytes(layer, context, width))
