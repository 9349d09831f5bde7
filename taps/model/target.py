"""The target model: any Hugging Face causal language model with full attention, seen as features and a head."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase
from transformers.cache_utils import Cache, DynamicCache

from taps.data.chat import Reason
from taps.data.chat_template import RefusedByTemplateError, render
from taps.data.stop_tokens import stop_ids
from taps.data.tokenizer_files import load_tokenizer
from taps.model.architecture import check_architecture
from taps.model.attention import choose_kernels
from taps.model.cpu_products import use_widest_float32
from taps.model.device import check_device, weight_bytes
from taps.model.hidden_states import FINAL, layer_of, select
from taps.model.loading import load_model
from taps.model.packing import pack_for_decoding
from taps.model.target_folder import check_files
from taps.model.target_head import read_config
from taps.model.text_cache import TextCache
from taps.plumbing.errors import TapsError


@dataclass(frozen=True, kw_only=True)
class Target:
    """A loaded target.

    Attributes:
        model: The library's model in evaluation mode.
        tokenizer: Its tokenizer, chat template included.
        eos_ids: Tokens that end an answer.
        max_length: Context length, in tokens.
        config: Content of config.json.
        hidden_states: What its features hold, `final` first; see `taps.model.hidden_states`.
    """

    model: Any
    tokenizer: PreTrainedTokenizerBase
    eos_ids: frozenset[int]
    max_length: int
    config: dict[str, Any]
    hidden_states: tuple[str, ...] = (FINAL,)

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return self.model.device

    @property
    def width(self) -> int:
        """Numbers of one feature: h for each hidden state."""
        return int(self.config["hidden_size"]) * len(self.hidden_states)

    def features(
        self,
        tokens: torch.Tensor,
        *,
        attention_mask: torch.Tensor | None = None,
        positions: torch.Tensor | None = None,
        cache: Cache | None = None,
    ) -> torch.Tensor:
        """Returns [B, T, width]: `hidden_states` of the T new tokens, side by side; extends `cache` in place.

        By default that is one, the last hidden state after the final norm.

        Args:
            tokens: int64 [B, T] new ones of each row.
            attention_mask: [B, seen + T] with 1 for real tokens, or a 4-D additive or boolean mask.
            positions: int64 [B, T]; consecutive after the cache by default.
            cache: Keys and values of what was seen.

        Raises:
            TapsError: the model did not keep what it read in the cache, or does not tell its hidden states.
        """
        seen = cache.get_seq_length() if cache is not None else 0
        output = self._decoder(
            input_ids=tokens,
            attention_mask=attention_mask,
            position_ids=positions,
            use_cache=cache is not None,
            **{self._cache_keyword: cache},
            **({} if self.hidden_states == (FINAL,) else {"output_hidden_states": True}),
        )
        if cache is not None and cache.get_seq_length() != seen + tokens.shape[1]:
            raise TapsError(
                type(self._decoder).__name__,
                "does not keep what it reads in the cache that it is given",
                expected=f"{seen + tokens.shape[1]} tokens",
                found=cache.get_seq_length(),
                remedy="choose another target, or another release of transformers",
            )
        return self._chosen(output)

    def final(self, features: torch.Tensor) -> torch.Tensor:
        """Returns [..., h]: the part of features [..., width] that the head reads."""
        return select(features, self.hidden_states, (FINAL,))

    def _chosen(self, output: Any) -> torch.Tensor:
        """Returns the hidden states that were asked for out of a forward pass, side by side."""
        if self.hidden_states == (FINAL,):
            return output.last_hidden_state
        told, num_layers = output.hidden_states, self.config["num_hidden_layers"]
        if told is None or len(told) != num_layers + 1:  # before each layer, and the last one
            raise TapsError(
                type(self._decoder).__name__,
                "does not tell its hidden states",
                expected=f"{num_layers + 1} of them",
                found=0 if told is None else len(told),
                remedy="choose another target, or draft families that read its final state alone",
            )
        return torch.cat(
            [
                output.last_hidden_state if name == FINAL else told[layer_of(name, num_layers)]
                for name in self.hidden_states
            ],
            dim=-1,
        )

    @cached_property
    def _decoder(self) -> Any:
        return self.model.get_decoder()

    @cached_property
    def _cache_keyword(self) -> str:
        """What the decoder calls its cache: `cache` from transformers 5.24 on; older code would swallow that."""
        known = inspect.signature(self._decoder.forward).parameters
        for name in ("cache", "past_key_values"):
            if name in known:
                return name
        raise TapsError(
            type(self._decoder).__name__, "takes no cache", expected="an argument `cache` or `past_key_values`",
            remedy="choose another target",
        )  # fmt: skip

    def logits(self, features: torch.Tensor) -> torch.Tensor:
        """Returns [..., V] from features [..., width]."""
        return self.model.get_output_embeddings()(self.final(features))

    def new_cache(self) -> DynamicCache:
        """Returns an empty cache for this model."""
        return DynamicCache(config=self.model.config)

    def new_text_cache(self) -> TextCache:
        """Returns an empty cache for one text that grows by trees."""
        return TextCache(self.model.config.num_hidden_layers)

    def render(self, conversations: Sequence[Sequence[Mapping[str, Any]]]) -> list[list[int] | str]:
        """Returns the tokens of conversations of {"role", "text"} turns, ready for the assistant's next words.

        A conversation that the chat template refuses gives the reason instead.
        """
        return [self._render(turns) for turns in conversations]

    def text_of(self, tokens: list[int] | np.ndarray) -> str:
        """Returns the words of an answer, without special tokens."""
        words = [int(token) for token in tokens if int(token) not in self.eos_ids]  # not all are declared special
        return str(self.tokenizer.decode(words, skip_special_tokens=True))

    def _render(self, turns: Sequence[Mapping[str, Any]]) -> list[int] | str:
        messages = [{"role": turn["role"], "content": turn["text"]} for turn in turns]
        try:
            text = render(self.tokenizer, messages, add_generation_prompt=True)
        except RefusedByTemplateError:
            return Reason.REFUSED_BY_TEMPLATE
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]


def load_target(
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    trust_remote_code: bool = False,
    for_decoding: bool = False,
    hidden_states: Sequence[str] = (FINAL,),
) -> Target:
    """Returns the target in a Hugging Face folder.

    Args:
        folder: Written by `taps.prepare_target`.
        dtype: Compute dtype.
        device: Where to put it.
        trust_remote_code: Whether Python code in the folder may run.
        for_decoding: Whether it will read a few tokens at a time; then its products are packed where that pays.
        hidden_states: What its features hold, `final` first.

    Raises:
        TapsError: no such folder, a file of it changed, no chat template, an architecture whose cache cannot be a
            tree, or no such hidden state.
    """
    use_widest_float32()
    folder = Path(folder)
    config = read_config(folder)
    check_architecture(config, where=folder / "config.json")
    for name in set(hidden_states) - {FINAL}:
        layer_of(name, config["num_hidden_layers"])
    check_files(folder)
    check_device(device, need_bytes=weight_bytes(folder, dtype), what="the target")
    tokenizer = load_tokenizer(folder, trust_remote_code=trust_remote_code)
    if not tokenizer.chat_template:
        raise TapsError(folder, "the tokenizer has no chat template", remedy="set target.chat_template to a Jinja file")
    model = load_model(folder, dtype=dtype, trust_remote_code=trust_remote_code).to(torch.device(device))
    choose_kernels(model)
    if for_decoding:
        pack_for_decoding(model)
    return Target(
        model=model,
        tokenizer=tokenizer,
        eos_ids=stop_ids(folder, tokenizer),
        max_length=config["max_position_embeddings"],
        config=config,
        hidden_states=tuple(hidden_states),
    )
