"""How good a draft model is on held-out conversations: losses, agreement, and acceptance length by replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from taps.decoding.banks import bank_of_trace, read_trace
from taps.decoding.drafting import DraftOptions
from taps.decoding.strategies.single import single
from taps.decoding.strategy import Options
from taps.decoding.walk import Bank, read_text, walk
from taps.model.alignment import CAUSAL
from taps.model.batches import Conversations, RowId
from taps.model.drafter import DraftModel
from taps.model.family import FAMILIES
from taps.model.hidden_states import FINAL
from taps.model.losses import LossWeights, agreement, draft_losses
from taps.model.target_head import TargetHead


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """What a draft model is validated on.

    Attributes:
        rows: Validation rows of the mixture's corpora.
        traces: The target's answers to held-out prompts: name -> trace as `read_trace` returns it.
        options: Draft trees for the acceptance length.
    """

    rows: list[RowId]
    traces: dict[str, dict[str, Any]]
    options: DraftOptions


def read_held_out(
    rows: list[RowId], traces: Sequence[Path], options: DraftOptions, *, reads: Sequence[str] = (FINAL,)
) -> HeldOut:
    """Returns the held-out data; a trace is named by the folder it lies in, `reads` is as in `read_trace`."""
    return HeldOut(
        rows=rows,
        traces={path.parent.name: read_trace(path, reads=reads) for path in traces},
        options=options,
    )


@torch.inference_mode()
def validate(
    model: DraftModel, head: TargetHead, conversations: Conversations, held_out: HeldOut, weights: LossWeights
) -> dict[str, Any]:
    """Returns losses per supervised token, top-1 and top-3 agreement, and tau on each held-out trace (`tau_<name>`).

    Losses are those of the first pass, without noise, so that families can be compared.
    """
    sums = {"value": 0.0, "probability": 0.0, "top1": 0, "top3": 0}
    count = 0
    family = FAMILIES.find(model.config.family)
    for start in range(0, len(held_out.rows), 16):
        batch = conversations.read(held_out.rows[start : start + 16]).on(head.head)
        targets = batch.targets
        embeddings = head.embed(batch.next_tokens)
        (predictions,) = family.predictions(
            model, embeddings, batch.features, batch.lengths, num_passes=1, attention=CAUSAL
        )
        predictions = predictions[batch.supervised]
        losses = draft_losses(predictions[None], targets, head.head, weights)
        top1, top3 = agreement(predictions, targets, head.head)
        for name, amount in (
            ("value", losses.value),
            ("probability", losses.probability),
            ("top1", top1),
            ("top3", top3),
        ):
            sums[name] += amount
        count += len(targets)
    found: dict[str, Any] = {f"validation_{name}": total / max(count, 1) for name, total in sums.items()}
    for name, trace in held_out.traces.items():
        found[f"tau_{name}"] = acceptance_length(model, head, trace, held_out.options)
    return found


def acceptance_length(model: DraftModel, head: TargetHead, trace: dict[str, Any], options: DraftOptions) -> float:
    """Returns tau (emitted tokens per cycle, pooled) of one draft model along a recorded text; NaN without a cycle."""
    trees, _ = bank_of_trace(model, head, trace, options, show_progress=False)
    text = read_text(
        trace["tokens"].numpy(), trace["offsets"].numpy(), trace["prompt_lengths"].numpy(), options.depth + 1
    )
    cycles = walk(single, [Bank.of("drafter", trees, text)], text, Options(num_draft_tokens=options.num_nodes))
    return float(cycles.emitted.sum() / len(cycles)) if len(cycles) else float("nan")
