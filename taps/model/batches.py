"""From rows of conversations to training batches: flat tokens, no padding, an order that is a function of the seed.

The draft model's input at t is (token_{t+1}, feature_t); its output predicts feature_{t+1} and with it token_{t+2}. An
input holds the hidden states that the draft model reads, a prediction is of the final one (`taps.model.hidden_states`).
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

from taps.model.feature_store import FeatureSource, FeatureStore
from taps.model.hidden_states import FINAL, check_hold, select
from taps.model.noise import Noise
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
        features: [T, h] feature_t of each input, with noise if asked for; h for each hidden state that is read.
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
class HostRows:
    """Rows as they were read, on their way to a device: features once, in their own dtype, and integers in one tensor.

    Attributes:
        features: [N, width] of all tokens of the rows, end to end.
        integers: int64, in turn: next_tokens [T], places of the inputs among the features [T], noise keys [T] (none
            without noise), places of the targets among the features [M], supervised [M]; see `Batch`.
        lengths: Inputs of each row; they sum to T.
        noise: What is added to the inputs, if anything.
        hidden_states: What the features hold.
        reads: What inputs hold of it.
    """

    features: torch.Tensor
    integers: torch.Tensor
    lengths: list[int]
    noise: Noise | None
    hidden_states: tuple[str, ...]
    reads: tuple[str, ...]

    def on(self, like: torch.Tensor) -> Batch:
        """Returns the batch on the device and in the dtype of `like`, without waiting for the device.

        From pinned memory both copies run behind what the device is told next.
        """
        num_inputs, noisy = sum(self.lengths), self.noise is not None
        num_targets = (len(self.integers) - (2 + noisy) * num_inputs) // 2
        features = self.features.to(like.device, non_blocking=True)
        integers = self.integers.to(like.device, non_blocking=True)
        sizes = [num_inputs, num_inputs, num_inputs * noisy, num_targets, num_targets]
        next_tokens, inputs, keys, targets, supervised = integers.split(sizes)
        own = select(features, self.hidden_states, self.reads)[inputs].to(like.dtype)
        if self.noise is not None:
            self.noise.add_to(own, keys, self.lengths)
        return Batch(
            next_tokens=next_tokens,
            features=own,
            supervised=supervised,
            targets=select(features, self.hidden_states, (FINAL,))[targets].to(like.dtype),
            lengths=self.lengths,
        )


class Conversations:
    """The tokens, supervision flags and features of all corpora of a mixture.

    Args:
        tokens: Corpus -> artefact of `taps.tokenise`.
        features: Corpus -> its features.
        reads: Hidden states of the target that the draft model reads.

    Raises:
        TapsError: the features of a corpus hold other hidden states than those of the first, or lack some.
    """

    def __init__(
        self, tokens: Mapping[str, Path], features: Mapping[str, FeatureSource], *, reads: Sequence[str] = (FINAL,)
    ) -> None:
        self._features = features
        self._reads = tuple(reads)
        self._hidden_states = _common_states(features)
        check_hold("the features", self._hidden_states, self._reads)
        self._tokens: dict[str, torch.Tensor] = {}
        self._supervised: dict[str, torch.Tensor] = {}
        self._offsets: dict[str, list[int]] = {}
        self._num_supervised: dict[str, list[int]] = {}
        for corpus, path in tokens.items():
            tensors, _ = read_tensors(path, kind="tokens")
            self._tokens[corpus] = tensors["tokens"]
            self._supervised[corpus] = tensors["supervised"].bool()
            self._offsets[corpus] = tensors["offsets"].tolist()
            self._num_supervised[corpus] = _supervised_inputs(tensors["supervised"], tensors["offsets"])

    @property
    def is_stored(self) -> bool:
        """Whether all features are read from disk; else the target computes some when they are asked for."""
        return all(isinstance(source, FeatureStore) for source in self._features.values())

    def num_tokens(self, row: RowId) -> int:
        """Returns the tokens of a row."""
        offsets = self._offsets[row.corpus]
        return offsets[row.row + 1] - offsets[row.row]

    def num_supervised(self, row: RowId) -> int:
        """Returns how many of a row's inputs are supervised."""
        return self._num_supervised[row.corpus][row.row]

    def size(self, rows: Sequence[RowId]) -> tuple[list[int], int]:
        """Returns (inputs of each row, supervised inputs of all of them)."""
        return [self.num_tokens(row) - 2 for row in rows], sum(map(self.num_supervised, rows))

    def usable(self, rows: Sequence[RowId]) -> list[RowId]:
        """Returns the rows that have a supervised input at all."""
        return [row for row in rows if self.num_supervised(row)]

    def batch(self, rows: Sequence[RowId], *, noise: Noise | None = None, places: Sequence[int] = ()) -> Batch:
        """Returns the batch of `rows` in host memory, in fp32, with the host's law of noise.

        Args:
            rows: Which to lay end to end; at least one.
            noise: Noise on the inputs; none by default.
            places: Place of each row in the run's stream, for the noise.
        """
        by_row = self._features_of(rows)
        tokens, inputs, flags, targets = [], [], [], []
        for index, row in enumerate(rows):
            features = by_row[row].cpu().float()
            own = select(features, self._hidden_states, self._reads)[:-2]
            if noise is not None and noise.amplitude:
                own = own + noise.draw(own.shape, places[index])
            flag = self._row(self._supervised, row)[2:]
            tokens.append(self._row(self._tokens, row)[1:-1])
            inputs.append(own)
            flags.append(flag)
            targets.append(select(features, self._hidden_states, (FINAL,))[1:-1][flag])
        return Batch(
            next_tokens=torch.cat(tokens).long(),
            features=torch.cat(inputs),
            supervised=torch.cat(flags).nonzero()[:, 0],
            targets=torch.cat(targets),
            lengths=[len(part) for part in tokens],
        )

    def read(
        self, rows: Sequence[RowId], *, noise: Noise | None = None, places: Sequence[int] = (), pinned: bool = False
    ) -> HostRows:
        """Returns `rows` as a device takes them, whose law of noise is the device's; arguments as `batch`.

        Args:
            pinned: Whether to read into pinned memory, from which copies do not stop the host.
        """
        noise = noise if noise is not None and noise.amplitude else None
        lengths = [self.num_tokens(row) for row in rows]
        starts = np.cumsum([0, *lengths])[:-1]
        own = [np.arange(length - 2) for length in lengths]
        inputs = np.concatenate([start + part for start, part in zip(starts, own, strict=True)])
        flags = np.concatenate([self._row(self._supervised, row)[2:].numpy() for row in rows])
        supervised = np.flatnonzero(flags)
        keys = noise.keys([length - 2 for length in lengths], places) if noise else np.zeros(0, dtype=np.int64)
        tokens = [self._row(self._tokens, row)[1:-1].numpy() for row in rows]
        parts = [*tokens, inputs, keys, inputs[supervised] + 1, supervised]
        integers = torch.empty(sum(map(len, parts)), dtype=torch.int64, pin_memory=pinned)
        np.concatenate(parts, out=integers.numpy(), casting="safe")
        features = self._read_features(rows, lengths, pinned=pinned)
        return HostRows(
            features=features,
            integers=integers,
            lengths=[n - 2 for n in lengths],
            noise=noise,
            hidden_states=self._hidden_states,
            reads=self._reads,
        )

    def _read_features(self, rows: Sequence[RowId], lengths: Sequence[int], *, pinned: bool) -> torch.Tensor:
        sources = [self._features[row.corpus] for row in rows]
        stores = [source for source in sources if isinstance(source, FeatureStore)]
        if len(stores) < len(sources):
            by_row = self._features_of(rows)
            device = next((part.device for part in by_row.values() if part.device.type != "cpu"), "cpu")
            return torch.cat([by_row[row].to(device) for row in rows])
        features = torch.empty((sum(lengths), stores[0].manifest.width), dtype=torch.bfloat16, pin_memory=pinned)
        for store, row, part in zip(stores, rows, features.split(list(lengths)), strict=True):
            store.read_into(row.row, part)
        return features

    def _features_of(self, rows: Sequence[RowId]) -> dict[RowId, torch.Tensor]:
        found: dict[RowId, torch.Tensor] = {}
        for corpus in dict.fromkeys(row.corpus for row in rows):
            own = [row for row in rows if row.corpus == corpus]
            found |= dict(zip(own, self._features[corpus].rows([row.row for row in own]), strict=True))
        return found

    def _row(self, of: Mapping[str, torch.Tensor], row: RowId) -> torch.Tensor:
        offsets = self._offsets[row.corpus]
        return of[row.corpus][offsets[row.row] : offsets[row.row + 1]]


def _common_states(features: Mapping[str, FeatureSource]) -> tuple[str, ...]:
    (first, source), *others = features.items()
    for corpus, other in others:
        if other.hidden_states != source.hidden_states:
            raise TapsError(
                f"the features of {corpus}",
                "hold other hidden states than those of the first corpus",
                expected=f"{', '.join(source.hidden_states)} ({first})",
                found=", ".join(other.hidden_states),
                remedy="record both with the same --hidden-state flags of taps.features",
            )
    return source.hidden_states


def _supervised_inputs(supervised: torch.Tensor, offsets: torch.Tensor) -> list[int]:
    """Returns how many supervised tokens each row has behind its first two."""
    before = torch.cat((torch.zeros(1, dtype=torch.int64), supervised.long().cumsum(0)))
    starts = torch.minimum(offsets[:-1] + 2, offsets[1:])
    return (before[offsets[1:]] - before[starts]).tolist()


@dataclass(frozen=True)
class Plan:
    """Which rows each optimizer step sees: consecutive pieces of an endless stream of seeded permutations.

    Attributes:
        rows: Those to train on.
        batch_size: Rows per step over all processes and accumulation steps.
        seed: Decides the permutation of each epoch.
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
        path: Where the mixture lies.
        corpora: Names of those whose tokens are at hand.

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
