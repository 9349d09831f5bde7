"""The training loop against plain PyTorch written out, its schedule, and who gets a gradient."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from taps.model.alignment import aligned_passes
from taps.model.batches import Conversations, Plan, RowId
from taps.model.distributed import make_engine, start_processes
from taps.model.family import FAMILIES
from taps.model.flops import num_parameters
from taps.model.losses import LossWeights
from taps.model.noise import Noise
from taps.model.training import DraftTraining, Recipe, train
from tests.model.test_losses import written_out
from tests.support.draft_models import CONFIG, tiny_drafter
from tests.support.training_fixtures import RandomFeatures, make_rows, write_tokens

NUM_STEPS, BATCH_SIZE = 7, 4


def make_recipe(**changes):
    settings: dict[str, Any] = {
        "num_steps": NUM_STEPS,
        "learning_rate": 3e-3,
        "warmup_share": 0.3,
        "accumulation": 1,
        "loss_weights": LossWeights(probability=0.4, top_k=1.0, k=5),
        "num_passes": 2,
        "attention": "causal",
        "noise": Noise(amplitude=0.2, seed=1),
        "clip_value": 0.0,
        "fingerprint": "f",
    }
    return Recipe(**settings | changes)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rows, flags = make_rows(0, count=20)
    path = write_tokens(tmp_path_factory.mktemp("training") / "math.safetensors", rows, flags)
    return Conversations({"math": path}, {"math": RandomFeatures(rows)}), [RowId("math", i) for i in range(20)]


def make(recipe, *, clip_norm=0.0, zero_stage=0, dtype=torch.float32):
    start_processes("cpu")
    model, head = tiny_drafter()
    return make_engine(
        DraftTraining(model.to(dtype), head, recipe, FAMILIES["hass"]),
        betas=(0.9, 0.95),
        weight_decay=0.01,
        clip_norm=clip_norm,
        zero_stage=zero_stage,
        dtype=dtype,
        micro_batch_size=BATCH_SIZE // recipe.accumulation,
        accumulation=recipe.accumulation,
    )


def run(engine, recipe, data, state, **options):
    """Returns the outcome of the loop on four rows a step."""
    conversations, rows = data
    defaults: dict[str, Any] = {"checkpoint_every_s": 1e9, "validate": dict, "head_columns": 256}
    return train(engine, conversations, Plan(rows, BATCH_SIZE, 0), recipe, state=state, **defaults | options)


# --- the schedule ----------------------------------------------------------------------------------------------------


@given(num_steps=st.integers(1, 400), warmup_share=st.floats(0.0, 0.5))
def test_the_rate_rises_to_its_peak_and_falls_to_the_end(num_steps, warmup_share):
    recipe = make_recipe(num_steps=num_steps, warmup_share=warmup_share, learning_rate=1.0)
    rates = [recipe.learning_rate_at(step) for step in range(num_steps)]
    warmup = max(1, round(warmup_share * num_steps))
    assert rates[warmup - 1] == max(rates) == 1.0
    assert rates[:warmup] == pytest.approx([(step + 1) / warmup for step in range(warmup)])
    left = num_steps - warmup
    assert rates[warmup:] == pytest.approx([(left - step) / left for step in range(left)])
    assert min(rates) > 0  # no step is wasted; the rate would be 0 after the last
    assert recipe.learning_rate_at(num_steps) == 0 or left == 0


# --- the loop --------------------------------------------------------------------------------------------------------


def plain_pytorch(conversations, plan, recipe, clip):
    """Returns the weights after all steps, by the formulas of the design on whole batches."""
    model, head = tiny_drafter()
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    warmup, num_supervised = round(0.3 * NUM_STEPS), []
    for step in range(NUM_STEPS):
        rising, falling = (step + 1) / warmup, (NUM_STEPS - step) / (NUM_STEPS - warmup)
        optimizer.param_groups[0]["lr"] = 3e-3 * min(rising, falling)
        places = range(step * BATCH_SIZE, (step + 1) * BATCH_SIZE)
        rows = [plan.row_at(place) for place in places]
        batch = conversations.batch(rows, noise=recipe.noise, places=places)
        embeddings = head.embed(batch.next_tokens)
        passes = aligned_passes(model, embeddings, batch.features, batch.lengths, num_passes=recipe.num_passes)
        kept = torch.stack([states[batch.supervised] for states in passes])
        value, probability, top_k = written_out(kept, batch.targets, head.head, recipe.loss_weights)
        num_supervised.append(len(batch.supervised))
        optimizer.zero_grad()
        ((value + 0.4 * probability + 1.0 * top_k) / num_supervised[-1]).backward()
        clip(model.parameters())
        optimizer.step()
    return model.state_dict(), num_supervised


CLIPPINGS = {
    "none": ({}, {}, lambda parameters: None),
    "by norm": ({}, {"clip_norm": 0.05}, lambda parameters: nn.utils.clip_grad_norm_(parameters, 0.05)),
    "by value": ({"clip_value": 1e-4}, {}, lambda parameters: nn.utils.clip_grad_value_(parameters, 1e-4)),
}


@pytest.mark.parametrize(("clipping", "accumulation"), [("none", 2), ("by norm", 1), ("by norm", 4), ("by value", 2)])
def test_steps_are_those_of_plain_pytorch_on_the_whole_batch(tmp_path, data, clipping, accumulation):
    (conversations, rows), (in_recipe, in_engine, clip) = data, CLIPPINGS[clipping]
    recipe = make_recipe(accumulation=accumulation, **in_recipe)
    plan = Plan(rows, BATCH_SIZE, 0)
    engine = make(recipe, **in_engine)
    outcome = run(engine, recipe, data, tmp_path, validate=lambda: {"seen": True})
    expected, num_supervised = plain_pytorch(conversations, plan, recipe, clip)
    unclipped, _ = plain_pytorch(conversations, plan, recipe, lambda parameters: None)
    for name, tensor in engine.module.drafter.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], atol=1e-5, rtol=0)
    moved = max(float((expected[name] - unclipped[name]).abs().max()) for name in expected)
    assert (moved > 1e-4) == (clipping != "none")  # clipping shows
    assert len(set(num_supervised)) > 1
    assert outcome.num_supervised == sum(num_supervised)
    assert outcome.num_tokens == sum(sum(conversations.size(plan.rows_of(step))[0]) for step in range(NUM_STEPS))
    assert [entry["step"] for entry in outcome.metrics] == [5, 7]  # 20 rows are 5 steps; then the end
    assert all(entry["seen"] for entry in outcome.metrics)


def test_reported_losses_are_means_over_the_epochs_supervised_tokens(tmp_path, data):
    conversations, rows = data
    recipe = make_recipe(num_steps=5, learning_rate=0.0, noise=Noise(), num_passes=1)  # one epoch, nothing moves
    outcome = run(make(recipe), recipe, data, tmp_path)
    model, head = tiny_drafter()
    batch = conversations.batch(rows)
    with torch.no_grad():
        (kept,) = aligned_passes(model, head.embed(batch.next_tokens), batch.features, batch.lengths)
        losses = written_out(kept[batch.supervised][None], batch.targets, head.head, recipe.loss_weights)
    (entry,) = outcome.metrics
    for name, total in zip(("value", "probability", "top_k"), losses, strict=True):
        assert entry[name] == pytest.approx(total.item() / len(batch.supervised), rel=1e-5)


# --- who gets a gradient ---------------------------------------------------------------------------------------------


def test_gradients_reach_exactly_the_supervised_positions(data):
    conversations, rows = data
    model, head = tiny_drafter()
    arrived: list[Any] = []
    model.layer.mlp.register_full_backward_hook(lambda module, into, out: arrived.extend(out))
    batch = conversations.batch(rows[:5])
    losses = DraftTraining(model, head, make_recipe(num_passes=3), FAMILIES["hass"])(batch)
    losses.total.backward()
    assert len(arrived) == 3  # the predictions of each pass: no later pass reaches back into them
    for gradient in arrived:
        assert gradient.abs().sum(-1).nonzero()[:, 0].tolist() == batch.supervised.tolist()
    assert 0 < len(batch.supervised) < sum(batch.lengths)


@pytest.mark.parametrize("zero_stage", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_optimizer_knows_the_draft_model_and_nothing_else(zero_stage, dtype):
    engine = make(make_recipe(), zero_stage=zero_stage, dtype=dtype)
    in_groups = [parameter for group in engine.optimizer.param_groups for parameter in group["params"]]
    assert sum(parameter.numel() for parameter in in_groups) == num_parameters(CONFIG)
    assert all(name.startswith("drafter.") for name, _ in engine.module.named_parameters())
    assert not list(engine.module.buffers())
    assert all(parameter.dtype == torch.float32 for parameter in in_groups) or zero_stage  # master weights
    assert {group["lr"] for group in engine.optimizer.param_groups} == {0.0}


def test_the_targets_ends_stay_as_they_are(tmp_path, data):
    recipe = make_recipe(num_steps=2)
    engine = make(recipe)
    head = engine.module._head
    before = SimpleNamespace(embedding=head.embedding.clone(), head=head.head.clone())
    run(engine, recipe, data, tmp_path)
    assert torch.equal(head.embedding, before.embedding)
    assert torch.equal(head.head, before.head)
    assert not head.embedding.requires_grad
    assert not head.head.requires_grad
