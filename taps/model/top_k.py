"""The k largest entries of each row, fast on a CPU."""

from __future__ import annotations

import torch

_BLOCK = 64  # columns searched together


def top_k_rows(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (values, columns) of the k largest entries of each row, as `torch.topk`, several times faster on a CPU.

    The k largest of a row lie in the k blocks with the largest maxima: find those, then search them alone.

    Args:
        scores: [A, V] to choose from, row by row.
        k: How many of each row.
    """
    num_rows, width = scores.shape
    num_blocks = width // _BLOCK
    if scores.is_cuda or width % _BLOCK or num_blocks <= 2 * k:
        return scores.topk(k)
    blocks = scores.view(num_rows, num_blocks, _BLOCK)
    best = blocks.amax(-1).topk(k).indices
    candidates = blocks.gather(1, best[:, :, None].expand(-1, -1, _BLOCK)).flatten(1)
    top, place = candidates.topk(k)
    return top, best.gather(1, place // _BLOCK) * _BLOCK + place % _BLOCK
