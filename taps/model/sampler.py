"""Plain autoregressive decoding of many prompts at once: the text that every speculative decoder must reproduce."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from taps.model.sampling import Draws, Sampling, gumbel_noise, next_tokens
from taps.model.target import Target


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
    """
    device, lengths = target.device, [len(prompt) for prompt in prompts]
    width = max(lengths)
    tokens = torch.zeros((len(prompts), width), dtype=torch.int64)
    mask = torch.zeros((len(prompts), width), dtype=torch.int64)
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = torch.tensor(list(prompt))
        mask[row, width - len(prompt) :] = 1
    tokens, mask = tokens.to(device), mask.to(device)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    cache = target.new_cache()
    features = target.features(tokens, attention_mask=mask, positions=positions, cache=cache)
    read = [[features[row, width - length :].cpu()] for row, length in enumerate(lengths)]
    written: list[list[int]] = [[] for _ in prompts]
    finish = ["length"] * len(prompts)
    alive = list(range(len(prompts)))
    last = features[:, -1]
    for step in range(max_new_tokens):
        logits = target.logits(last)
        keys = None if draws is None else [draws[row].key(step) for row in alive]
        noise = None if keys is None else gumbel_noise(keys, logits.shape[-1], device)
        chosen = next_tokens(logits, sampling, noise)
        on_tokens(len(alive))
        keep = []
        for place, (row, token) in enumerate(zip(alive, chosen.tolist(), strict=True)):
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
            index = torch.tensor(keep, device=device)
            cache.batch_select_indices(index)
            alive, chosen, mask = [alive[place] for place in keep], chosen[index], mask[index]
        mask = torch.cat((mask, mask.new_ones((len(alive), 1))), dim=1)
        positions = torch.tensor([[lengths[row] + step] for row in alive], device=device)
        last = target.features(chosen[:, None], attention_mask=mask, positions=positions, cache=cache)[:, 0]
        for place, row in enumerate(alive):
            read[row].append(last[place : place + 1].cpu())
    zero = features.new_zeros((1, features.shape[-1])).cpu()
    return [
        Answer(
            tokens=np.asarray(written[row], dtype=np.int32),
            features=torch.cat([*read[row], zero]),
            finish=finish[row],
        )
        for row in range(len(prompts))
    ]
