"""Tables and figure of trees tuned for a machine, from a tuning written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from taps.analysis.best_trees import best_trees
from taps.analysis.labels import Labels
from taps.analysis.rendering import Table
from taps.analysis.sample import Sample
from taps.plumbing.artefacts import write_json
from taps.study.roles import roles_of_names
from tests.support.report_fixtures import MADE_FROM, tuning


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    path = tmp_path_factory.mktemp("tuned") / "eagle2.json"
    write_json(path, tuning(), kind="tuned", provenance=MADE_FROM)
    roles = roles_of_names(methods=["eagle2"], benchmarks=["gsm8k", "mt_bench"], drafters=["math", "chat", "math+chat"])
    nothing = pd.DataFrame()
    sample = Sample(cycles=nothing, nodes=nothing, num_draft_tokens=40, labels=Labels(roles))
    return {table.name: table for table in best_trees(sample, [("eagle2", path)])}


def _rows(table: Table, **wanted: Any) -> pd.DataFrame:
    keep = np.logical_and.reduce([table.frame[name].eq(value) for name, value in wanted.items()])
    return table.frame[keep]


def test_a_tree_has_its_speed_beside_plain_decoding(tables: dict[str, Table]) -> None:
    """Eight questions of 40 tokens; plain decoding takes 2 s each, the tuned tree 1.6 s, the default one 4 s."""
    own = {"strategy": "single", "drafters": "math", "benchmark": "gsm8k"}
    (tuned,) = _rows(tables["best_trees"], tree="tuned", **own).to_dict("records")
    assert tuned["tokens_per_s"] == pytest.approx(40 / 1.6)
    assert tuned["plain_tokens_per_s"] == pytest.approx(20)
    assert tuned["speedup"] == pytest.approx(1.25)
    assert tuned["tau"] == pytest.approx(40 / 25)
    assert tuned["low"] < 1.25 < tuned["high"]
    assert tuned["heldout_tokens_per_s"] == pytest.approx(24)
    assert (tuned["depth"], tuned["num_draft_tokens"], tuned["top_k"]) == (1, 3, 8)
    settings = [tuned[f"sglang_{name}"] for name in ("steps", "topk", "draft_tokens")]
    assert settings == [2, 3, 4]
    assert tuned["vllm_tokens"] == 2
    (default,) = _rows(tables["best_trees"], tree="default", **own).to_dict("records")
    assert default["speedup"] == pytest.approx(0.5)
    assert (default["depth"], default["num_draft_tokens"]) == (5, 40)
    assert np.isnan(default["sglang_steps"])
    shown = tables["best_trees"].shown
    mine = shown[shown["tree"].eq("tuned") & shown["row"].eq("Math") & shown["benchmark"].eq("gsm8k")].iloc[0]
    assert (mine["shape"], mine.iloc[-2], mine.iloc[-1]) == ("depth 1, 3 nodes", "2, 3, 4", "2")


def test_plain_decoding_may_be_the_choice(tables: dict[str, Table]) -> None:
    (row,) = _rows(tables["best_trees"], strategy="merged_costed", tree="tuned", benchmark="mt_bench").to_dict(
        "records"
    )
    assert row["speedup"] == pytest.approx(1)
    assert np.isnan(row["depth"])
    assert "plain decoding" in set(tables["best_trees"].shown["shape"])


def test_a_tree_that_follows_the_machine_stands_for_itself_in_differences(tables: dict[str, Table]) -> None:
    """merged_costed takes 2.5 s where the tuned tree takes 1.6 s, though plain decoding was chosen in its place."""
    frame = _rows(tables["best_tree_differences"], benchmark="gsm8k")
    pair = frame[frame["a_strategy"].eq("merged_costed") | frame["b_strategy"].eq("merged_costed")].iloc[0]
    sign = 1 if pair["a_strategy"] == "merged_costed" else -1
    assert sign * pair["difference"] == pytest.approx(40 / 2.5 - 40 / 1.6)
    assert sign * pair["tau_difference"] == pytest.approx(40 / 20 - 40 / 25)
    assert pair["low"] < pair["difference"] < pair["high"]


def test_every_shape_is_listed_and_one_is_chosen(tables: dict[str, Table]) -> None:
    frame = _rows(tables["best_tree_shapes"], strategy="single")
    assert frame["chosen"].tolist() == [False, True, False]
    assert frame["tokens_per_s"].tolist() == pytest.approx([22, 24, 10])
    assert frame["plain"].tolist() == pytest.approx([20, 20, 20])
    assert not _rows(tables["best_tree_shapes"], strategy="merged_costed")["chosen"].any()
