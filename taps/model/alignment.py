"""Training passes of a draft model: one for EAGLE-2, several aligned ones for HASS.

While drafting, a node n levels deep sees the target's features only up to the root; the n nearest tokens are its own
predictions. HASS trains for this. Stream 0 holds the target's features; stream s holds the features that pass s
predicted, moved one place to the right (position 0 keeps the true one). In pass n the query at i comes from stream
n - 1 and sees its own key from stream n - 1, the key at i - 1 from stream n - 2, ..., the key at i - (n - 2) from
stream 1, and all keys up to i - (n - 1) from stream 0. For n = 3, which stream serves which key:

    key      0  1  2  3  4
    query 0  2
    query 1  1  2
    query 2  0  1  2
    query 3  0  0  1  2
    query 4  0  0  0  1  2

This is exactly what the third node of a draft chain sees.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from taps.model.drafter import DraftModel, causal_attention, packed_positions

CAUSAL, PUBLISHED = "causal", "published"


def aligned_passes(
    model: DraftModel,
    embeddings: torch.Tensor,
    features: torch.Tensor,
    lengths: Sequence[int],
    *,
    num_passes: int = 1,
    attention: str = CAUSAL,
) -> list[torch.Tensor]:
    """Returns the predictions [T, h] of each pass; the first is the draft model's plain forward.

    Args:
        model: The draft model.
        embeddings: [T, h] of the tokens that follow.
        features: [T, h] the target's features (with noise, if training adds any).
        lengths: Tokens of each sequence.
        num_passes: 1 for EAGLE-2, 3 for HASS.
        attention: `causal` hides what a draft chain cannot see; `published` gives hidden *future* keys the score 0, as
            the original code does, so that they still weigh e^0.
    """
    positions = packed_positions(lengths, embeddings.device)
    x = model.inputs(embeddings, features)
    queries, keys, values = model.qkv(x, positions)
    streams = [(keys, values)]
    predictions = [model.finish(x, causal_attention(queries, keys, values, lengths))]
    for _ in range(1, num_passes):
        own = shifted(predictions[-1].detach(), features, positions)
        x = model.inputs(embeddings, own)
        queries, keys, values = model.qkv(x, positions)
        streams.append((keys, values))
        predictions.append(model.finish(x, stream_attention(queries, streams, lengths, attention=attention)))
    return predictions


def shifted(predictions: torch.Tensor, features: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Returns [T, h]: at position t the prediction made at t - 1; at position 0 the given feature.

    Args:
        predictions: [T, h] what a pass predicted.
        features: [T, h] what stands at the start of a sequence.
        positions: int [T] position of each token in its sequence.
    """
    return torch.where((positions == 0)[:, None], features, predictions.roll(1, dims=0))


def stream_attention(
    queries: torch.Tensor,
    streams: Sequence[tuple[torch.Tensor, torch.Tensor]],
    lengths: Sequence[int],
    *,
    attention: str = CAUSAL,
) -> torch.Tensor:
    """Returns [T, H, d]: attention over the streams of keys and values, as drawn above.

    Args:
        queries: [T, H, d] of the latest stream.
        streams: (keys [T, G, d], values [T, G, d]) of streams 0 ... n - 1.
        lengths: Tokens of each sequence.
        attention: as in `aligned_passes`.
    """
    split = [[part.split(list(lengths)) for part in stream] for stream in streams]
    attended = [
        _one_sequence(part, [(keys[index], values[index]) for keys, values in split], attention)
        for index, part in enumerate(queries.split(list(lengths)))
    ]
    return torch.cat(attended)


def _one_sequence(
    queries: torch.Tensor, streams: Sequence[tuple[torch.Tensor, torch.Tensor]], attention: str
) -> torch.Tensor:
    """Returns [L, H, d] for one sequence of L tokens; n - 1 diagonals stand beside the scores of stream 0."""
    length, num_heads, size = queries.shape
    num_diagonals = len(streams) - 1
    keys, values = (part.transpose(0, 1) for part in streams[0])  # [G, L, d]
    grouped = (queries * size**-0.5).unflatten(1, (len(keys), -1))  # [L, G, H/G, d]
    scores = torch.einsum("lgrd,gmd->grlm", grouped, keys)
    scores = scores.masked_fill(~stream_mask(length, num_diagonals, scores.device), -torch.inf)
    if attention == PUBLISHED:
        future = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, 0.0)
    diagonals, shifted_values = [], []
    for back in range(num_diagonals):
        stream_keys, stream_values = (_moved(part, back) for part in streams[num_diagonals - back])
        score = torch.einsum("lgrd,lgd->grl", grouped, stream_keys)
        exists = torch.arange(length, device=scores.device) >= back
        diagonals.append(score.masked_fill(~exists, -torch.inf))
        shifted_values.append(stream_values)
    weights = torch.cat((scores, torch.stack(diagonals, dim=-1)), dim=-1).float().softmax(-1).to(values.dtype)
    attended = torch.einsum("grlm,gmd->lgrd", weights[..., :length], values)
    for back, stream_values in enumerate(shifted_values):
        weight = weights[..., length + back].permute(2, 0, 1)[..., None]  # [L, G, H/G, 1]
        attended = attended + weight * stream_values[:, :, None]
    return attended.reshape(length, num_heads, size)


def stream_mask(length: int, num_diagonals: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Returns bool [L, L], True where a query sees a key of stream 0: keys up to i - num_diagonals.

    With two diagonals (pass 3) and L = 5 (compare the zeros of the table above):

        0 0 0 0 0
        0 0 0 0 0
        1 0 0 0 0
        1 1 0 0 0
        1 1 1 0 0
    """
    return torch.ones((length, length), dtype=torch.bool, device=device).tril(-num_diagonals)


def _moved(states: torch.Tensor, back: int) -> torch.Tensor:
    """Returns `states` [L, ...] moved `back` places to later positions; the first rows are zero."""
    if back == 0:
        return states
    return torch.cat((torch.zeros_like(states[:back]), states[:-back]))[: len(states)]
