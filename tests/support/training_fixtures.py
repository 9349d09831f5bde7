"""A study small enough to train on within a second: a random target, structured rows, their features, a mixture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from taps import features
from taps.model.hidden_states import FINAL
from taps.plumbing.artefacts import read_json, write_json, write_tensors
from tests.support.live_fixtures import save_tiny_target

NUM_ROWS, NUM_TRAINED = 18, 14


def make_rows(seed: int, count: int = NUM_ROWS) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Returns (tokens, supervision) of 6 to 40 tokens each, in which one token decides the next; some barely count."""
    generator = torch.Generator().manual_seed(seed)
    successor = torch.randperm(250, generator=generator)
    rows, flags = [], []
    for _ in range(count):
        length = int(torch.randint(6, 41, (1,), generator=generator))
        tokens = [int(torch.randint(0, 250, (1,), generator=generator))]
        while len(tokens) < length:
            tokens.append(int(successor[tokens[-1]]))
        rows.append(torch.tensor(tokens, dtype=torch.int32))
        flags.append(torch.rand(length, generator=generator) < torch.rand(1, generator=generator))
        flags[-1][-1] = True
    return rows, flags


def write_tokens(path: Path, rows: Sequence[torch.Tensor], flags: Sequence[torch.Tensor]) -> Path:
    """Writes a tokens artefact; returns its path."""
    tensors = {
        "tokens": torch.cat(list(rows)),
        "supervised": torch.cat(list(flags)).to(torch.uint8),
        "offsets": torch.tensor([0, *map(len, rows)]).cumsum(0),
    }
    meta = {"template_digest": "c", "ids": [f"row{i}" for i in range(len(rows))]}
    write_tensors(path, tensors, kind="tokens", provenance={}, meta=meta)
    return path


class RandomFeatures:
    """Random features [n, 32] of each row, kept in memory."""

    hidden_states = (FINAL,)

    def __init__(self, rows: Sequence[torch.Tensor]) -> None:
        generator = torch.Generator().manual_seed(0)
        self._rows = [torch.randn(len(row), 32, generator=generator) for row in rows]

    def rows(self, indices: Sequence[int]) -> list[torch.Tensor]:
        return [self._rows[index] for index in indices]


@dataclass(frozen=True)
class Study:
    """Inputs of `taps.train` in a folder: `target/`, `tokens/`, `features/` of corpora `math` and `chat`, a mixture."""

    folder: Path

    @property
    def target(self) -> Path:
        return self.folder / "target"

    def tokens(self, corpus: str) -> Path:
        return self.folder / f"tokens/{corpus}.safetensors"

    def flags(self, output: Path, *more: object, online: Iterable[str] = (), state: Path | None = None) -> list[str]:
        """Returns the command line of a run that leaves its draft model in `output`."""
        flags: list[object] = ["--target", self.target, "--mixture", self.folder / "mixed.json", "--output", output]
        flags += ["--state", state or output.with_name(f"{output.name}.state")]
        for corpus in ("math", "chat"):
            place = "online" if corpus in online else self.folder / f"features/{corpus}"
            flags += ["--tokens", f"{corpus}={self.tokens(corpus)}", "--features", f"{corpus}={place}"]
        return [str(flag) for flag in (*flags, *more)]


def make_study(folder: Path) -> Study:
    """Writes a study; returns it."""
    study = Study(folder)
    save_tiny_target(study.target)
    for seed, corpus in enumerate(("math", "chat")):
        write_tokens(study.tokens(corpus), *make_rows(seed))
        flags = ["--target", study.target, "--tokens", study.tokens(corpus), "--output", folder / f"features/{corpus}"]
        features.main([str(flag) for flag in flags])
    rows = {corpus: list(range(NUM_ROWS)) for corpus in ("math", "chat")}
    mixture = {
        "corpora": ["math", "chat"],
        "train": {corpus: numbers[:NUM_TRAINED] for corpus, numbers in rows.items()},
        "validation": {corpus: numbers[NUM_TRAINED:] for corpus, numbers in rows.items()},
        "num_tokens": {},
    }
    write_json(folder / "mixed.json", mixture, kind="mixture", provenance={})
    return study


def weights(drafter: Path) -> dict[str, torch.Tensor]:
    """Returns the tensors of a trained draft model."""
    return load_file(drafter / "model.safetensors")


def record(drafter: Path) -> dict[str, Any]:
    """Returns the content of its training.json."""
    return read_json(drafter / "training.json", kind="training")


def largest_difference(first: Path, second: Path) -> float:
    """Returns the largest absolute difference of any weight of two draft models."""
    a, b = weights(first), weights(second)
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)
