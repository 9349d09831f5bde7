"""The target's answers to any number of prompts, as many at a time as the device has room for.

What a text takes is its cache, which models without grouped queries make large: 0.8 MB per token in Vicuna-13B. The
room is asked for before each batch; should it not do after all, the batch is halved and tried again, not the job.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence

import torch

from taps.model import sampler
from taps.model.drafter import DrafterConfig
from taps.model.memory import TargetSizes, sequence_bytes
from taps.model.sampling import Draws, Sampling
from taps.model.target import Target
from taps.plumbing.errors import TapsError

_SHARE = 0.9  # of the free memory that is made use of


def continue_texts(
    target: Target,
    prompts: Sequence[Sequence[int]],
    *,
    sampling: Sampling,
    draws: Sequence[Draws] | None,
    max_new_tokens: int,
    on_tokens: Callable[[int], object] = lambda _: None,
) -> list[sampler.Answer]:
    """Returns what `taps.model.sampler.continue_batch` does, of as many batches as it takes; arguments as there.

    Raises:
        TapsError: a single prompt is too much.
    """
    longest = max(map(len, prompts), default=0)
    size = min(len(prompts), texts_that_fit(target, prompt=longest, new=max_new_tokens))
    answers: list[sampler.Answer] = []
    while len(answers) < len(prompts):
        part = slice(len(answers), len(answers) + size)
        try:
            answers += sampler.continue_batch(
                target,
                prompts[part],
                sampling=sampling,
                draws=None if draws is None else draws[part],
                max_new_tokens=max_new_tokens,
                on_tokens=on_tokens,
            )
        except RuntimeError as error:  # of which torch.OutOfMemoryError is one
            if not _is_out_of_memory(error):
                raise
            if size == 1:
                remedy = "lower max_new_tokens, or choose a smaller target or a larger device"
                found = f"{len(prompts[part.start])} tokens and {max_new_tokens} new ones"
                raise TapsError("target", "no memory for a single text", found=found, remedy=remedy) from None
        else:
            continue
        size = -(-size // 2)  # outside of the handler: the error's traceback holds on to what filled the memory
        print(f"out of memory: {size} texts at a time from here on", file=sys.stderr)
        gc.collect()
        if target.device.type == "cuda":
            torch.cuda.empty_cache()
    return answers


def texts_that_fit(target: Target, *, prompt: int, new: int) -> int:
    """Returns how many texts the device has room for now, at least one; on a CPU as many as one likes.

    Args:
        target: Loaded, so that what is free now is free for texts.
        prompt: Tokens of the longest prompt.
        new: Most tokens of an answer.
    """
    if target.device.type != "cuda":
        return sys.maxsize
    config = target.config
    sizes = TargetSizes(
        layer=DrafterConfig.from_json(config), num_layers=config["num_hidden_layers"], vocab=config["vocab_size"]
    )
    free, _ = torch.cuda.mem_get_info(target.device)
    unused = torch.cuda.memory_reserved(target.device) - torch.cuda.memory_allocated(target.device)
    width = next(target.model.parameters()).dtype.itemsize
    return max(1, int(_SHARE * (free + unused) / sequence_bytes(sizes, prompt=prompt, new=new, width=width)))


def _is_out_of_memory(error: RuntimeError) -> bool:
    words = ("out of memory", "can't allocate memory")
    return isinstance(error, torch.OutOfMemoryError) or any(word in str(error).lower() for word in words)
