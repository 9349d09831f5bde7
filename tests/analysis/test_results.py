"""Loading of replay files: conditions from the files themselves, clear errors, gaps named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from taps.analysis import results
from taps.plumbing.errors import ArtefactError, TapsError
from tests.support.replay_fixtures import write_frame, write_replays

SMALL: dict[str, Any] = {"num_questions": 2, "num_tokens": 8}


def test_condition_comes_from_the_file_not_from_its_name(tmp_path: Path) -> None:
    write_replays(tmp_path, methods=("hass",), benchmarks=("gsm8k",), conditions=((1.0, 3),), **SMALL)
    (tmp_path / "hass/gsm8k/t1_s3.parquet").rename(tmp_path / "anything.parquet")
    (file,) = results.find_replays([tmp_path])
    assert file.condition == {"temperature": 1.0, "method": "hass", "benchmark": "gsm8k"} | {
        "training_seed": 0,
        "seed": 3,
    }
    cycles = results.load_cycles([file])
    assert set(cycles["method"]) == {"hass"}
    assert isinstance(cycles["strategy"].dtype, pd.CategoricalDtype)
    assert cycles["weight"].sum() == len(pd.read_parquet(file.path))


def test_files_with_different_categories_are_joined(tmp_path: Path) -> None:
    write_replays(tmp_path, methods=("eagle2",), benchmarks=("gsm8k",), conditions=((0.0, 0),), **SMALL)
    write_replays(
        tmp_path, methods=("hass",), benchmarks=("gsm8k",), conditions=((0.0, 0),), without=("oracle",), **SMALL
    )
    cycles = results.load_cycles(results.find_replays([tmp_path]))
    assert set(cycles.loc[cycles["strategy"] == "oracle", "method"]) == {"eagle2"}
    nodes = results.load_nodes(results.find_replays([tmp_path]))
    assert set(nodes["kind"]) == {"accepted", "rejected_sibling"}


def test_missing_lists_conditions_and_rows(tmp_path: Path) -> None:
    write_replays(tmp_path, methods=("eagle2",), benchmarks=("gsm8k", "aime"), **SMALL)
    (tmp_path / "eagle2/aime/t1_s1.parquet").unlink()
    (tmp_path / "eagle2/gsm8k/t0_s0.parquet").unlink()
    write_replays(
        tmp_path, methods=("eagle2",), benchmarks=("aime",), conditions=((1.0, 0),), without=("oracle",), **SMALL
    )
    gaps = results.missing(results.load_cycles(results.find_replays([tmp_path])))
    found = set(gaps.itertuples(index=False, name=None))
    assert found == {
        (0.0, "eagle2", "gsm8k", -1, -1, "", "", "benchmark not replayed"),
        (1.0, "eagle2", "aime", 0, 1, "", "", "seed not replayed"),
        (1.0, "eagle2", "aime", 0, 0, "oracle", "math+chat", "not replayed at 40 draft tokens"),
    }


def test_missing_names_nodes_that_are_not_beside_their_replay(tmp_path: Path) -> None:
    write_replays(tmp_path, methods=("eagle2",), benchmarks=("gsm8k",), **SMALL)
    (tmp_path / "eagle2/gsm8k/t1_s1.nodes.parquet").unlink()
    files = results.find_replays([tmp_path])
    (gap,) = results.missing(results.load_cycles(files), files=files).itertuples(index=False, name=None)
    assert gap == (1.0, "eagle2", "gsm8k", 0, 1, "", "", "t1_s1.nodes.parquet is missing")


def test_a_control_without_a_temperature_is_not_a_gap(tmp_path: Path) -> None:
    write_replays(tmp_path, methods=("eagle2",), benchmarks=("gsm8k", "aime"), **SMALL)
    write_replays(tmp_path, methods=("hass",), benchmarks=("gsm8k",), conditions=((0.0, 0),), **SMALL)
    gaps = results.missing(results.load_cycles(results.find_replays([tmp_path])))
    assert gaps[["temperature", "method", "benchmark"]].to_numpy().tolist() == [[0.0, "hass", "aime"]]


def test_sources_name_every_file_with_its_digest(tmp_path: Path) -> None:
    write_replays(tmp_path, methods=("eagle2",), benchmarks=("gsm8k",), **SMALL)
    table = results.sources(results.find_replays([tmp_path]))
    assert len(table) == 3
    assert table["sha256"].str.len().eq(64).all()


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"not parquet", "not a complete parquet file"), (b"", "not a complete parquet file")],
    ids=["text", "empty"],
)
def test_a_broken_file_is_one_clear_error(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(ArtefactError, match=message):
        results.find_replays([tmp_path])


def test_other_kinds_duplicates_and_absent_columns_are_refused(tmp_path: Path) -> None:
    meta = {"method": "eagle2", "benchmark": "gsm8k", "temperature": 0.0, "seed": 0}
    write_frame(tmp_path / "a.parquet", pd.DataFrame({"strategy": ["single"]}), meta)
    with pytest.raises(ArtefactError, match="lacks the columns drafters"):
        results.load_cycles(results.find_replays([tmp_path]))
    write_frame(tmp_path / "b.parquet", pd.DataFrame({"strategy": ["single"]}), meta)
    with pytest.raises(TapsError, match="same condition"):
        results.find_replays([tmp_path])
    (tmp_path / "b.parquet").unlink()
    write_frame(tmp_path / "a.parquet", pd.DataFrame({"strategy": ["single"]}), meta, kind="trace")
    with pytest.raises(ArtefactError, match="expected replay, found trace"):
        results.find_replays([tmp_path])


def test_nothing_found_and_a_missing_path(tmp_path: Path) -> None:
    with pytest.raises(TapsError, match="no replay file"):
        results.find_replays([tmp_path])
    with pytest.raises(TapsError, match="missing"):
        results.find_replays([tmp_path / "nowhere"])
