"""Features on disk: one row of [tokens, width] bfloat16 per conversation, in shards that a manifest lists.

    features/math/
        manifest.json                       kind features: what they belong to, and where each row lies
        shard-00000-of-00002.safetensors    kind feature_shard: features bf16 [tokens, width], offsets int64 [rows + 1]
        shard-00001-of-00002.safetensors

Shards are cut by tokens alone, so jobs that compute some of them each leave the same files as one job. Whoever needs
features asks for `rows`; `FeatureStore` reads them, `taps.model.features.OnlineFeatures` computes them. Their width is
h for each hidden state of the target that they hold (`taps.model.hidden_states`).
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from safetensors import SafetensorError, safe_open

from taps.model.hidden_states import FINAL
from taps.plumbing.artefacts import read_envelope, read_json, verify_tensors, write_json, write_tensors
from taps.plumbing.envelopes import read_header
from taps.plumbing.errors import ArtefactError
from taps.plumbing.progress import progress
from taps.plumbing.provenance import digest_of
from taps.plumbing.remedies import rebuild_command

MANIFEST, MANIFEST_KIND, PART_KIND, SHARD_KIND = "manifest.json", "features", "feature_part", "feature_shard"


_THREADS = min(8, os.cpu_count() or 1)


class FeatureSource(Protocol):
    """Anything that gives features of whole rows of one tokens artefact."""

    @property
    def hidden_states(self) -> tuple[str, ...]:
        """What a feature holds, side by side, `final` first."""
        ...

    def rows(self, indices: Sequence[int]) -> list[torch.Tensor]:
        """Returns bf16 [n_i, width] for each row asked for, in that order."""
        ...


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One file of a store.

    Attributes:
        file: Name of the file.
        first_row: Row of the tokens artefact that it starts with.
        num_rows: How many rows it holds.
        num_tokens: Tokens of these rows.
        digest: Of its data; empty while it is only planned.
        num_positions_checked: Positions at which lm_head(feature) was compared with the target's own logits.
        num_equal_argmax: Those at which both name the same most likely token.
        max_logit_difference: Largest absolute difference found.
    """

    file: str
    first_row: int
    num_rows: int
    num_tokens: int
    digest: str = ""
    num_positions_checked: int = 0
    num_equal_argmax: int = 0
    max_logit_difference: float = 0.0

    @property
    def row_range(self) -> range:
        """The rows of the tokens artefact that it holds."""
        return range(self.first_row, self.first_row + self.num_rows)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What the features of a folder are.

    Attributes:
        target: Digest of the target.
        template: Digest of the chat template behind the tokens.
        tokens: Digest of the tokens.
        dtype: Compute dtype of the target; on disk it is always bfloat16.
        batch_tokens: Token budget of a forward pass, which decides the last bits.
        hidden_size: h of the target.
        num_rows: Rows of the tokens artefact.
        num_tokens: Tokens of all rows.
        hidden_states: What a feature holds, side by side, `final` first.
        shards: Ordered by row; all of them in a store, some in the part that one of several jobs wrote.
    """

    target: str
    template: str
    tokens: str
    dtype: str
    batch_tokens: int
    hidden_size: int
    num_rows: int
    num_tokens: int
    hidden_states: tuple[str, ...] = (FINAL,)
    shards: tuple[Shard, ...] = ()

    @property
    def width(self) -> int:
        """Numbers of one feature."""
        return self.hidden_size * len(self.hidden_states)

    @property
    def num_bytes(self) -> int:
        """Bytes on disk: two per number, and at most 16 per row and 4 KiB per file around them."""
        rows = sum(shard.num_rows + 1 for shard in self.shards)
        tokens = sum(shard.num_tokens for shard in self.shards)
        return 2 * self.width * tokens + 16 * rows + 4096 * len(self.shards)


def read_manifest(folder: Path, *, kind: str = MANIFEST_KIND) -> Manifest:
    """Returns the manifest of a store, or of a part of one (`kind=PART_KIND`).

    Raises:
        ArtefactError: missing, edited, or of another kind.
    """
    content = read_json(Path(folder) / MANIFEST, kind=kind)
    held = tuple(content.get("hidden_states", (FINAL,)))  # older manifests do not say
    return Manifest(
        **{**content, "hidden_states": held, "shards": tuple(Shard(**shard) for shard in content["shards"])}
    )


def write_manifest(folder: Path, manifest: Manifest, *, kind: str, provenance: Mapping[str, Any]) -> None:
    """Writes the manifest, which makes the shards beside it a store or a part of one."""
    write_json(Path(folder) / MANIFEST, asdict(manifest), kind=kind, provenance=provenance)


def plan_shards(lengths: Sequence[int], shard_tokens: int) -> tuple[Shard, ...]:
    """Returns the shards of rows of these lengths, each closed by the row that reaches `shard_tokens`."""
    starts, filled = [0], 0
    for row, length in enumerate(lengths):
        if filled >= shard_tokens:
            starts.append(row)
            filled = 0
        filled += length
    ends = [*starts[1:], len(lengths)]
    return tuple(
        Shard(
            file=f"shard-{i:05d}-of-{len(starts):05d}.safetensors",
            first_row=start,
            num_rows=end - start,
            num_tokens=sum(lengths[start:end]),
        )
        for i, (start, end) in enumerate(zip(starts, ends, strict=True))
    )


def write_shard(
    folder: Path, shard: Shard, rows: Sequence[torch.Tensor], *, manifest: Manifest, provenance: Mapping[str, Any]
) -> Shard:
    """Writes the features of a planned shard; returns it with its digest.

    Args:
        folder: Where the store lies.
        shard: As planned, with what its check found.
        rows: [n, width] for each of its rows.
        manifest: What the features are; the shard repeats it, so that a finished one is known after a kill.
    """
    lengths = torch.tensor([0, *map(len, rows)])
    tensors = {"features": torch.cat(list(rows)).to(torch.bfloat16), "offsets": lengths.cumsum(0)}
    path = Path(folder) / shard.file
    write_tensors(path, tensors, kind=SHARD_KIND, provenance=provenance, meta=_shard_meta(manifest, shard))
    return replace(shard, digest=read_envelope(path, kind=SHARD_KIND)["digest"])


def finished_shard(folder: Path, shard: Shard, *, manifest: Manifest) -> Shard | None:
    """Returns a planned shard as an earlier run wrote it, or None if it must be computed.

    Raises:
        ArtefactError: never; a truncated, edited or foreign file counts as not written.
    """
    path = Path(folder) / shard.file
    try:
        envelope = verify_tensors(path, kind=SHARD_KIND)
    except ArtefactError:
        return None
    meta = envelope["meta"]
    found = Shard(**{**meta["shard"], "digest": envelope["digest"]})
    return found if meta == _shard_meta(manifest, found) and found.row_range == shard.row_range else None


def check_shard(folder: Path, listed: Shard) -> None:
    """Checks that a file of a store or of a part is, to the last byte, the one that the manifest lists.

    Raises:
        ArtefactError: missing, truncated, edited, or another one.
    """
    path = Path(folder) / listed.file
    if (found := verify_tensors(path, kind=SHARD_KIND)["digest"]) != listed.digest:
        remedy = rebuild_command(folder, MANIFEST_KIND)
        expected = listed.digest[:12]
        raise ArtefactError(
            path, "not the shard that the manifest lists", expected=expected, found=found[:12], remedy=remedy
        )


def _shard_meta(manifest: Manifest, shard: Shard) -> dict[str, Any]:
    belongs_to = asdict(manifest) | {"hidden_states": list(manifest.hidden_states), "shards": []}  # as JSON has them
    return {"belongs_to": belongs_to, "shard": asdict(replace(shard, digest=""))}


class _OpenShard(NamedTuple):
    path: Path
    start: int  # byte at which features begin
    offsets: list[int]


class FeatureStore:
    """Features of one corpus on disk: a row is one read of contiguous bytes, which suits parallel file systems.

    Several threads may read at a time; no file stays open, since a large store has thousands.

    Attributes:
        folder: Where the store lies.
        manifest: What is in it.
    """

    def __init__(self, folder: Path) -> None:
        """Opens the manifest; shards are looked at when a row of theirs is asked for.

        Raises:
            ArtefactError: as `read_manifest`.
        """
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder)
        self._first_rows = [shard.first_row for shard in self.manifest.shards]
        self._open: dict[int, _OpenShard] = {}

    def __len__(self) -> int:
        """Returns the number of rows."""
        return self.manifest.num_rows

    @property
    def hidden_states(self) -> tuple[str, ...]:
        """What a feature holds, side by side, `final` first."""
        return self.manifest.hidden_states

    def row(self, index: int) -> torch.Tensor:
        """Returns bf16 [n, width]: the features of the n tokens of one row, the caller's own copy.

        Raises:
            IndexError: no such row.
            ArtefactError: its shard is missing, truncated, or not the one that the manifest lists.
        """
        shard, start, end = self._place(index)
        features = torch.empty((end - start, self.manifest.width), dtype=torch.bfloat16)
        self._fill(shard, start, features)
        return features

    def rows(self, indices: Sequence[int]) -> list[torch.Tensor]:
        """Returns `row(i)` for each i."""
        return [self.row(index) for index in indices]

    def read_into(self, index: int, features: torch.Tensor) -> None:
        """Reads one row straight into `features` bf16 [n, width], contiguous, perhaps a part of pinned memory.

        Raises:
            IndexError: no such row.
            ValueError: the row has another number of tokens.
            ArtefactError: as `row`.
        """
        shard, start, end = self._place(index)
        if features.shape != (end - start, self.manifest.width):
            raise ValueError(f"row {index} has {end - start} tokens, not {tuple(features.shape)}")
        self._fill(shard, start, features)

    def verify(self, *, part: int = 0, num_parts: int = 1) -> None:
        """Checks the digests of shards, several at a time, reading those that were not read since they last changed.

        A shard is verified when a row of it is first asked for, anyway; this does it for all of them before that.

        Args:
            part: Which of `num_parts` processes this is; each takes its share of the shards.
            num_parts: Processes that share the work.

        Raises:
            ArtefactError: a shard is missing, truncated, edited, or not the one that the manifest lists.
        """
        own = self.manifest.shards[part::num_parts]
        with ThreadPoolExecutor(_THREADS) as threads:
            checked = threads.map(partial(check_shard, self.folder), own)
            for _ in progress(checked, total=len(own), what=f"checking {self.folder.name}", unit="file"):
                pass

    def check_matches(self, *, tokens: Path, target: Path) -> None:
        """Checks that these are the target's features of these tokens.

        Raises:
            ArtefactError: computed from other tokens, another chat template or another target.
        """
        template = read_envelope(tokens, kind="tokens")["meta"]["template_digest"]
        wanted = {"target": digest_of(target), "template": template, "tokens": digest_of(tokens)}
        for name, digest in wanted.items():
            if (found := getattr(self.manifest, name)) != digest:
                raise ArtefactError(
                    self.folder,
                    f"features of another {name}",
                    expected=f"{digest[:12]} ({target if name == 'target' else tokens})",
                    found=found[:12],
                    remedy=rebuild_command(self.folder),
                )

    def _place(self, index: int) -> tuple[_OpenShard, int, int]:
        """Returns (shard, first token, end) of a row."""
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of a store of {len(self)}")
        number = bisect_right(self._first_rows, index) - 1
        shard, local = self._shard(number), index - self._first_rows[number]
        return shard, shard.offsets[local], shard.offsets[local + 1]

    def _fill(self, shard: _OpenShard, start: int, features: torch.Tensor) -> None:
        target = features.view(torch.uint8).numpy().reshape(-1).data  # the tensor's own bytes
        place, filled = shard.start + start * 2 * self.manifest.width, 0
        with open(shard.path, "rb", buffering=0) as file:
            while filled < len(target):
                count = os.preadv(file.fileno(), [target[filled:]], place + filled)
                if not count:
                    raise ArtefactError(shard.path, "truncated", remedy=rebuild_command(self.folder))
                filled += count

    def _shard(self, number: int) -> _OpenShard:
        if number not in self._open:
            listed, remedy = self.manifest.shards[number], rebuild_command(self.folder)
            path = self.folder / listed.file
            check_shard(self.folder, listed)
            try:
                with safe_open(path, framework="pt") as file:
                    offsets = file.get_tensor("offsets").tolist()
            except (SafetensorError, OSError) as error:
                raise ArtefactError(path, f"cannot be read ({error})", remedy=remedy) from None
            header, start = read_header(path)
            first, end = header["features"]["data_offsets"]
            if header["features"]["dtype"] != "BF16" or end - first != 2 * self.manifest.width * listed.num_tokens:
                raise ArtefactError(path, "holds other features than the manifest says", remedy=remedy)
            self._open[number] = _OpenShard(path, start + first, offsets)
        return self._open[number]
