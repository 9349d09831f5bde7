"""What the page says of a target: name, size, how its weights were read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from taps.analysis.target_facts import in_words, target_facts
from taps.plumbing.artefacts import write_json
from taps.plumbing.provenance import provenance


def _target(folder: Path, source: dict[str, str] | None) -> Path:
    save_file(
        {"a": np.zeros((30, 50), dtype=np.float32), "b": np.zeros(7, dtype=np.float32)}, folder / "model.safetensors"
    )
    content = {"eos_ids": [2]} | ({"source": source} if source else {"seed": 0})
    write_json(folder / "provenance.json", content, kind="target", provenance=provenance(stage="test"))
    return folder


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct, 1.5 k parameters, Q4_1 weights read as float32"),
        ("Qwen3-4B-IQ3_XXS.gguf", "Qwen3-4B, 1.5 k parameters, IQ3_XXS weights read as float32"),
        ("Llama-3-8B", "Llama-3-8B, 1.5 k parameters, float32 weights, not quantised"),
    ],
)
def test_a_target_is_named_with_its_size_and_weights(tmp_path: Path, name: str, line: str) -> None:
    found = target_facts(_target(tmp_path, {"name": name, "digest": "ab12"}))
    assert found["line"] == line
    assert found["source"] == f"{name}, sha256 ab12"


def test_a_target_made_here_has_no_source(tmp_path: Path) -> None:
    found = target_facts(_target(tmp_path, None))
    assert found["line"] == "A tiny Llama, 1.5 k parameters, float32 weights, made for this study"
    assert found["source"] is None


def test_counts_in_words() -> None:
    assert [in_words(count) for count in (999, 1507, 164_000, 134_515_008, 8_030_000_000, 70_600_000_000)] == [
        "999", "1.5 k", "164 k", "135 M", "8.0 B", "71 B",
    ]  # fmt: skip
