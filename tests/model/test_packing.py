"""Packed products: what the plain layers gave, whoever asks, and only where nothing can be lost."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from taps.model.packing import (
    FusedRMSNorm,
    PackedLinear,
    PackedProduct,
    can_pack,
    pack_for_decoding,
    pack_head,
)
from taps.model.text_cache import TextCache
from tests.support.draft_models import tiny_drafter
from tests.support.live_fixtures import FAMILIES, draft_model, head_of, tiny_model, tiny_target

pytestmark = pytest.mark.skipif(not can_pack(torch.zeros(2, 2)), reason="this build of torch has no oneDNN")


@pytest.mark.parametrize("rows", [1, 2, 5, 17, 64])
@pytest.mark.parametrize("bias", [False, True])
def test_a_packed_product_is_the_plain_one(rows: int, bias: bool) -> None:
    torch.manual_seed(rows)
    weight, x = torch.randn(96, 40), torch.randn(1, rows, 40)
    shift = torch.randn(96) if bias else None
    torch.testing.assert_close(PackedProduct(weight, shift)(x), F.linear(x, weight, shift), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", [*FAMILIES, "GPT2Config"])
def test_a_packed_family_says_what_it_said(family: str) -> None:
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    with torch.inference_mode():
        expected = tiny_model(family)(tokens).logits
        model = tiny_model(family)
        pack_for_decoding(model)
        torch.testing.assert_close(model(tokens).logits, expected, atol=1e-4, rtol=1e-4)
    assert any(isinstance(module, PackedLinear) for module in model.modules())


def test_norms_of_llama_are_one_call_and_bit_for_bit_the_same() -> None:
    model = tiny_model("LlamaConfig")
    own, x = model.model.norm, torch.randn(2, 3, 32)
    nn.init.uniform_(own.weight, 0.5, 1.5)
    expected = own(x)
    pack_for_decoding(model)
    assert isinstance(model.model.norm, FusedRMSNorm)
    assert torch.equal(model.model.norm(x), expected)


class OddRMSNorm(nn.Module):
    """A norm that scales by 1 + weight, as some families do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.full((32,), 0.5)), 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (32,), 1 + self.weight, self.eps)


def test_a_norm_that_is_another_stays() -> None:
    model = nn.Sequential(OddRMSNorm())
    pack_for_decoding(model)
    assert isinstance(model[0], OddRMSNorm)


class Siblings(nn.Module):
    def __init__(self, outs: tuple[int, int, int] = (8, 4, 4)) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(16, size) for size in outs)


@pytest.mark.parametrize("order", ["qkv", "vkq", "qqkvv", "kq", "q"])
def test_layers_of_one_input_may_ask_in_any_order_and_again(order: str) -> None:
    torch.manual_seed(0)
    plain, packed = Siblings(), Siblings()
    packed.load_state_dict(plain.state_dict())
    pack_for_decoding(packed)
    first, second = torch.randn(3, 16), torch.randn(3, 16)
    for x in (first, second, first):
        for name in order:
            layer = f"{name}_proj"
            torch.testing.assert_close(getattr(packed, layer)(x), getattr(plain, layer)(x), atol=1e-5, rtol=1e-5)


def test_layers_of_one_input_that_read_different_inputs_are_right() -> None:
    torch.manual_seed(0)
    plain, packed = Siblings(), Siblings()
    packed.load_state_dict(plain.state_dict())
    pack_for_decoding(packed)
    inputs = {name: torch.randn(2, 16) for name in ("q_proj", "k_proj", "v_proj")}
    for name, x in inputs.items():
        torch.testing.assert_close(getattr(packed, name)(x), getattr(plain, name)(x), atol=1e-5, rtol=1e-5)


def test_a_layer_with_something_around_it_stays_plain() -> None:
    hooked, wrapped = nn.Linear(4, 4), nn.Linear(4, 4)
    hooked.register_forward_hook(lambda module, args, output: output + 1)
    vars(wrapped)["forward"] = lambda x: x  # as libraries do that wrap a layer
    model = nn.Sequential(hooked, wrapped, nn.Linear(4, 4))
    pack_for_decoding(model)
    assert [type(layer) for layer in model] == [nn.Linear, nn.Linear, PackedLinear]


def test_double_precision_is_not_packed() -> None:
    model = nn.Sequential(nn.Linear(4, 4).double())
    pack_for_decoding(model)
    assert type(model[0]) is nn.Linear


def test_a_packed_drafter_and_head_are_the_plain_ones() -> None:
    target = tiny_target()
    head, plain, packed = head_of(target), draft_model(target, 3), draft_model(target, 3)
    pack_for_decoding(packed)
    tokens, features = torch.tensor([1, 2, 3, 4]), torch.randn(4, 32)
    with torch.inference_mode():
        expected = plain(head.embed(tokens), features, [4])
        found = packed(head.embed(tokens), features, [4])
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(pack_head(head).logits(features), head.logits(features), atol=1e-4, rtol=1e-4)


def test_a_packed_head_keeps_its_draft_vocabulary() -> None:
    _, head = tiny_drafter()
    packed = pack_head(head)
    rows = torch.tensor([0, 5, 255])
    assert torch.equal(packed.to_tokens(rows), head.to_tokens(rows))


def test_a_text_cache_holds_what_was_kept_and_grows() -> None:
    rng = torch.Generator().manual_seed(0)
    cache, reference = TextCache(2, room=4), [torch.zeros(1, 2, 0, 3)] * 2
    for size, path in ((3, (0, 1, 2)), (4, (0, 3)), (6, (0, 1)), (9, (0, 2, 7, 8)), (1, (0,))):
        length = cache.get_seq_length()
        for layer in range(2):
            states = torch.randn(1, 2, size, 3, generator=rng)
            keys, values = cache.update(states, 2 * states, layer)
            reference[layer] = torch.cat((reference[layer], states), dim=2)
            assert torch.equal(keys, reference[layer])
            assert torch.equal(values, 2 * reference[layer])
            reference[layer] = reference[layer][:, :, [*range(length), *(length + place for place in path)]]
        cache.keep(length, [length + place for place in path])
        for held, expected in zip(cache.layers, reference, strict=True):
            assert torch.equal(held.keys, expected)  # type: ignore[union-attr, arg-type]
            assert torch.equal(held.values, 2 * expected)  # type: ignore[union-attr, arg-type]
