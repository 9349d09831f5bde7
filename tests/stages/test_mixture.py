"""Mixtures: index lists that nest, with the same validation rows whatever the size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps import mixture
from taps.data.mixtures import Size, take, training_rows, validation_rows
from taps.plumbing.artefacts import read_json, write_tensors
from taps.plumbing.errors import TapsError

LENGTHS = np.arange(1, 101)
lengths = st.lists(st.integers(1, 50), min_size=2, max_size=90).map(np.array)


def test_every_twentieth_row_validates():
    assert validation_rows(45).tolist() == [19, 39]
    assert set(training_rows(45)) == set(range(45)) - {19, 39}


@given(
    lengths=lengths, shares=st.tuples(st.floats(0.1, 1), st.floats(0.1, 1)), unit=st.sampled_from(["rows", "tokens"])
)
def test_a_larger_share_extends_a_smaller_one(lengths, shares, unit):
    sizes = [Size(share=share, unit=unit) for share in sorted(shares)]
    if unit == "rows" and round(min(shares) * len(training_rows(len(lengths)))) == 0:
        return
    small, large = (take("c", lengths, size).tolist() for size in sizes)
    assert large[: len(small)] == small
    assert not set(large) & set(validation_rows(len(lengths)))
    assert take("c", lengths, Size(share=1.0, unit=unit)).tolist() == training_rows(len(lengths)).tolist()


@given(lengths=lengths, share=st.floats(0.01, 1))
def test_token_sizes_are_reached_by_no_more_rows_than_needed(lengths, share):
    total = int(lengths[training_rows(len(lengths))].sum())
    wanted = max(1, round(share * total))
    rows = take("c", lengths, Size(tokens=wanted))
    assert lengths[rows[:-1]].sum() < wanted <= lengths[rows].sum()
    assert rows.tolist() == take("c", lengths, Size(share=wanted / total)).tolist()


def test_rows_are_rows():
    assert take("c", LENGTHS, Size(rows=20)).tolist() == [*range(19), 20]
    assert len(take("c", LENGTHS, Size(share=0.5, unit="rows"))) == 48  # round(0.5 * 95), ties to even


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (Size(share=0.0), "above 0, at most 1, found 0.0"),
        (Size(share=1.5), "found 1.5"),
        (Size(rows=96), "too few training rows, expected 96, found 95"),
        (Size(rows=0), "too few training rows"),
        (Size(tokens=10_000), "too few training tokens, expected 10000, found 4750"),
    ],
)
def test_impossible_sizes(size, message):
    with pytest.raises(TapsError, match=message):
        take("c", LENGTHS, size)


@pytest.fixture
def tokens(tmp_path):
    for name, num_rows in (("math", 40), ("chat", 60)):
        offsets = np.arange(num_rows + 1, dtype=np.int64) * 10
        write_tensors(tmp_path / f"{name}.safetensors", {"offsets": offsets}, kind="tokens", provenance={})
    return [f"--tokens={name}={tmp_path / name}.safetensors" for name in ("math", "chat")]


def test_stage(tokens, tmp_path):
    output = tmp_path / "m.json"
    mixture.main([*tokens, "--share", "math=0.5", "--rows", "chat=3", "--output", str(output)])
    content = read_json(output, kind="mixture")
    assert content == {
        "corpora": ["chat", "math"],
        "train": {"chat": [0, 1, 2], "math": list(range(19))},
        "validation": {"chat": [19, 39, 59], "math": [19, 39]},
        "num_tokens": {"train": {"chat": 30, "math": 190}, "validation": {"chat": 30, "math": 20}},
    }


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (["--share", "math=0.5"], "each corpus needs one size.*chat, math, found math"),
        (["--share", "math=1", "--rows", "math=3", "--rows", "chat=3"], "more than one size for math"),
        (["--share", "math=1", "--rows", "chat=3", "--rows", "code=3"], "each corpus needs one size"),
    ],
)
def test_sizes_must_match_the_corpora(tokens, tmp_path, sizes, message):
    with pytest.raises(TapsError, match=message):
        mixture.main([*tokens, *sizes, "--output", str(tmp_path / "m.json")])


def test_malformed_pairs_are_usage_errors(capsys):
    with pytest.raises(SystemExit):
        mixture.main(["--tokens", "math", "--output", "m.json"])
    assert "'math' is not NAME=VALUE" in capsys.readouterr().err
