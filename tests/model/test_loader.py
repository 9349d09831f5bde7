"""Batches arrive in order while others are loaded; those of a device hold what those of the host do."""

from __future__ import annotations

import threading

import pytest
import torch

from taps.model.batches import Conversations, Plan, RowId
from taps.model.feature_store import FeatureStore
from taps.model.loader import batches_of, in_flight
from taps.model.noise import Noise
from tests.model.test_feature_store import make_store
from tests.support.host_time import training_step_s
from tests.support.training_fixtures import RandomFeatures, make_rows, write_tokens


@pytest.fixture(scope="module")
def conversations(tmp_path_factory):
    """Two corpora, their features on disk."""
    folder = tmp_path_factory.mktemp("loader")
    tokens, features = {}, {}
    for seed, corpus in enumerate(("math", "chat")):
        rows, flags = make_rows(seed)
        tokens[corpus] = write_tokens(folder / f"{corpus}.safetensors", rows, flags)
        generator = torch.Generator().manual_seed(seed)
        make_store(folder / corpus, [torch.randn((len(row), 8), generator=generator) for row in rows])
        features[corpus] = FeatureStore(folder / corpus)
    return Conversations(tokens, features)


ROWS = [RowId("math", 3), RowId("chat", 0), RowId("math", 17), RowId("chat", 11)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_on_a_device_are_the_batch_of_the_host(conversations, dtype):
    host, moved = conversations.batch(ROWS), conversations.read(ROWS).on(torch.empty(0, dtype=dtype))
    assert moved.lengths == host.lengths
    for name in ("next_tokens", "supervised", "features", "targets"):
        expected, found = getattr(host, name), getattr(moved, name)
        assert torch.equal(found, expected.to(found.dtype)), name
    assert moved.features.dtype == moved.targets.dtype == dtype
    assert moved.next_tokens.dtype == moved.supervised.dtype == torch.int64


def test_noise_reaches_the_inputs_alone_and_belongs_to_a_place(conversations):
    noise, like = Noise(amplitude=0.2, seed=3), torch.empty(0)
    plain = conversations.read(ROWS).on(like)
    noisy = conversations.read(ROWS, noise=noise, places=range(5, 9)).on(like)
    difference = noisy.features - plain.features
    assert 0.09 < difference.abs().max() <= 0.1 + 1e-6
    assert torch.equal(noisy.targets, plain.targets)
    alone = conversations.read(ROWS[2:3], noise=noise, places=[7]).on(like)
    assert torch.equal(noisy.features.split(noisy.lengths)[2], alone.features)
    assert torch.equal(conversations.read(ROWS, noise=Noise(), places=range(4)).on(like).features, plain.features)


def test_features_are_read_as_they_lie_on_disk(conversations):
    read = conversations.read(ROWS)
    assert read.features.dtype == torch.bfloat16
    assert len(read.features) == sum(map(conversations.num_tokens, ROWS))  # once, though inputs and targets overlap
    with pytest.raises(ValueError, match="row 3 has"):
        conversations._features["math"].read_into(3, torch.empty((1, 8), dtype=torch.bfloat16))


def test_features_that_are_computed_are_taken_from_where_they_are(tmp_path):
    rows, flags = make_rows(0)
    tokens = write_tokens(tmp_path / "math.safetensors", rows, flags)
    conversations = Conversations({"math": tokens}, {"math": RandomFeatures(rows)})
    assert not conversations.is_stored
    batch, own = conversations.read([RowId("math", 1)]).on(torch.empty(0)), RandomFeatures(rows).rows([1])[0]
    assert torch.equal(batch.features, own[:-2])


@pytest.mark.parametrize("accumulation", [1, 2])
def test_every_process_gets_its_own_rows(conversations, accumulation):
    plan = Plan([RowId(corpus, i) for corpus in ("math", "chat") for i in range(18)], 8, 0)
    seen = {}
    for rank in range(2):
        arguments = {"noise": Noise(), "accumulation": accumulation, "rank": rank, "world": 2, "like": torch.empty(0)}
        for step, batches in batches_of(conversations, plan, steps=range(2, 5), **arguments):
            assert len(batches) == accumulation
            seen[step, rank] = [length for batch in batches for length in batch.lengths]
    for step in range(2, 5):
        lengths, _ = conversations.size(plan.rows_of(step))
        assert sorted(seen[step, 0] + seen[step, 1]) == sorted(lengths)


@pytest.mark.parametrize("ahead", [1, 4])
def test_steps_come_in_order_and_so_many_are_loaded_at_once(ahead):
    running, most, gate = set(), [], threading.Semaphore(0)

    def load(step):
        running.add(step)
        most.append(len(running))
        gate.acquire(timeout=20)
        running.discard(step)
        return step

    found = []
    timer = threading.Timer(0.3, lambda: gate.release(30))
    timer.start()
    for step in in_flight(load, range(10), ahead=ahead):
        found.append(step)
    timer.join()
    assert found == list(range(10))
    assert max(most) == ahead


def test_a_failing_read_reaches_the_run():
    def load(step):
        if step == 3:
            raise OSError("gone")
        return step

    steps = in_flight(load, range(6), ahead=2)
    assert [next(steps) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="gone"):
        next(steps)


def test_a_step_of_a_device_costs_the_host_a_quarter_of_one_of_its_own_at_most():
    """`python -m tests.support.host_time` measures the whole of it; the ratio is 12 there."""
    own, device = (training_step_s(law_of_host=law, num_rows=2, repeats=2) for law in (True, False))
    assert own > 4 * device
