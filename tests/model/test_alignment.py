"""HASS passes against what a draft chain really sees, and against each other."""

import pytest
import torch

from taps.model.alignment import PUBLISHED, aligned_passes, stream_mask
from tests.support.draft_models import naive_output, tiny_drafter


@pytest.fixture(scope="module")
def drafter():
    return tiny_drafter()


def random_row(length, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 300, (length,), generator=generator), torch.randn(length, 32, generator=generator)


def passes(model, head, tokens, features, **options):
    with torch.inference_mode():
        return aligned_passes(model, head.embed(tokens[1:]), features[:-1], [len(tokens) - 1], **options)


def test_pass_n_equals_the_nth_node_of_a_draft_chain(drafter):
    model, head = drafter
    tokens, features = random_row(11)
    for num_drafted, predictions in enumerate(passes(model, head, tokens, features, num_passes=4)):
        for position in range(num_drafted, 10):
            root = position - num_drafted + 1  # index of the chain's root token
            with torch.inference_mode():
                expected = naive_output(
                    model, head, tokens[: root + 1], features, tokens[root + 1 : position + 2].tolist()
                )
            torch.testing.assert_close(predictions[position], expected, atol=2e-5, rtol=1e-4)


def test_outputs_do_not_depend_on_batch_neighbours(drafter):
    model, head = drafter
    rows = [random_row(n, seed=n) for n in (5, 9, 3)]
    together = aligned_passes(
        model,
        torch.cat([head.embed(tokens[1:]) for tokens, _ in rows]),
        torch.cat([features[:-1] for _, features in rows]),
        [len(tokens) - 1 for tokens, _ in rows],
        num_passes=3,
    )
    for one_pass in range(3):
        alone = torch.cat([passes(model, head, *row, num_passes=3)[one_pass] for row in rows])
        torch.testing.assert_close(together[one_pass], alone, atol=2e-6, rtol=1e-5)


def test_the_future_changes_nothing_unless_published(drafter):
    model, head = drafter
    tokens, features = random_row(9)
    changed = features.clone()
    changed[6:] += 1.0
    for attention, leaks in (("causal", False), (PUBLISHED, True)):
        before = passes(model, head, tokens, features, num_passes=3, attention=attention)
        after = passes(model, head, tokens, changed, num_passes=3, attention=attention)
        torch.testing.assert_close(before[0][:6], after[0][:6], atol=0, rtol=0)
        assert torch.equal(before[2][:6], after[2][:6]) != leaks


def test_stream_mask_is_the_drawn_one():
    drawn = [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]
    assert stream_mask(5, 2).int().tolist() == drawn


def test_gradients_flow_through_keys_of_earlier_streams_but_not_through_features(drafter):
    model, head = drafter
    tokens, features = random_row(6)
    features = features.requires_grad_()
    predictions = aligned_passes(model, head.embed(tokens[1:]), features[:-1], [5], num_passes=2)
    (gradient,) = torch.autograd.grad(predictions[1][4].sum(), features)
    assert gradient[:4].abs().sum() > 0  # keys of stream 0 before the query
    assert gradient[4].abs().sum() == 0  # its own input is a detached prediction
