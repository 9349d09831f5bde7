"""Plain autoregressive decoding of many prompts at once: the text that every speculative decoder must reproduce.

A step launches the target's forward and copies one small tensor to the host: the tokens. Features stay on the device
and follow in blocks. Shape letters: B prompts, A of them unfinished, W width of the longest prompt, h hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from taps.model.sampling import Draws, Sampling, gumbel_noise, next_tokens
from taps.model.target import Target
from taps.plumbing.errors import TapsError

_BLOCK = 64  # steps whose features are copied to the host together
_NOT_FINITE = -1  # in place of a token


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the target said to one prompt.

    Attributes:
        tokens: int32 [n] generated tokens, the end token included.
        features: [prompt + n, h] features of prompt and answer; the last row is zero, since the target never read its
            own last token (and no draft needs it).
        finish: `eos`, `length` (max_new_tokens reached) or `context` (the model's limit reached).
    """

    tokens: np.ndarray
    features: torch.Tensor
    finish: str


@torch.inference_mode()
def continue_batch(
    target: Target,
    prompts: Sequence[Sequence[int]],
    *,
    sampling: Sampling,
    draws: Sequence[Draws] | None,
    max_new_tokens: int,
    on_tokens: Callable[[int], object] = lambda _: None,
) -> list[Answer]:
    """Returns the target's answers to a batch of prompts, in their order.

    Prompts are padded on the left; a finished sequence leaves the batch. Each token depends on its own row alone.

    Args:
        prompts: Tokens of each prompt, none empty, none as long as the context.
        sampling: How tokens are picked.
        draws: For temperature > 0: the random numbers of each prompt's answer.
        max_new_tokens: Most tokens per answer.
        on_tokens: Called with the number of tokens made, for progress.

    Raises:
        TapsError: a feature or a logit is not finite.
    """
    device, lengths = target.device, [len(prompt) for prompt in prompts]
    width = max(lengths)
    cache = target.new_cache()
    num_pads = torch.tensor([width - length for length in lengths]).to(device)
    features = target.features(
        _padded(prompts, width).to(device),
        attention_mask=prefill_mask(num_pads, width) if min(lengths) < width else None,
        positions=(torch.arange(width, device=device) - num_pads[:, None]).clamp(min=0),
        cache=cache,
    )
    read = _Features(features, lengths)
    keys = None if draws is None else _keys(draws, max_new_tokens).to(device)
    real = torch.arange(width + max_new_tokens, device=device) >= num_pads[:, None]  # [A, ...] no padding
    positions = torch.tensor(lengths).to(device)[:, None]
    written: list[list[int]] = [[] for _ in prompts]
    finish = ["length"] * len(prompts)
    alive = list(range(len(prompts)))
    has_pads = min(lengths) < width
    last = features[:, -1]
    for step in range(max_new_tokens):
        logits = target.logits(last)
        noise = None if keys is None else gumbel_noise(keys[:, step], logits.shape[-1], device)
        chosen = next_tokens(logits, sampling, noise)
        told = torch.where(logits.amax(-1).isfinite(), chosen, _NOT_FINITE)  # NaN and inf show in the largest
        tokens = told.tolist()
        on_tokens(len(alive))
        if _NOT_FINITE in tokens:
            raise _not_finite("logits", alive[tokens.index(_NOT_FINITE)])
        keep = []
        for place, (row, token) in enumerate(zip(alive, tokens, strict=True)):
            written[row].append(token)
            if token in target.eos_ids:
                finish[row] = "eos"
            elif lengths[row] + step + 1 >= target.max_length:
                finish[row] = "context"
            else:
                keep.append(place)
        if not keep or step + 1 == max_new_tokens:
            break
        if len(keep) < len(alive):
            index = torch.tensor(keep).to(device)
            cache.batch_select_indices(index)
            alive = [alive[place] for place in keep]
            chosen, real, positions = chosen[index], real[index], positions[index]
            keys = None if keys is None else keys[index]
            has_pads = any(lengths[row] < width for row in alive)
        mask = real[:, None, None, : width + step + 1] if has_pads else None
        last = target.features(chosen[:, None], attention_mask=mask, positions=positions, cache=cache)[:, 0]
        read.add(alive, last)
        positions = positions + 1
    return [
        Answer(tokens=np.asarray(written[row], dtype=np.int32), features=own, finish=finish[row])
        for row, own in enumerate(read.finish())
    ]


def prefill_mask(num_pads: torch.Tensor, width: int) -> torch.Tensor:
    """Returns bool [B, 1, W, W], True where a query may attend to a key: causal, past the padding.

    A padding token sees itself: a row that sees nothing is NaN in some kernels, and NaN times 0 is NaN in the next
    layer. Prompts of 3 and 2 tokens, the second one padded:

        1 0 0     1 0 0
        1 1 0     0 1 0
        1 1 1     0 1 1

    Args:
        num_pads: int64 [B] padding tokens before each prompt.
        width: W, columns of the padded batch.
    """
    place = torch.arange(width, device=num_pads.device)
    causal, itself = place <= place[:, None], place == place[:, None]
    real = place >= num_pads[:, None]
    return ((causal & real[:, None]) | itself)[:, None]


def _padded(prompts: Sequence[Sequence[int]], width: int) -> torch.Tensor:
    tokens = torch.zeros((len(prompts), width), dtype=torch.int64)
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = torch.tensor(list(prompt))
    return tokens


def _keys(draws: Sequence[Draws], count: int) -> torch.Tensor:
    """Returns int64 [B, count]: the same 64 bits as `Draws.key` of each position."""
    return torch.from_numpy(np.stack([row.keys(count) for row in draws]).view(np.int64))


def _not_finite(what: str, row: int) -> TapsError:
    return TapsError(
        "target",
        f"{what} of prompt {row} are not finite",
        remedy="compute in --dtype float32; if it is, fetch the target again",
    )


class _Features:
    """Features of prompts and answers, gathered on the host in few copies.

    Args:
        prompts: [B, W, h] features of the padded prompts.
        lengths: Tokens of each prompt.
    """

    def __init__(self, prompts: torch.Tensor, lengths: Sequence[int]) -> None:
        on_host = prompts.cpu()
        self._of_row = [[own[len(own) - length :]] for own, length in zip(on_host, lengths, strict=True)]
        self._states: list[torch.Tensor] = []
        self._rows: list[Sequence[int]] = []

    def add(self, rows: Sequence[int], states: torch.Tensor) -> None:
        """Takes note of one more position [A, h] of some rows."""
        self._states.append(states)
        self._rows.append(rows)
        if len(self._states) == _BLOCK:
            self._copy()

    def finish(self) -> list[torch.Tensor]:
        """Returns [n_b, h] of each row, a zero behind it."""
        self._copy()
        found = [torch.cat([*parts, parts[0].new_zeros((1, parts[0].shape[-1]))]) for parts in self._of_row]
        for row, own in enumerate(found):
            if not bool(own.isfinite().all()):
                raise _not_finite("features", row)
        return found

    def _copy(self) -> None:
        if not self._states:
            return
        on_host, rows = torch.cat(self._states).cpu(), torch.tensor([row for rows in self._rows for row in rows])
        for row in self._rows[0]:  # rows only ever leave
            self._of_row[row].append(on_host[rows == row])
        self._states, self._rows = [], []
