"""Draft banks: the trees of one drafter at every position of recorded texts.

Shape letters: P positions, S texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from taps.decoding.drafting import DraftOptions, draft_trees
from taps.decoding.trees import Trees
from taps.model.drafter import DraftModel
from taps.model.hidden_states import FINAL, check_hold, select
from taps.model.target_head import TargetHead
from taps.plumbing.artefacts import read_tensors
from taps.plumbing.progress import progress


def read_trace(path: Path, *, reads: Sequence[str]) -> dict[str, Any]:
    """Returns the tensors of a trace, as draft models see it: its features hold the hidden states that they read.

    Args:
        path: Where the trace lies.
        reads: Names of hidden states, see `taps.model.hidden_states`.

    Raises:
        TapsError: the trace lacks some of them.
    """
    trace, meta = read_tensors(path, kind="trace")
    held = meta.get("hidden_states", (FINAL,))  # older traces do not say
    check_hold(path, held, reads)
    return {**trace, "features": select(trace["features"], held, reads)}


def bank_of_trace(
    model: DraftModel,
    head: TargetHead,
    trace: dict[str, Any],
    options: DraftOptions,
    *,
    chunk: int = 64,
    show_progress: bool = True,
) -> tuple[Trees, np.ndarray]:
    """Returns (trees [P], offsets int64 [S + 1]): a tree for each root that a cycle could have, sequence by sequence.

    Args:
        trace: As `read_trace` returns it: tokens, offsets, prompt_lengths, features.
        chunk: Positions drafted together; bounds memory, changes nothing else.
        show_progress: Whether to draw a bar.
    """
    starts, prompts = trace["offsets"].tolist(), trace["prompt_lengths"].tolist()
    sequences = list(zip(starts, starts[1:], prompts, strict=False))
    parts: list[Trees] = []
    counts = [max(end - start - prompt - 1, 0) for start, end, prompt in sequences]
    with progress(total=sum(counts), what="drafting", unit="pos", show=show_progress) as bar:
        for start, end, prompt in sequences:
            tokens, features = trace["tokens"][start:end], trace["features"][start:end]
            for trees in _bank_of_sequence(model, head, tokens, features, prompt, options, chunk):
                parts.append(trees)
                bar.update(len(trees))
    return _concatenate(parts, options.num_nodes), np.cumsum([0, *counts], dtype=np.int64)


def _bank_of_sequence(
    model: DraftModel, head: TargetHead, tokens: Any, features: Any, prompt: int, options: DraftOptions, chunk: int
) -> Iterator[Trees]:
    roots = torch.arange(prompt, len(tokens) - 1, device=head.head.device)  # the last token is the root of no cycle
    if not len(roots):
        return
    with torch.inference_mode():
        tokens, features = tokens.to(head.head.device), features.to(head.head)
        hidden, keys, values = model(head.embed(tokens[1:]), features[:-1], [len(tokens) - 1])
    for part in roots.split(chunk):
        yield draft_trees(
            model, head, keys=keys, values=values, hidden=hidden[part - 1], num_seen=part, options=options
        )


def _concatenate(parts: list[Trees], num_nodes: int) -> Trees:
    dtypes = {"tokens": np.int32, "parents": np.int16, "scores": np.float32, "entropies": np.float32}
    return Trees(
        **{
            name: np.concatenate([np.zeros((0, num_nodes), dtype), *(getattr(part, name) for part in parts)])
            for name, dtype in dtypes.items()
        }
    )
