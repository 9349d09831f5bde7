"""Operations counted from shapes against PyTorch's own counter on a real training step."""

from itertools import repeat

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from taps.model.alignment import aligned_passes
from taps.model.drafter import DrafterConfig
from taps.model.flops import TrainingCost, num_steps_within, target_flops, training_cost
from taps.model.losses import LossWeights, draft_losses
from tests.support.draft_models import tiny_drafter
from tests.support.live_fixtures import tiny_target


def counted(model, head, lengths, num_passes):
    """Returns (products with weights, products of attention) that PyTorch counts in one forward and backward pass."""
    num_inputs = sum(lengths)
    features, embeddings = torch.randn(num_inputs + 1, 32), head.embed(torch.arange(num_inputs))
    supervised = torch.arange(0, num_inputs, 2)
    weights = LossWeights(top_k=float(num_passes > 1))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):  # others are not in its list
        passes = aligned_passes(model, embeddings, features[:-1], lengths, num_passes=num_passes)
        kept = torch.stack([states[supervised] for states in passes])
        draft_losses(kept, features[1:][supervised], head.head, weights).total.backward()
    kinds = counter.get_flop_counts()["Global"]
    return kinds[torch.ops.aten.mm], kinds[torch.ops.aten.bmm], len(supervised)


@pytest.mark.parametrize("num_passes", [1, 3])
def test_training_costs_what_pytorch_counts(num_passes):
    model, head = tiny_drafter()
    lengths = [40, 24]
    products, attention, num_supervised = counted(model, head, lengths, num_passes)
    cost = training_cost(model.config, head_columns=256, num_passes=num_passes)

    norms = num_passes * 6 * 32 * sum(lengths)  # counted with the weights; no matrix product
    assert cost.per_input * sum(lengths) + cost.per_supervised * num_supervised - norms == products

    # kernels that mask compute the hidden half too; each of the 0 + 1 + 2 diagonals is one more product per query
    diagonals = 3 * 2 * 32 * sum(lengths) * (num_passes * (num_passes - 1) // 2)
    all_pairs = sum(length**2 for length in lengths)
    assert cost.per_pair * all_pairs + diagonals == attention
    assert cost.flops(lengths, num_supervised) == pytest.approx(
        products + norms + (attention - diagonals) / 2, rel=1e-12
    )


def test_target_costs_what_pytorch_counts():
    target = tiny_target(vocab=40)
    config = DrafterConfig.from_json(target.config)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        target.features(torch.arange(30)[None])
    kinds = counter.get_flop_counts()["Global"]
    hidden_half, norms = kinds[torch.ops.aten.bmm] / 2, 2 * 2 * 32 * 30
    ours = target_flops(config, num_layers=2, num_tokens=30, context=15)
    assert ours == pytest.approx(sum(kinds.values()) - hidden_half + norms, rel=0.01)  # RoPE's own product is left out


@given(costs=st.lists(st.floats(1.0, 9.0), min_size=1, max_size=30), share=st.floats(0.0, 1.2))
def test_the_number_of_steps_is_the_one_nearest_to_the_budget(costs, share):
    budget = share * sum(costs)
    found = num_steps_within(budget, costs)
    missed = [abs(sum(costs[:steps]) - budget) for steps in range(1, len(costs) + 1)]
    assert missed[found - 1] == pytest.approx(min(missed), abs=1e-9)


def test_endless_steps_end_when_the_budget_is_spent():
    cost = TrainingCost(per_input=2.0, per_pair=1.0, per_supervised=10.0)
    assert cost.flops([3, 1], 2) == 2 * 4 + (9 + 1) / 2 + 10 * 2
    assert num_steps_within(1000.0, repeat(cost.flops([3, 1], 2))) == 30
    assert num_steps_within(0.0, repeat(1.0)) == 1
