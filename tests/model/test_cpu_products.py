"""The faster library computes in fp32 as well: errors are those of fp32, a thousand times below bfloat16's."""

from __future__ import annotations

import pytest
import torch

from taps.model.cpu_products import use_widest_float32


@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 576, 2048), (256, 576, 2048), (64, 1536, 576)])
def test_products_are_fp32(rows: int, inner: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(0)
    left = torch.randn((rows, inner), generator=generator)
    right = torch.randn((columns, inner), generator=generator)
    use_widest_float32()
    error = (left @ right.T).double() - left.double() @ right.double().T
    rounded = left.bfloat16().double() @ right.bfloat16().double().T - left.double() @ right.double().T
    assert error.abs().max() < 1e-3 * rounded.abs().max()
