"""Losses of EAGLE-2 and HASS on supervised tokens, and the head's share of them without ever storing logits.

    value        SmoothL1(prediction, feature), mean over the hidden size
    probability  - sum_v target_probs(v) log draft_probs(v)
    top_k        the same sum over the target's K most likely tokens only (HASS)

Each is summed over supervised tokens; the caller divides by their number in the *global* batch.

Shape letters: M supervised tokens of the micro-batch, S alignment passes, h hidden size, V columns of the head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from taps.model.top_k import top_k_rows

_CHUNK = 256  # rows of logits alive at a time: small enough to stay in cache, large enough for the matrix product


@dataclass(frozen=True, kw_only=True)
class LossWeights:
    """How the losses are added.

    Attributes:
        value: Weight of the feature regression.
        probability: Weight of the cross entropy against the target's distribution.
        top_k: Weight of its restriction to the target's `k` most likely tokens; 0 for EAGLE-2.
        k: K of the top-K loss.
    """

    value: float = 1.0
    probability: float = 0.1
    top_k: float = 0.0
    k: int = 10


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Sums over the supervised tokens of a micro-batch (all passes together), and over passes of each part.

    Attributes:
        total: Weighted sum, differentiable.
        parts: fp64 [3] unweighted sums of the value, probability and top-K losses, the last 0 if its weight is 0; they
            stay on the device, since to read them is to wait for it.
    """

    total: torch.Tensor
    parts: torch.Tensor

    @property
    def value(self) -> float:
        """Unweighted sum of the value loss."""
        return self.parts[0].item()

    @property
    def probability(self) -> float:
        """Unweighted sum of the probability loss."""
        return self.parts[1].item()

    @property
    def top_k(self) -> float:
        """Unweighted sum of the top-K loss."""
        return self.parts[2].item()


def draft_losses(predictions: torch.Tensor, features: torch.Tensor, head: torch.Tensor, weights: LossWeights) -> Losses:
    """Returns the losses of S passes against the same features.

    Args:
        predictions: [S, M, h] predicted features at supervised tokens.
        features: [M, h] the target's features.
        head: [V, h] frozen rows of lm_head.
        weights: How to add them.
    """
    value = F.smooth_l1_loss(predictions, features.expand_as(predictions), reduction="none")
    value = value.mean(-1, dtype=torch.float32).sum()
    from_head, sums = _HeadLoss.apply(predictions, features, head, weights)
    parts = torch.cat((value.detach().double()[None], sums))
    return Losses(total=weights.value * value + from_head, parts=parts)


class _HeadLoss(torch.autograd.Function):
    """Weighted probability and top-K losses; the gradient is made along with the loss, chunk by chunk.

    The target's distribution is computed once per chunk and serves all passes.
    """

    @staticmethod
    def forward(ctx, predictions, features, head, weights):  # type: ignore[no-untyped-def]
        gradient = torch.empty_like(predictions)
        sums = torch.zeros(2, dtype=torch.float64, device=predictions.device)
        for start in range(0, len(features), _CHUNK):
            rows = slice(start, start + _CHUNK)
            target_probs = (features[rows] @ head.T).float().softmax(-1)
            for one_pass in range(len(predictions)):
                logits = (predictions[one_pass, rows] @ head.T).float()
                slope = _chunk_losses(logits, target_probs, weights, sums)
                gradient[one_pass, rows] = slope.to(head.dtype) @ head
        ctx.save_for_backward(gradient)
        loss = weights.probability * sums[0] + weights.top_k * sums[1]
        ctx.mark_non_differentiable(sums)
        return loss.to(torch.float32), sums

    @staticmethod
    def backward(ctx, grad_loss, _):  # type: ignore[no-untyped-def]
        (gradient,) = ctx.saved_tensors
        return gradient * grad_loss.to(gradient.dtype), None, None, None


def _chunk_losses(
    logits: torch.Tensor, target_probs: torch.Tensor, weights: LossWeights, sums: torch.Tensor
) -> torch.Tensor:
    """Returns the weighted loss's derivative with respect to `logits` (overwritten); adds the losses to `sums`."""
    logits.sub_(logits.amax(-1, keepdim=True))
    draft_probs = logits.exp()
    total = draft_probs.sum(-1)
    normaliser = total.log()
    sums[0] += (normaliser - torch.linalg.vecdot(target_probs, logits)).double().sum()
    if not weights.top_k:
        return draft_probs.mul_((weights.probability / total)[:, None]).sub_(target_probs, alpha=weights.probability)
    top_probs, top = top_k_rows(target_probs, min(weights.k, target_probs.shape[1]))
    mass = top_probs.sum(-1)
    sums[1] += (mass * normaliser - (top_probs * logits.gather(1, top)).sum(-1)).double().sum()
    slope = draft_probs.mul_(((weights.probability + weights.top_k * mass) / total)[:, None])
    slope.add_(target_probs, alpha=-weights.probability)
    return slope.scatter_add_(1, top, -weights.top_k * top_probs)


@torch.no_grad()
def agreement(predictions: torch.Tensor, features: torch.Tensor, head: torch.Tensor) -> tuple[int, int]:
    """Returns (top1, top3): at how many tokens the target's most likely token is the draft's, or among its best three.

    Args:
        predictions: [M, h] predicted features.
        features: [M, h] the target's features.
        head: [V, h] rows of the target's head.
    """
    found = torch.zeros(2, dtype=torch.int64, device=features.device)
    for start in range(0, len(features), _CHUNK):
        rows = slice(start, start + _CHUNK)
        best = (features[rows] @ head.T).argmax(-1, keepdim=True)
        same = (predictions[rows] @ head.T).topk(min(3, len(head))).indices == best
        found += torch.stack((same[:, 0].sum(), same.any(-1).sum()))
    top1, top3 = found.tolist()
    return top1, top3
