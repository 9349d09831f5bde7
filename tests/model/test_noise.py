"""Noise of both laws is uniform, a function of its seed and place alone, and as wide as asked for."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from taps.model.noise import Noise, hashed_uniform


def drawn(noise, lengths, places, *, hidden=64, dtype=torch.float32):
    """Returns the device's noise of rows, on a CPU: what it adds to zeros."""
    inputs = torch.zeros((sum(lengths), hidden), dtype=dtype)
    noise.add_to(inputs, torch.from_numpy(noise.keys(lengths, places)), lengths)
    return inputs


@pytest.mark.parametrize("law", ["host", "device"])
@pytest.mark.parametrize(("published", "widths"), [(False, [0.2, 0.2]), (True, [0.2 * 512 / 64, 0.2 * 512 / 2048])])
def test_noise_is_as_wide_in_short_rows_as_in_long_ones_unless_published(law, published, widths):
    noise = Noise(amplitude=0.2, published=published)
    for length, width in zip((64, 2048), widths, strict=True):
        found = noise.draw([length, 64], 5) if law == "host" else drawn(noise, [length], [5])
        assert found.abs().max() <= width / 2
        assert found.max() - found.min() > 0.99 * width
        assert found.std().item() == pytest.approx(width / 12**0.5, rel=0.02)  # uniform
        assert abs(found.mean().item()) < 0.03 * width  # 7 standard errors of the shorter


def test_noise_of_the_host_is_a_function_of_seed_and_place():
    def draw(seed, place):
        return Noise(amplitude=1.0, seed=seed).draw([8, 4], place)

    before = torch.get_rng_state()
    assert torch.equal(draw(1, 7), draw(1, 7))
    assert torch.equal(before, torch.get_rng_state())
    others = [draw(1, 8), draw(2, 7), draw(0, 7)]
    assert not any(torch.equal(draw(1, 7), other) for other in others)


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    first_place=st.integers(0, 2**40),
    seed=st.integers(0, 2**40),
)
def test_noise_of_a_device_does_not_depend_on_the_batch(lengths, first_place, seed):
    noise, places = Noise(amplitude=1.0, seed=seed), range(first_place, first_place + len(lengths))
    together = drawn(noise, lengths, places, hidden=8).split(lengths)
    for row, length, place in zip(together, lengths, places, strict=True):
        assert torch.equal(row, drawn(noise, [length], [place], hidden=8))


def test_noise_of_a_device_differs_by_seed_place_position_and_channel():
    whole = drawn(Noise(amplitude=1.0), [300, 300], [7, 8])
    assert len(whole.unique()) > 0.99 * whole.numel() * (1 - whole.numel() / 2**25)  # 24 bits: some meet by chance
    for seed in (1, 2**32):
        assert not torch.equal(whole, drawn(Noise(amplitude=1.0, seed=seed), [300, 300], [7, 8]))


def test_neighbours_of_a_device_are_not_correlated():
    found = drawn(Noise(amplitude=1.0), [2000, 2000], [7, 8], hidden=256) * 12**0.5
    bound = 6 / found[1:, 1:].numel() ** 0.5  # six standard errors
    for other in (found.roll(1, 0), found.roll(1, 1), found.roll(2000, 0), found.roll((1, 1), (0, 1))):
        assert abs((found * other)[1:, 1:].mean()) < bound
    shares = torch.histc(found, bins=64) / found.numel()
    chi_squared = ((shares - 1 / 64) ** 2 * 64).sum() * found.numel()
    assert chi_squared < 140  # 63 degrees of freedom: p = 1e-7


def test_noise_is_added_before_rounding():
    noise, inputs = Noise(amplitude=0.2), torch.full((9, 64), 0.3).bfloat16()
    keys = torch.from_numpy(noise.keys([9], [3]))
    expected = (inputs.float() + drawn(noise, [9], [3])).bfloat16()
    noise.add_to(inputs, keys, [9])
    assert torch.equal(inputs, expected)


def test_the_hash_is_the_same_in_numpy_and_torch():
    words = torch.arange(5000) * 0x9E3779B9
    from taps.model.noise import _mixed

    expected = (_mixed(words.numpy().astype(np.uint64)) >> np.uint64(8)).astype(np.float64) * 2.0**-24
    assert np.array_equal(hashed_uniform(words.clone()).numpy(), expected.astype(np.float32))
