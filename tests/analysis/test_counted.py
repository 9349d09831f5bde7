"""Counting cycles and nodes as they are read changes no number, and memory holds no more banks than a row takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taps import replay as replay_stage
from taps.analysis import measures, results
from taps.analysis.counted import WEIGHT, weighted_sums, weights
from taps.decoding import recording
from taps.decoding.walk import Bank
from tests.support.replay_fixtures import write_replays
from tests.support.tiled_replays import write_recording

KEYS = ["temperature", "method", "benchmark", "seed", "strategy", "drafters", "num_draft_tokens"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[results.ReplayFile]:
    """Returns replay files of two methods, two benchmarks and three seeds."""
    folder = tmp_path_factory.mktemp("replays")
    write_replays(folder, benchmarks=("gsm8k", "mt_bench"), num_questions=3, num_tokens=40)
    return results.find_replays([folder])


def listed(files: list[results.ReplayFile], *, nodes: bool = False) -> pd.DataFrame:
    """Returns every row of the files as it stands there, nodes with the question of their sequence."""
    frames = []
    for file in files:
        frame = pq.read_table(file.path).to_pandas()
        if nodes:
            questions = frame[["sequence", "question"]].drop_duplicates("sequence")
            frame = pq.read_table(file.nodes_path).to_pandas().merge(questions, on="sequence")
        frames.append(frame.assign(**file.condition))
    whole = pd.concat(frames, ignore_index=True)
    texts = [name for name in whole.columns if not pd.api.types.is_numeric_dtype(whole[name])]
    return whole.astype(dict.fromkeys(texts, "str"))


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns a frame with its texts as such, its rows sorted by all columns."""
    frame = frame.reset_index() if frame.index.names != [None] else frame
    texts = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    return frame.astype(dict.fromkeys(texts, "str")).sort_values(list(frame.columns), ignore_index=True)


def test_no_cycle_is_lost_and_few_rows_are_left(files: list[results.ReplayFile]) -> None:
    counted, whole = results.load_cycles(files), listed(files)
    assert int(counted[WEIGHT].sum()) == len(whole)
    assert len(counted) < len(whole) / 1.5
    assert set(counted["cycle"]) == {1, 2}


@pytest.mark.parametrize("by", [KEYS, KEYS[:3], []], ids=len)
def test_sums_depths_and_shares_are_those_of_the_listed_cycles(files: list[results.ReplayFile], by: list[str]) -> None:
    counted, whole = results.load_cycles(files), listed(files)
    for measure in (measures.question_sums, measures.acceptance_by_depth, measures.routing_shares):
        own = [name for name in by if name != "drafters" or measure is not measures.routing_shares]
        one, other = in_order(measure(counted, by=own)), in_order(measure(whole, by=own))
        pd.testing.assert_frame_equal(one, other, check_dtype=False, check_exact=True)


@pytest.mark.parametrize("published", [False, True])
def test_node_signals_are_those_of_the_listed_nodes(files: list[results.ReplayFile], published: bool) -> None:
    by = [*KEYS[:4], "drafters", "num_draft_tokens", "question"]
    one = in_order(measures.judged_nodes(results.load_nodes(files), by=by, published=published))
    other = in_order(measures.judged_nodes(listed(files, nodes=True), by=by, published=published))
    assert one["count"].tolist() == other["count"].tolist()
    pd.testing.assert_frame_equal(one, other, check_dtype=False, rtol=1e-12)


def test_what_is_not_counted_weighs_one() -> None:
    frame = pd.DataFrame({"key": ["a", "b", "a"], "value": [1, 2, 3]})
    assert weights(frame).tolist() == [1, 1, 1]
    assert weighted_sums(frame, ["key"], ["value"])["value"].tolist() == [4, 2]
    assert weighted_sums(frame.assign(weight=[2, 5, 1]), ["key"], ["value"])["value"].tolist() == [5, 10]


def test_files_are_read_one_after_another(files: list[results.ReplayFile], monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a file are gone before those of the next one are read."""
    rows: list[int] = []
    real = results.count_cycles

    def counting(table: pa.Table, columns: Sequence[str]) -> pa.Table:
        rows.append(len(table))
        return real(table, columns)

    monkeypatch.setattr(results, "count_cycles", counting)
    results.load_cycles(files)
    assert rows == [pq.read_metadata(file.path).num_rows for file in files]


# --- banks -----------------------------------------------------------------------------------------------------------


def test_a_replay_holds_no_more_banks_than_a_row_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = write_recording(tmp_path, num_positions=480, num_drafters=5)
    most, real = 0, recording.Banks.__getitem__

    def counting(self: recording.Banks, name: str) -> Bank:
        nonlocal most
        bank = real(self, name)
        most = max(most, len(self._read))
        return bank

    monkeypatch.setattr(recording.Banks, "__getitem__", counting)
    replay_stage.main([*flags, "--output", str(tmp_path / "out.parquet")])
    assert most == 2
    rows = pq.read_table(tmp_path / "out.parquet").to_pandas()
    wanted = [(row["strategy"], "+".join(row["drafters"])) for row in json.loads(flags[-1])]
    found = rows[["strategy", "drafters"]].drop_duplicates().astype(str)
    assert list(found.itertuples(index=False, name=None)) == wanted  # in the order asked for, whatever was walked first
    assert np.array_equal(rows["emitted"] >= 1, np.ones(len(rows), bool))
