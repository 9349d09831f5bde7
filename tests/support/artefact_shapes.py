"""One example of each shape that artefacts come in, for tests of what befalls them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taps.analysis.results import find_replays, load_cycles
from taps.plumbing.artefacts import (
    read_json,
    read_jsonl,
    read_tensors,
    write_json,
    write_jsonl,
    write_tensors,
)
from taps.plumbing.parquet import categories, write_parquet

MADE = {"stage": "taps.test"}
ARRAYS = {"tokens": np.arange(50, dtype=np.int32), "scores": np.linspace(0, 1, 7, dtype=np.float32)}
ROWS = [{"id": "a", "turns": ["naïve 数据\u2028", ""]}, {"id": "b", "turns": []}]
CONTENT = {"drafters": {"math": 0.5}, "notes": ["ä", None]}


@dataclass(frozen=True)
class Shape:
    """One of the shapes that artefacts come in.

    Attributes:
        name: Of a file.
        write: Writes the example as one kind of file.
        read: Returns what a stage gets from it.
    """

    name: str
    write: Callable[[Path, str], object]
    read: Callable[[Path], Any]


def write_table(path: Path, kind: str) -> None:
    strings = dict.fromkeys(["strategy", "drafters", "question"], categories([0] * 20, ["x"]))
    names = ["num_draft_tokens", "sequence", "turn", "cycle", "start", "accepted", "emitted", "chosen", "num_nodes"]
    numbers = {name: np.arange(20, dtype=np.int32) for name in [*names, "num_drafted", "tree_depth", "num_levels"]}
    meta = {"method": "eagle2", "benchmark": "gsm8k", "temperature": 0.0, "seed": 0, "depth": 5}
    columns = {**strings, **numbers, "score": np.linspace(0, 1, 20)}
    write_parquet(path, columns, kind=kind, provenance=MADE, meta=meta)


def read_arrays(path: Path) -> Any:
    tensors, meta = read_tensors(path, kind="example", framework="np")
    return {name: array.tolist() for name, array in tensors.items()}, meta


SHAPES = [
    Shape(
        "trace.safetensors",
        lambda path, kind: write_tensors(path, ARRAYS, kind=kind, provenance=MADE, meta={"ids": ["a"]}),
        read_arrays,
    ),
    Shape(
        "corpus.jsonl",
        lambda path, kind: write_jsonl(path, ROWS, kind=kind, provenance=MADE),
        lambda path: read_jsonl(path, kind="example"),
    ),
    Shape(
        "calibration.json",
        lambda path, kind: write_json(path, CONTENT, kind=kind, provenance=MADE),
        lambda path: read_json(path, kind="example"),
    ),
    Shape(
        "cycles.parquet",
        lambda path, kind: write_table(path, "replay" if kind == "example" else kind),
        lambda path: load_cycles(find_replays([path])).to_dict("list"),
    ),
]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
