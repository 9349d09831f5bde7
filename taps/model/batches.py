"""From rows of conversations to training batches: flat tokens, no padding, an order that is a function of the seed.

The draft model's input at t is (token_{t+1}, feature_t); its output predicts feature_{t+1} and with it token_{t+2}.
So a row of n tokens gives n - 2 inputs, and input t is supervised if token t+2 is one that the assistant says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from taps.model.feature_store import FeatureSource
from taps.plumbing.artefacts import read_json, read_tensors
from taps.plumbing.errors import TapsError


class RowId(NamedTuple):
    """One conversation: its corpus and its row in the corpus's tokens."""

    corpus: str
    row: int


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows laid end to end.

    Attributes:
        next_tokens: int64 [T] token_{t+1} of each input.
        features: [T, h] feature_t of each input, with noise if asked for.
        supervised: int64 [M] inputs that the losses look at.
        targets: [M, h] feature_{t+1} of the supervised inputs, without noise.
        lengths: Inputs of each row.
    """

    next_tokens: torch.Tensor
    features: torch.Tensor
    supervised: torch.Tensor
    targets: torch.Tensor
    lengths: list[int]


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Uniform noise on input features.

    Attributes:
        amplitude: Width of the interval around 0; 0 switches it off.
        published: Whether to scale by 512 / length, as the original does, so that short rows get more.
        seed: Decides the noise together with the row's place in the run.
    """

    amplitude: float = 0.0
    published: bool = False
    seed: int = 0

    def draw(self, shape: Sequence[int], place: int) -> torch.Tensor:
        """Returns fp32 noise [n, h] of the row at `place` in the run's stream of rows."""
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + place) % (1 << 62))
        scale = self.amplitude * (512 / shape[0] if self.published else 1.0)
        return (torch.rand(tuple(shape), generator=generator) - 0.5) * scale


class Conversations:
    """The tokens, supervision flags and features of all corpora of a mixture."""

    def __init__(self, tokens: Mapping[str, Path], features: Mapping[str, FeatureSource]) -> None:
        self._features = features
        self._tokens: dict[str, torch.Tensor] = {}
        self._supervised: dict[str, torch.Tensor] = {}
        self._offsets: dict[str, list[int]] = {}
        for corpus, path in tokens.items():
            tensors, _ = read_tensors(path, kind="tokens")
            self._tokens[corpus] = tensors["tokens"]
            self._supervised[corpus] = tensors["supervised"].bool()
            self._offsets[corpus] = tensors["offsets"].tolist()

    def num_tokens(self, row: RowId) -> int:
        """Returns the tokens of a row."""
        offsets = self._offsets[row.corpus]
        return offsets[row.row + 1] - offsets[row.row]

    def num_supervised(self, row: RowId) -> int:
        """Returns how many of a row's inputs are supervised."""
        return int(self._row(self._supervised, row)[2:].sum())

    def size(self, rows: Sequence[RowId]) -> tuple[list[int], int]:
        """Returns (inputs of each row, supervised inputs of all of them)."""
        return [self.num_tokens(row) - 2 for row in rows], sum(map(self.num_supervised, rows))

    def usable(self, rows: Sequence[RowId]) -> list[RowId]:
        """Returns the rows that have a supervised input at all."""
        return [row for row in rows if self.num_supervised(row)]

    def batch(self, rows: Sequence[RowId], *, noise: Noise | None = None, places: Sequence[int] = ()) -> Batch:
        """Returns the batch of `rows`.

        Args:
            rows: At least one.
            noise: Noise on the inputs; none by default.
            places: Place of each row in the run's stream, for the noise.
        """
        by_row = self._features_of(rows)
        tokens, inputs, flags, targets = [], [], [], []
        for index, row in enumerate(rows):
            features = by_row[row].float()
            own = features[:-2]
            if noise is not None and noise.amplitude:
                own = own + noise.draw(own.shape, places[index])
            flag = self._row(self._supervised, row)[2:]
            tokens.append(self._row(self._tokens, row)[1:-1])
            inputs.append(own)
            flags.append(flag)
            targets.append(features[1:-1][flag])
        return Batch(
            next_tokens=torch.cat(tokens).long(),
            features=torch.cat(inputs),
            supervised=torch.cat(flags).nonzero()[:, 0],
            targets=torch.cat(targets),
            lengths=[len(part) for part in tokens],
        )

    def _features_of(self, rows: Sequence[RowId]) -> dict[RowId, torch.Tensor]:
        found: dict[RowId, torch.Tensor] = {}
        for corpus in dict.fromkeys(row.corpus for row in rows):
            own = [row for row in rows if row.corpus == corpus]
            found |= dict(zip(own, self._features[corpus].rows([row.row for row in own]), strict=True))
        return found

    def _row(self, of: Mapping[str, torch.Tensor], row: RowId) -> torch.Tensor:
        offsets = self._offsets[row.corpus]
        return of[row.corpus][offsets[row.row] : offsets[row.row + 1]]


@dataclass(frozen=True)
class Plan:
    """Which rows each optimizer step sees: consecutive pieces of an endless stream of seeded permutations.

    Attributes:
        rows: Training rows.
        batch_size: Rows per step over all processes and accumulation steps.
        seed: Decides the permutations.
    """

    rows: list[RowId]
    batch_size: int
    seed: int

    def num_steps(self, epochs: float) -> int:
        """Returns the steps that see every row `epochs` times (the last step is filled from the next permutation)."""
        return max(1, -(-round(epochs * len(self.rows)) // self.batch_size))

    def epoch_of(self, step: int) -> int:
        """Returns how many epochs are complete once `step` steps are done."""
        return step * self.batch_size // len(self.rows)

    def places(self, step: int) -> range:
        """Returns the places in the stream that a step reads."""
        return range(step * self.batch_size, (step + 1) * self.batch_size)

    def row_at(self, place: int) -> RowId:
        """Returns the row at a place of the stream."""
        epoch, index = divmod(place, len(self.rows))
        return self.rows[_permutation(self.seed, epoch, len(self.rows))[index]]

    def rows_of(self, step: int) -> list[RowId]:
        """Returns the rows that a step reads, in order of their places."""
        return [self.row_at(place) for place in self.places(step)]


@lru_cache(maxsize=4)  # a step may span epochs, and its loader is one step ahead
def _permutation(seed: int, epoch: int, size: int) -> np.ndarray:
    return np.random.default_rng((seed, epoch)).permutation(size)


def read_mixture(path: Path, *, corpora: Collection[str]) -> tuple[list[RowId], list[RowId]]:
    """Returns (training rows, validation rows) of a mixture artefact.

    Args:
        path: Of the mixture.
        corpora: Those at hand.

    Raises:
        TapsError: the mixture has no training row, or a corpus that is not at hand.
    """
    mixture = read_json(path, kind="mixture")
    if missing := sorted(set(mixture["train"]) - set(corpora)):
        raise TapsError(path, "mixes other corpora than those given", expected=sorted(corpora), found=missing)
    train, validation = (
        [RowId(corpus, row) for corpus, rows in mixture[part].items() for row in rows]
        for part in ("train", "validation")
    )
    if not train:
        raise TapsError(path, "has no training rows", remedy="raise the corpora's sizes or the mixture's shares")
    return train, validation
