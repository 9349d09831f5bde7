"""The draft vocabulary holds the most frequent supervised tokens and every special token."""

import numpy as np
import pytest

from taps import draft_vocab
from taps.plumbing.artefacts import read_tensors, write_tensors
from taps.plumbing.errors import TapsError

META = {"vocab_size": 10, "template_digest": "d", "special_ids": [0, 9], "eos_ids": [9]}


def write(path, rows, supervised, **changes):
    """Writes a token file of equally long rows."""
    tokens = np.array(rows, dtype=np.int32)
    tensors = {
        "tokens": tokens.ravel(),
        "supervised": np.array(supervised, dtype=np.uint8).ravel(),
        "offsets": np.arange(len(tokens) + 1, dtype=np.int64) * tokens.shape[1],
    }
    write_tensors(path, tensors, kind="tokens", provenance={}, meta=META | changes)
    return path


def build(tmp_path, paths, size):
    output = tmp_path / "v.safetensors"
    draft_vocab.main([f"--tokens={path}" for path in paths] + [f"--size={size}", f"--output={output}"])
    tensors, meta = read_tensors(output, kind="draft_vocab", framework="np")
    assert tensors["token_ids"].dtype == np.int64
    return tensors["token_ids"].tolist(), meta


def test_supervised_first_then_occurring_then_id(tmp_path):
    rows = [[5, 5, 5, 5, 7, 3]] * 2 + [[3, 3, 3, 3, 8, 8]]
    mask = [[0, 0, 0, 0, 1, 1]] * 2 + [[0, 0, 0, 0, 1, 0]]
    path = write(tmp_path / "a.safetensors", rows, mask)
    # specials 0, 9; supervised: 7 twice, 3 twice, 8 once; of the first two 3 occurs more often
    expected = [[0, 9], [0, 3, 9], [0, 3, 7, 9], [0, 3, 7, 8, 9], [0, 3, 5, 7, 8, 9], [0, 1, 3, 5, 7, 8, 9]]
    for ids in expected:
        assert build(tmp_path, [path], len(ids))[0] == ids
    assert build(tmp_path, [path], 4)[1] == {"vocab_size": 10, "coverage": 0.8}
    assert build(tmp_path, [path], 10)[0] == list(range(10))


def test_counts_add_up_over_corpora_and_leave_validation_out(tmp_path):
    a = write(tmp_path / "a.safetensors", [[4, 4]], [[1, 1]])
    b = write(tmp_path / "b.safetensors", [[6, 5]] * 19 + [[2, 2]], [[1, 0]] * 19 + [[1, 1]])
    assert build(tmp_path, [a, b], 3)[0] == [0, 6, 9]
    assert build(tmp_path, [a, b], 4)[0] == [0, 4, 6, 9]
    assert build(tmp_path, [a, b], 5)[0] == [0, 4, 5, 6, 9]  # 5 is never supervised; 2 is in a validation row only
    assert build(tmp_path, [a, b], 4)[1]["coverage"] == 1.0


def test_refusals(tmp_path):
    a = write(tmp_path / "a.safetensors", [[4, 4]], [[1, 1]])
    b = write(tmp_path / "b.safetensors", [[4, 4]], [[1, 1]], template_digest="other")
    with pytest.raises(TapsError, match="another target: template_digest"):
        build(tmp_path, [a, b], 4)
    for size in (1, 11):
        with pytest.raises(TapsError, match=f"expected 2 to 10, found {size}"):
            build(tmp_path, [a], size)
