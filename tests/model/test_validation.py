"""What a validation reports: losses per supervised token, agreement, and the acceptance length of a replay."""

import math

import pytest
import torch
import torch.nn.functional as F

from taps.decoding.drafting import DraftOptions
from taps.decoding.validation import HeldOut, acceptance_length, read_held_out, validate
from taps.model.batches import Conversations, RowId
from taps.model.losses import LossWeights
from taps.plumbing.artefacts import write_tensors
from tests.support.draft_models import naive_output, tiny_drafter
from tests.support.training_fixtures import RandomFeatures, make_rows, write_tokens

OPTIONS = DraftOptions(depth=2, top_k=1, num_nodes=3)  # a chain: the best token after the best token


@pytest.fixture(scope="module")
def drafter():
    return tiny_drafter()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rows, flags = make_rows(0, count=20)
    path = write_tokens(tmp_path_factory.mktemp("validation") / "math.safetensors", rows, flags)
    return Conversations({"math": path}, {"math": RandomFeatures(rows)}), [RowId("math", i) for i in range(20)]


def test_losses_and_agreement_are_means_over_supervised_tokens(drafter, data):
    (model, head), (conversations, rows) = drafter, data
    found = validate(model, head, conversations, HeldOut(rows=rows, traces={}, options=OPTIONS), LossWeights(top_k=1.0))
    batch = conversations.batch(rows)  # 20 rows at once; the function takes 16 and 4
    with torch.no_grad():
        predictions = model(head.embed(batch.next_tokens), batch.features, batch.lengths)[0][batch.supervised]
        logits, true_logits = head.logits(predictions), head.logits(batch.targets)
        value = F.smooth_l1_loss(predictions, batch.targets).item()
        probability = F.cross_entropy(logits, true_logits.softmax(-1)).item()
        hits = logits.topk(3).indices == true_logits.argmax(-1, keepdim=True)
    assert found == {
        "validation_value": pytest.approx(value, rel=1e-5),
        "validation_probability": pytest.approx(probability, rel=1e-5),
        "validation_top1": pytest.approx(hits[:, 0].float().mean().item()),
        "validation_top3": pytest.approx(hits.any(-1).float().mean().item()),
    }


def trace_of(*texts, prompt=2):
    lengths = [len(text) for text in texts]
    torch.manual_seed(1)
    return {
        "tokens": torch.tensor([token for text in texts for token in text], dtype=torch.int32),
        "offsets": torch.tensor([0, *lengths]).cumsum(0),
        "prompt_lengths": torch.full((len(texts),), prompt, dtype=torch.int32),
        "features": torch.randn(sum(lengths), 32),
    }


def most_likely_text(model, head, features, length):
    """Returns a text in which `depth + 1` tokens after each root are the draft model's best chain."""
    tokens = [5, 6, 7]  # prompt and first answered token
    while len(tokens) < length:
        path: list[int] = []
        for _ in range(OPTIONS.depth + 1):
            logits = head.logits(naive_output(model, head, torch.tensor(tokens), features, path))
            path.append(int(head.token_ids[logits.argmax()]))
        tokens += [*path, 299]  # the target's own word after the longest path
    return tokens[:length]


def test_tau_is_depth_and_two_when_the_target_follows_the_drafts(drafter):
    model, head = drafter
    features = trace_of(range(19))["features"]
    with torch.inference_mode():
        text = most_likely_text(model, head, features, 2 + 1 + 16)
    trace = trace_of(text) | {"features": features}
    assert acceptance_length(model, head, trace, OPTIONS) == OPTIONS.depth + 2  # 16 tokens in 4 cycles


def test_tau_is_one_when_no_draft_is_right(drafter):
    model, head = drafter
    unknown = next(token for token in range(300) if token not in head.token_ids.tolist())
    trace = trace_of([5, 6, *[unknown] * 9], [5, 6, *[unknown] * 4])
    assert acceptance_length(model, head, trace, OPTIONS) == 1.0


def test_without_a_cycle_there_is_no_tau(drafter):
    model, head = drafter
    assert math.isnan(acceptance_length(model, head, trace_of([5, 6, 7]), OPTIONS))


def test_traces_are_named_by_their_folder(tmp_path, drafter, data):
    (model, head), (conversations, rows) = drafter, data
    path = tmp_path / "heldout_math/t0_s0.safetensors"
    write_tensors(path, trace_of([5, 6, 7, 8]), kind="trace", provenance={})
    held_out = read_held_out(rows[:2], [path], OPTIONS)
    found = validate(model, head, conversations, held_out, LossWeights())
    assert 1.0 <= found["tau_heldout_math"] <= OPTIONS.depth + 2
