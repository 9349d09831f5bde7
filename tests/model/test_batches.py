"""Which input predicts what, which rows a step sees, and noise that depends on nothing but its place."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.model.batches import Conversations, Plan, RowId, read_mixture
from taps.model.hidden_states import FINAL
from taps.model.noise import Noise
from taps.plumbing.artefacts import write_json
from taps.plumbing.errors import TapsError
from tests.support.training_fixtures import make_rows, write_tokens


class FeaturesInMemory:
    """Features of row r, token t: t + 100 r + 1000 seed, in every channel."""

    hidden_states = (FINAL,)

    def __init__(self, rows, seed):
        self._rows = [
            torch.full((len(row), 4), 1000.0 * seed + 100 * r) + torch.arange(len(row))[:, None]
            for r, row in enumerate(rows)
        ]

    def rows(self, indices):
        return [self._rows[index].clone() for index in indices]


@pytest.fixture(scope="module")
def conversations(tmp_path_factory):
    folder = tmp_path_factory.mktemp("batches")
    tokens, features = {}, {}
    for seed, corpus in enumerate(("math", "chat")):
        rows, flags = make_rows(seed)
        tokens[corpus] = write_tokens(folder / f"{corpus}.safetensors", rows, flags)
        features[corpus] = FeaturesInMemory(rows, seed)
    return Conversations(tokens, features)


def one_row(tmp_path, tokens, supervised):
    row = torch.tensor(tokens, dtype=torch.int32)
    path = write_tokens(tmp_path / "tokens.safetensors", [row], [torch.tensor(supervised, dtype=torch.bool)])
    return Conversations({"math": path}, {"math": FeaturesInMemory([row], 0)})


def test_input_t_holds_the_next_token_and_predicts_the_next_feature(tmp_path):
    conversations = one_row(tmp_path, [10, 11, 12, 13, 14, 15], [1, 1, 0, 1, 0, 1])
    batch = conversations.batch([RowId("math", 0)])
    assert batch.next_tokens.tolist() == [11, 12, 13, 14]
    assert batch.features[:, 0].tolist() == [0, 1, 2, 3]
    assert batch.supervised.tolist() == [1, 3]  # the inputs after which tokens 13 and 15 follow
    assert batch.targets[:, 0].tolist() == [2, 4]  # lm_head of these features predicts 13 and 15
    assert batch.lengths == [4]
    assert conversations.size([RowId("math", 0)]) == ([4], 2)


@pytest.mark.parametrize(("length", "supervised"), [(1, [1]), (2, [1, 1]), (4, [1, 1, 0, 0])])
def test_rows_that_teach_nothing_are_not_usable(tmp_path, length, supervised):
    conversations = one_row(tmp_path, list(range(length)), supervised)
    assert conversations.usable([RowId("math", 0)]) == []


row_ids = st.builds(RowId, st.sampled_from(["math", "chat"]), st.integers(0, 17))


@given(rows=st.lists(row_ids, min_size=1, max_size=6), first_place=st.integers(0, 10**7))
def test_a_batch_is_its_rows_end_to_end(conversations, rows, first_place):
    noise, places = Noise(amplitude=0.2, seed=3), range(first_place, first_place + len(rows))
    together = conversations.batch(rows, noise=noise, places=places)
    alone = [conversations.batch([row], noise=noise, places=[place]) for row, place in zip(rows, places, strict=True)]
    assert together.lengths == [length for batch in alone for length in batch.lengths]
    for name in ("next_tokens", "features", "targets"):
        assert torch.equal(getattr(together, name), torch.cat([getattr(batch, name) for batch in alone]))
    starts = torch.tensor([0, *together.lengths]).cumsum(0).tolist()
    shifted = [batch.supervised + start for batch, start in zip(alone, starts, strict=False)]
    assert torch.equal(together.supervised, torch.cat(shifted))
    lengths, num_supervised = conversations.size(rows)
    assert (lengths, num_supervised) == (together.lengths, len(together.supervised))


def test_noise_touches_inputs_only_and_not_the_stored_features(conversations):
    row = [RowId("math", 3)]
    plain = conversations.batch(row)
    noisy = conversations.batch(row, noise=Noise(amplitude=0.2), places=[0])
    assert not torch.equal(noisy.features, plain.features)
    assert torch.equal(noisy.targets, plain.targets)
    assert torch.equal(conversations.batch(row).features, plain.features)
    assert torch.equal(conversations.batch(row, noise=Noise(), places=[0]).features, plain.features)


@given(
    num_rows=st.integers(1, 12), batch_size=st.integers(1, 9), seed=st.integers(0, 5), epochs=st.sampled_from([1, 2, 5])
)
@settings(deadline=None)
def test_every_epoch_is_another_order_of_all_rows(num_rows, batch_size, seed, epochs):
    rows = [RowId("math", i) for i in range(num_rows)]
    plan = Plan(rows, batch_size, seed)
    num_steps = plan.num_steps(epochs)
    assert (num_steps - 1) * batch_size < epochs * num_rows <= num_steps * batch_size
    stream = [row for step in range(num_steps) for row in plan.rows_of(step)]
    for epoch in range(epochs):
        assert sorted(stream[epoch * num_rows : (epoch + 1) * num_rows]) == rows
    assert plan.epoch_of(num_steps) >= epochs
    assert plan.epoch_of(num_steps - 1) < epochs
    assert Plan(rows, batch_size, seed).rows_of(num_steps) == plan.rows_of(num_steps)


def test_orders_differ_between_epochs_and_seeds_and_parts_of_epochs_count():
    rows = [RowId("math", i) for i in range(40)]
    first, second = (Plan(rows, 40, 0).rows_of(step) for step in (0, 1))
    assert first != second
    assert first != Plan(rows, 40, 1).rows_of(0)
    assert Plan(rows, 8, 0).num_steps(0.5) == 3  # 20 rows
    assert Plan(rows, 8, 0).num_steps(1e-9) == 1


def mixture(tmp_path, train):
    path = tmp_path / "mixed.json"
    content = {"corpora": sorted(train), "train": train, "validation": {"math": [19]}, "num_tokens": {}}
    write_json(path, content, kind="mixture", provenance={})
    return path


def test_a_mixture_names_rows_of_its_corpora(tmp_path):
    path = mixture(tmp_path, {"math": [0, 2], "chat": [1]})
    train, validation = read_mixture(path, corpora=["chat", "math"])
    assert train == [("math", 0), ("math", 2), ("chat", 1)]
    assert validation == [("math", 19)]
    with pytest.raises(TapsError, match=r"other corpora than those given, expected \['math'\], found \['chat'\]"):
        read_mixture(path, corpora=["math"])


def test_a_mixture_without_training_rows_is_refused(tmp_path):
    with pytest.raises(TapsError, match="no training rows"):
        read_mixture(mixture(tmp_path, {"math": []}), corpora=["math"])
