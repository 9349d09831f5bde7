"""Features from the frozen target: rows of tokens in batches of like length, and whether lm_head turns them to logits.

Rows are padded at their end only. Under causal attention no token sees what follows it, so padding needs no mask and
changes no feature; a mask would also cost the fast attention kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence

from taps.plumbing.artefacts import read_tensors
from taps.plumbing.errors import TapsError

if TYPE_CHECKING:
    from taps.model.target import Target
    from taps.model.target_head import TargetHead

_CHUNK = 256  # positions whose logits are compared at once: bounds memory at large vocabularies


def length_batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Returns the indices of rows in batches of like length, longest first, so that memory runs out early or never.

    Args:
        lengths: Tokens of each row.
        batch_tokens: Largest batch, counted with padding; a longer row is a batch of its own.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if not batches or lengths[batches[-1][0]] * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches


@torch.no_grad()
def compute_features(
    target: Target,
    rows: Sequence[torch.Tensor],
    *,
    batch_tokens: int,
    on_tokens: Callable[[int], object] = lambda _: None,
) -> list[torch.Tensor]:
    """Returns bf16 [n_i, width], on the target's device, for each row.

    Args:
        target: In any compute dtype; its `hidden_states` are what a feature holds.
        rows: int [n_i] tokens each.
        batch_tokens: As in `length_batches`. Features of one row differ in their last bits between batches.
        on_tokens: Called with the number of tokens after each batch.

    Raises:
        TapsError: a feature is not finite.
    """
    features: dict[int, torch.Tensor] = {}
    for batch in length_batches([len(row) for row in rows], batch_tokens):
        padded = pad_sequence([rows[i] for i in batch], batch_first=True).to(target.device, torch.int64)
        states = target.features(padded).to(torch.bfloat16)
        for i, row_states in zip(batch, states, strict=True):
            features[i] = row_states[: len(rows[i])]
        finite = torch.stack([features[i].isfinite().all() for i in batch])
        if not all(flags := finite.tolist()):
            row = batch[flags.index(False)]
            raise TapsError(
                "target",
                f"features of row {row} are not finite",
                remedy="compute in --dtype float32; if it is, fetch the target again",
            )
        on_tokens(sum(len(rows[i]) for i in batch))
    return [features[i] for i in range(len(rows))]


class OnlineFeatures:
    """Computes rows when they are asked for, in place of a `FeatureStore`: no disk, a target forward every epoch."""

    def __init__(self, target: Target, tokens: Path, *, batch_tokens: int = 512) -> None:
        """Reads the tokens.

        Args:
            target: Computes the features; its weights stay.
            tokens: Artefact of `taps.tokenise`.
            batch_tokens: As in `length_batches`.
        """
        tensors, _ = read_tensors(tokens, kind="tokens", names=["tokens", "offsets"])
        self.target = target
        self.batch_tokens = batch_tokens
        self._rows = tensors["tokens"].tensor_split(tensors["offsets"][1:-1])

    def __len__(self) -> int:
        """Returns the number of rows."""
        return len(self._rows)

    @property
    def hidden_states(self) -> tuple[str, ...]:
        """What a feature holds, side by side: what the target tells."""
        return self.target.hidden_states

    def length(self, index: int) -> int:
        """Returns the tokens of one row."""
        return len(self._rows[index])

    def row(self, index: int) -> torch.Tensor:
        """Returns bf16 [n, width] of one row."""
        return self.rows([index])[0]

    def rows(self, indices: Sequence[int]) -> list[torch.Tensor]:
        """Returns bf16 [n_i, width], where the target is, of each row: rounded as on disk, so losses are too."""
        return compute_features(self.target, [self._rows[i] for i in indices], batch_tokens=self.batch_tokens)


def online_notice(rows: Sequence[tuple[OnlineFeatures, int]], *, timed: int = 4) -> str:
    """Returns a line that weighs computing the features of some rows in every epoch against storing them once.

    Args:
        rows: (source, index) of each row of an epoch.
        timed: Rows computed to tell the speed, after one that warms up.
    """
    lengths = [source.length(index) for source, index in rows]
    width = rows[0][0].row(rows[0][1]).shape[1]
    start = time.perf_counter()
    for source, index in rows[:timed]:
        source.row(index)
    seconds = (time.perf_counter() - start) * sum(lengths) / sum(lengths[:timed])
    stored = (2 * width * sum(lengths) + 16 * len(rows)) / 1e6
    return (
        f"features of {sum(lengths)} tokens on the fly: about {seconds:.3g} s in every epoch and no disk; "
        f"stored, {stored:,.1f} MB and this time once"
    )


class HeadAgreement(NamedTuple):
    """How well lm_head(feature on disk) repeats the target's own logits.

    Attributes:
        max_difference: Largest absolute difference of a logit.
        num_equal_argmax: Positions at which both name the same most likely token.
        num_positions: How many positions were compared.
    """

    max_difference: float
    num_equal_argmax: int
    num_positions: int


@torch.no_grad()
def head_agreement(
    target: Target, head: TargetHead, tokens: torch.Tensor, features: torch.Tensor, *, where: object = "target"
) -> HeadAgreement:
    """Returns how the logits that a draft model learns from compare with those of a full forward pass of one row.

    Args:
        target: The whole model.
        head: Its head as draft models read it, all rows, on the same device.
        tokens: int [n] of the row.
        features: bf16 [n, width] as stored.
        where: What error messages name.

    Raises:
        TapsError: a difference is more than bfloat16 rounding explains: it moves no feature by more than 2^-8 of
            itself, so no logit by more than 2^-8 sum |weight x feature|; twice that leaves room for the compute dtype.
    """
    true = target.model(input_ids=tokens[None].to(target.device, torch.int64), use_cache=False).logits[0]
    stored = target.final(features).to(head.head)
    found = HeadAgreement(0.0, 0, len(tokens))
    for true_part, part in zip(true.split(_CHUNK), stored.split(_CHUNK), strict=True):
        ours = head.logits(part)
        difference = (ours.float() - true_part.float()).abs()
        explained = 2.0**-7 * (part.abs() @ head.head.abs().T).float()
        if bool((difference > explained).any()):
            raise TapsError(
                where,
                "logits are not lm_head(feature)",
                expected=f"differences of at most {float(explained.max()):.3g} from rounding to bfloat16",
                found=f"{float(difference.max()):.3g}",
                remedy="choose another target; a bias, a scale or a cap on the logits cannot be drafted",
            )
        found = HeadAgreement(
            max(found.max_difference, float(difference.max())),
            found.num_equal_argmax + int((ours.argmax(-1) == true_part.argmax(-1)).sum()),
            len(tokens),
        )
    return found
