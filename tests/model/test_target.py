"""The target: the cache that it really fills, and the attention that it runs on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from taps.model import attention
from taps.model.attention import GROUPED, choose_kernels, grouped_attention
from taps.model.target import load_target
from taps.plumbing.errors import TapsError
from tests.support.live_fixtures import FAMILIES, save_word_target, tiny_model, tiny_target


class _Wrapped:
    """A model whose decoder is another than its own."""

    def __init__(self, model: Any, decoder: Any) -> None:
        self._model, self._decoder = model, decoder

    def get_decoder(self) -> Any:
        return self._decoder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class _Decoder:
    def __init__(self, decoder: Any) -> None:
        self.decoder = decoder


class _OlderDecoder(_Decoder):
    """Knows its cache by the name that releases before 5.24 had, and swallows the newer one, as they do."""

    def forward(self, input_ids: Any, past_key_values: Any = None, **kwargs: Any) -> Any:
        kwargs.pop("cache", None)
        own = "cache" if "cache" in inspect.signature(self.decoder.forward).parameters else "past_key_values"
        return self.decoder(input_ids=input_ids, **{own: past_key_values}, **kwargs)

    __call__ = forward


class _ForgetfulDecoder(_Decoder):
    def forward(self, input_ids: Any, cache: Any = None, **kwargs: Any) -> Any:
        return self.decoder(input_ids=input_ids, **kwargs)

    __call__ = forward


class _CachelessDecoder(_Decoder):
    def forward(self, input_ids: Any, **kwargs: Any) -> Any:
        return self.decoder(input_ids=input_ids, **kwargs)

    __call__ = forward


TOKENS = torch.tensor([[1, 2, 3, 4, 5]])


@pytest.mark.parametrize("make_cache", ["new_cache", "new_text_cache"])
def test_an_older_release_reads_from_its_cache_too(make_cache: str) -> None:
    target = tiny_target()
    older = replace(target, model=_Wrapped(target.model, _OlderDecoder(target.model.get_decoder())))
    with torch.inference_mode():
        expected = target.features(TOKENS)
        cache = getattr(older, make_cache)()
        parts = [older.features(TOKENS[:, :3], cache=cache), older.features(TOKENS[:, 3:], cache=cache)]
    torch.testing.assert_close(torch.cat(parts, dim=1), expected, atol=1e-5, rtol=1e-5)


def test_a_model_that_does_not_fill_its_cache_is_refused_at_its_first_forward() -> None:
    target = tiny_target()
    forgetful = replace(target, model=_Wrapped(target.model, _ForgetfulDecoder(target.model.get_decoder())))
    with pytest.raises(TapsError, match="does not keep what it reads"):
        forgetful.features(TOKENS, cache=DynamicCache())
    cacheless = replace(target, model=_Wrapped(target.model, _CachelessDecoder(target.model.get_decoder())))
    with pytest.raises(TapsError, match="takes no cache"):
        cacheless.features(TOKENS, cache=DynamicCache())


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 2)])
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("boolean", [True, False])
def test_attention_of_grouped_heads_is_the_library_s_bit_for_bit(
    heads: tuple[int, int], rows: int, boolean: bool
) -> None:
    torch.manual_seed(0)
    shapes = ((heads[0], rows), (heads[1], 9), (heads[1], 9))
    queries, keys, values = (torch.randn(1, count, size, 8) for count, size in shapes)
    seen = torch.rand(1, 1, rows, 9) < 0.6
    seen[..., 0] = True
    mask = seen if boolean else torch.where(seen, 0.0, -torch.inf)
    module = torch.nn.Module()
    module.num_key_value_groups = heads[0] // heads[1]  # type: ignore[assignment]
    expected, _ = sdpa_attention_forward(module, queries, keys, values, mask, scaling=0.3)
    found, _ = grouped_attention(module, queries, keys, values, mask, scaling=0.3)
    assert torch.equal(found, expected)


def test_what_the_kernel_cannot_do_alone_goes_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(attention, "sdpa_attention_forward", lambda *args, **others: seen.append(others))
    states, mask = torch.randn(1, 2, 3, 8), torch.zeros(1, 1, 3, 3)
    for others in ({"softcap": 30.0}, {"position_bias": mask}, {"dropout": 0.1}):
        grouped_attention(torch.nn.Module(), states, states, states, mask, **others)
    grouped_attention(torch.nn.Module(), states, states, states, mask, scaling=1.0, dropout=0.0, softcap=None)
    assert seen == [{"softcap": 30.0}, {"position_bias": mask}, {"dropout": 0.1}]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_chosen_kernels_change_no_bit_of_a_batch_with_padding(family: str) -> None:
    model, mask = tiny_model(family), torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    tokens = TOKENS.expand(2, -1)
    with torch.inference_mode():
        expected = model(tokens, attention_mask=mask).logits
        choose_kernels(model)
        assert model.config._attn_implementation == GROUPED
        assert torch.equal(model(tokens, attention_mask=mask).logits[mask > 0], expected[mask > 0])


def test_a_target_for_decoding_says_what_any_other_says(tmp_path) -> None:
    folder = save_word_target(tmp_path)
    plain, packed = load_target(folder), load_target(folder, for_decoding=True)
    with torch.inference_mode():
        torch.testing.assert_close(packed.features(TOKENS), plain.features(TOKENS), atol=1e-4, rtol=1e-4)
        features = plain.features(TOKENS)
        torch.testing.assert_close(packed.logits(features), plain.logits(features), atol=1e-4, rtol=1e-4)


# --- folders that nobody prepared ------------------------------------------------------------------------------------


def rewrite(folder: Path, dtype: torch.dtype) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({name: tensor.to(dtype) for name, tensor in weights.items()}, folder / "model.safetensors")


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\n"
FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "pointer": (lambda folder: (folder / "model.safetensors").write_text(POINTER), "a Git-LFS pointer"),
    "page": (lambda folder: (folder / "model.safetensors").write_text("<html>"), "an HTML page"),
    "quantised": (lambda folder: rewrite(folder, torch.int8), "is quantised"),
    "eight bits": (lambda folder: rewrite(folder, torch.float8_e5m2), "is quantised"),
    "pickled": (
        lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
        "pickled weights.*python -m taps.prepare_target",
    ),
    "deep config": (lambda folder: (folder / "config.json").write_text("[" * 100_000), "not a JSON object"),
    "deep tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("[" * 100_000), "no usable tokenizer"),
    "foreign tokenizer": (lambda folder: (folder / "tokenizer.json").write_text('{"model": {}}'), "no usable tokeni"),
    "no tokens": (
        lambda folder: (folder / "generation_config.json").write_text('{"eos_token_id": "x"}'),
        "is no token",
    ),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_folder_that_nobody_prepared_is_refused_in_one_line(kind, tmp_path):
    harm, message = FOREIGN[kind]
    harm(save_word_target(tmp_path))
    with pytest.raises(TapsError, match=message) as caught:
        load_target(tmp_path)
    assert "\n" not in str(caught.value)
