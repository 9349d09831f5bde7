"""The chunked head losses against the formulas of the design, written out."""

import pytest
import torch
import torch.nn.functional as F

from taps.model.losses import LossWeights, agreement, draft_losses


def written_out(predictions, features, head, weights):
    target_probs = (features @ head.T).softmax(-1)
    log_draft = (predictions @ head.T).log_softmax(-1)
    value = F.smooth_l1_loss(predictions, features.expand_as(predictions), reduction="none").mean(-1).sum()
    probability = -(target_probs * log_draft).sum()
    top, index = target_probs.topk(weights.k)
    top_k = -(top * log_draft.gather(-1, index.expand(len(predictions), -1, -1))).sum()
    return value, probability, top_k


@pytest.mark.parametrize("weights", [LossWeights(), LossWeights(value=0.5, probability=0.3, top_k=1.0, k=7)])
@pytest.mark.parametrize("num_tokens", [3, 600])
def test_equals_the_formula_and_its_gradient(weights, num_tokens):
    torch.manual_seed(0)
    head, features = torch.randn(320, 16), torch.randn(num_tokens, 16)
    predictions = torch.randn(3, num_tokens, 16, requires_grad=True)
    value, probability, top_k = written_out(predictions, features, head, weights)
    expected = weights.value * value + weights.probability * probability + weights.top_k * top_k
    (expected_gradient,) = torch.autograd.grad(expected, predictions)
    losses = draft_losses(predictions, features, head, weights)
    (gradient,) = torch.autograd.grad(losses.total, predictions)
    torch.testing.assert_close(losses.total, expected, rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-5)
    assert losses.value == pytest.approx(value.item(), rel=1e-5)
    assert losses.probability == pytest.approx(probability.item(), rel=1e-5)
    assert losses.top_k == pytest.approx(top_k.item() if weights.top_k else 0.0, rel=1e-5)


def test_agreement_counts_the_targets_first_choice():
    head = torch.eye(5)
    features = torch.tensor([[5.0, 1, 0, 0, 0], [0, 5.0, 1, 0, 0], [0, 0, 0, 0, 5.0]])
    predictions = torch.tensor([[9.0, 0, 0, 0, 0], [9.0, 8, 0, 0, 0], [9.0, 8, 7, 6, 0]])
    assert agreement(predictions, features, head) == (1, 2)
