"""Averaging: exact at the ends, linear between, refused between draft models that do not fit together."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taps import average
from taps.model.averaging import weighted_mean
from taps.model.checkpoint import read_drafter_tensors, save_drafter
from taps.model.drafter import DraftModel
from taps.plumbing.errors import TapsError
from taps.plumbing.lineage import inputs_of
from taps.plumbing.provenance import digest_of
from tests.support.draft_models import CONFIG


def write(folder, seed, *, config=CONFIG, dtype=torch.float32, target="t"):
    torch.manual_seed(seed)
    tensors = {name: tensor.to(dtype) for name, tensor in DraftModel(config).state_dict().items()}
    save_drafter(folder, tensors, config, provenance={"inputs": {"target": target}})
    return folder


def run(tmp_path, *pairs):
    output = tmp_path / "out"
    flags = [flag for folder, weight in pairs for flag in (f"--drafter={folder}", f"--weight={weight}")]
    average.main([*flags, f"--output={output}"])
    return output


def same_bits(a, b) -> bool:
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and torch.equal(a[name].view(torch.uint8), b[name].view(torch.uint8))
        for name in a
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weight_one_is_the_same_model_bit_for_bit(tmp_path, dtype):
    a, b = write(tmp_path / "a", 0, dtype=dtype), write(tmp_path / "b", 1, dtype=dtype)
    for pairs in ([(a, 1.0)], [(a, 1.0), (b, 0.0)], [(b, 0.0), (a, 1.0)]):
        assert same_bits(read_drafter_tensors(run(tmp_path, *pairs)), read_drafter_tensors(a))
    negative_zero = {"x": torch.tensor([-0.0, 1.0])}
    assert same_bits(weighted_mean([negative_zero, {"x": torch.ones(2)}], [1.0, 0.0]), negative_zero)


@settings(max_examples=30, deadline=None)
@given(
    values=st.lists(st.lists(st.floats(-8, 8, width=32), min_size=3, max_size=3), min_size=1, max_size=4),
    seed=st.integers(0, 100),
)
def test_mean_is_the_weighted_sum_in_float32(values, seed):
    weights = torch.rand(len(values), generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.01
    weights /= weights.sum()
    models = [{"x": torch.tensor(row, dtype=torch.bfloat16)} for row in values]
    expected = sum(w * model["x"].double() for w, model in zip(weights, models, strict=True))
    mean = weighted_mean(models, weights.tolist())["x"]
    assert mean.dtype == torch.bfloat16
    assert torch.allclose(mean.double(), expected, rtol=2**-8, atol=1e-5)


def test_stage_averages_and_records_what_it_averaged(tmp_path):
    a, b = write(tmp_path / "a", 0), write(tmp_path / "b", 1)
    output = run(tmp_path, (a, 0.25), (b, 0.75))
    first, second, mean = (read_drafter_tensors(folder) for folder in (a, b, output))
    for name in first:
        assert torch.allclose(mean[name], 0.25 * first[name] + 0.75 * second[name], atol=1e-7)
    assert inputs_of(output, kind="drafter")["target"] == "t"
    assert len({digest_of(folder) for folder in (a, b, output)}) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "other"}, "made from another target"),
        ({"config": replace(CONFIG, bias=True)}, "bias, expected False, found True"),
        ({"config": replace(CONFIG, intermediate_size=40)}, "intermediate_size, expected 48, found 40"),
        ({"dtype": torch.bfloat16}, r"another dtype, expected torch.float32, found torch.bfloat16"),
    ],
)
def test_models_that_do_not_fit_are_refused(tmp_path, changes, message):
    a, b = write(tmp_path / "a", 0), write(tmp_path / "b", 1, **changes)
    with pytest.raises(TapsError, match=message):
        run(tmp_path, (a, 0.5), (b, 0.5))


def test_weights_must_sum_to_one(tmp_path):
    a = write(tmp_path / "a", 0)
    for weights in ((0.5, 0.4), (0.5, 0.5001)):
        with pytest.raises(TapsError, match="do not sum to 1"):
            run(tmp_path, *((a, weight) for weight in weights))
    with pytest.raises(TapsError, match="one per --drafter"):
        average.main([f"--drafter={a}", f"--drafter={a}", "--weight=1", f"--output={tmp_path / 'out'}"])
