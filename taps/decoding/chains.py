"""What a server that drafts chains accepts of each text, by replay: the counters that vLLM keeps of itself.

A chain of K draft tokens is the tree of depth K - 1, top-k 1 and K nodes, drafted over the whole vocabulary. A server
counts what it accepted before it cuts the text at its longest length or its end, so the text must be recorded K tokens
further than it is served, and past its end.

Shape letters: T tokens, h hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from taps.decoding.banks import bank_of_trace
from taps.decoding.drafting import DraftOptions
from taps.decoding.strategies.single import single
from taps.decoding.strategy import Options
from taps.decoding.walk import Bank, Cycles, read_text, walk
from taps.model.drafter import DraftModel
from taps.model.fitting import continue_texts
from taps.model.sampling import Sampling
from taps.model.target import Target
from taps.model.target_head import TargetHead


@dataclass(frozen=True, kw_only=True)
class Counters:
    """What a server counts over a text.

    Attributes:
        num_cycles: Verifications.
        accepted_by_position: [K] cycles that accepted the first, second ... draft token.
    """

    num_cycles: int
    accepted_by_position: list[int]


def record(target: Target, prompts: Sequence[Sequence[int]], num_tokens: int) -> dict[str, torch.Tensor]:
    """Returns tokens, offsets, prompt_lengths and features of a trace: greedy answers of `num_tokens`, past their end.

    Args:
        target: Whose answers; its context must have room for them.
        prompts: Tokens of each.
        num_tokens: Of each answer.
    """
    endless = replace(target, eos_ids=frozenset())
    answers = continue_texts(endless, prompts, sampling=Sampling(), draws=None, max_new_tokens=num_tokens)
    texts = [[*prompt, *answer.tokens.tolist()] for prompt, answer in zip(prompts, answers, strict=True)]
    return {
        "tokens": torch.tensor([token for text in texts for token in text], dtype=torch.int32),
        "offsets": torch.tensor([0, *map(len, texts)]).cumsum(0),
        "prompt_lengths": torch.tensor([len(prompt) for prompt in prompts], dtype=torch.int32),
        "features": torch.cat([answer.features for answer in answers]),
    }


def chain_counters(
    model: DraftModel, head: TargetHead, trace: dict[str, Any], *, num_draft_tokens: int, max_new_tokens: int
) -> list[Counters]:
    """Returns what a server with this draft model counts while it serves `max_new_tokens` of each recorded answer.

    Args:
        model: The draft model.
        head: Embedding and whole head of the target.
        trace: As `record` returns it, of `max_new_tokens + num_draft_tokens` tokens an answer.
        num_draft_tokens: K, the length of a chain.
        max_new_tokens: Tokens that the server emits for a prompt, that of prefill included.
    """
    options = DraftOptions(depth=num_draft_tokens - 1, top_k=1, num_nodes=num_draft_tokens)
    trees, _ = bank_of_trace(model, head, trace, options)
    text = read_text(
        trace["tokens"].numpy(), trace["offsets"].numpy(), trace["prompt_lengths"].numpy(), num_draft_tokens
    )
    cycles = walk(single, [Bank.of("drafter", trees, text)], text, Options(num_draft_tokens=num_draft_tokens))
    return count(cycles, len(text.offsets) - 1, num_draft_tokens=num_draft_tokens, max_new_tokens=max_new_tokens)


def count(cycles: Cycles, num_texts: int, *, num_draft_tokens: int, max_new_tokens: int) -> list[Counters]:
    """Returns the counters of each text, over the cycles whose root is not yet the last token to be served."""
    served = cycles.start < max_new_tokens - 1
    accepted = [cycles.accepted[served & (cycles.sequence == text)] for text in range(num_texts)]
    return [
        Counters(
            num_cycles=len(own),
            accepted_by_position=[int((own > position).sum()) for position in range(num_draft_tokens)],
        )
        for own in accepted
    ]
