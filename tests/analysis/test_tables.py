"""The tables stage on synthetic replays: columns, numbers, agreement of the forms in print, gaps, byte-equal reruns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from taps import tables
from taps.analysis import depths, results
from taps.analysis.labels import Labels
from taps.analysis.rendering import format_interval
from taps.plumbing.artefacts import read_json
from tests.support.replay_fixtures import BENCHMARKS, BUDGET, LAPTOP, ROLES, rows, write_frame, write_replays

SMALL: dict[str, Any] = {"num_questions": 6, "num_tokens": 32}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with `replays` and the `tables` made of them."""
    folder = tmp_path_factory.mktemp("study")
    write_replays(folder / "replays", benchmarks=("gsm8k", "mt_bench", "aime"), **SMALL)
    tables.main(["--replay", str(folder / "replays"), *ROLES, "--output", str(folder / "tables")])
    return folder


def _csv(study: Path, name: str) -> Any:
    return pd.read_csv(study / "tables" / f"{name}.csv")


def test_columns_are_the_agreed_ones(study: Path) -> None:
    acceptance, paired = (",".join(_csv(study, name).columns) for name in ("acceptance_length", "paired_differences"))
    assert acceptance == (
        "temperature,method,strategy,drafters,benchmark,num_draft_tokens,tau,tau_low,tau_high,tau_macro,"
        "tau_published_eagle,tau_published_hass,num_cycles,num_tokens,num_questions,num_training_seeds,seeds"
    )
    assert paired == (
        "temperature,method,benchmark,a_strategy,a_drafters,b_strategy,b_drafters,num_draft_tokens,"
        "difference,low,high,num_questions,num_training_seeds,p_value"
    )


def test_tau_is_tokens_over_cycles_of_the_named_files(study: Path) -> None:
    cycles: Any = results.load_cycles(results.find_replays([study / "replays"]))
    table = _csv(study, "acceptance_length")
    row = table.query(
        "temperature == 1 and method == 'hass' and strategy == 'merged_concat' and benchmark == 'mt_bench'"
    )
    raw = cycles.query(
        "temperature == 1 and method == 'hass' and strategy == 'merged_concat' and benchmark == 'mt_bench'"
    )
    num_cycles, num_tokens = raw["weight"].sum(), (raw["emitted"] * raw["weight"]).sum()
    assert row["tau"].item() == pytest.approx(num_tokens / num_cycles, abs=1e-4)
    assert row[["num_cycles", "num_tokens"]].to_numpy().tolist() == [[num_cycles, num_tokens]]
    assert row["seeds"].item() == "0+1"
    assert row["num_questions"].item() == 6
    answers = raw.loc[raw["cycle"] == 1, "weight"].sum()
    eagle = num_tokens / (num_cycles - answers)
    assert row["tau_published_eagle"].item() == pytest.approx(eagle, abs=1e-4)
    assert (table["tau_low"] <= table["tau"]).all()
    assert (table["tau"] <= table["tau_high"]).all()


def test_domains_weigh_the_same_in_the_mean(study: Path) -> None:
    table = _csv(study, "acceptance_length").query("temperature == 0 and method == 'eagle2' and drafters == 'math'")
    table = table[table["strategy"].eq("single") & table["num_draft_tokens"].eq(BUDGET)].set_index("benchmark")
    math = (table.loc["gsm8k", "tau"] + table.loc["aime", "tau"]) / 2
    assert table.loc["mean", "tau"] == pytest.approx((math + table.loc["mt_bench", "tau"]) / 2, abs=2e-4)
    assert table.loc["mean", "num_questions"] == 18


def test_specialists_are_told_apart(study: Path) -> None:
    paired = _csv(study, "paired_differences").query(
        "temperature == 0 and a_drafters == 'math' and b_drafters == 'chat'"
    )
    paired = paired.query("a_strategy == 'single' and b_strategy == 'single' and method == 'eagle2'").set_index(
        "benchmark"
    )
    assert paired.loc["gsm8k", "low"] > 0
    assert paired.loc["mt_bench", "high"] < 0


def test_no_pair_comes_twice(study: Path) -> None:
    paired = _csv(study, "paired_differences")
    place = ["temperature", "method", "benchmark"]
    pairs = [
        (*row[:3], frozenset([row[3:5], row[5:7]]))
        for row in paired[[*place, "a_strategy", "a_drafters", "b_strategy", "b_drafters"]].itertuples(
            index=False, name=None
        )
    ]
    assert len(pairs) == len(set(pairs))


def test_markdown_latex_and_page_hold_the_numbers_of_the_csv(study: Path) -> None:
    table = _csv(study, "main_t0")
    texts = [(study / "tables" / f"main_t0.{suffix}").read_text() for suffix in ("md", "tex")]
    index = read_json(study / "tables" / "tables.json", kind="tables")
    page = next(entry for entry in index["tables"] if entry["name"] == "main_t0")
    assert len(page["rows"]) == len(table)
    for row, cells in zip(table.itertuples(), page["rows"], strict=True):
        shown = format_interval(row.gsm8k, row.gsm8k_low, row.gsm8k_high)
        assert shown in cells
        assert all(shown in text for text in texts)


def test_published_cells_stand_beside_ours(study: Path) -> None:
    table = _csv(study, "main_t0").set_index(["method", "strategy", "drafters"])
    assert table.loc[("eagle2", "single", "math"), "gsm8k_published"] == 5.04
    assert table.loc[("eagle2", "single", "math"), "aime_published"] == 5.28
    assert np.isnan(table.loc[("eagle2", "merged_adaptive", "math+chat"), "gsm8k_published"])


def test_every_number_can_be_traced_to_a_file(study: Path) -> None:
    sources = _csv(study, "sources")
    cells = _csv(study, "acceptance_length").query("benchmark != 'mean'")[
        ["temperature", "method", "benchmark", "seeds"]
    ]
    held = set(sources[["temperature", "method", "benchmark", "seed"]].itertuples(index=False, name=None))
    for temperature, method, benchmark, seeds in set(cells.itertuples(index=False, name=None)):
        for seed in str(seeds).split("+"):
            assert (temperature, method, benchmark, int(seed)) in held


def test_rerun_gives_the_same_bytes(study: Path, tmp_path: Path) -> None:
    tables.main(["--replay", str(study / "replays"), *ROLES, "--output", str(tmp_path)])
    files = sorted((study / "tables").glob("*.csv"))
    assert len(files) > 15
    for file in files:
        assert file.read_bytes() == (tmp_path / file.name).read_bytes(), file.name


def test_gaps_are_listed_and_stop_nothing(tmp_path: Path) -> None:
    folder = write_replays(
        tmp_path / "r",
        methods=("eagle2",),
        benchmarks=("gsm8k", "mt_bench"),
        without=("merged_concat", "oracle"),
        **SMALL,
    )
    (folder / "eagle2/mt_bench/t0_s0.parquet").unlink()
    (folder / "eagle2/gsm8k/t1_s1.nodes.parquet").unlink()
    tables.main(["--replay", str(folder), *ROLES, "--output", str(tmp_path / "t")])
    gaps: Any = pd.read_csv(tmp_path / "t/missing.csv")
    assert gaps[["temperature", "benchmark", "what"]].to_numpy().tolist() == [
        [0, "mt_bench", "benchmark not replayed"],
        [1, "gsm8k", "t1_s1.nodes.parquet is missing"],
    ]
    main: Any = pd.read_csv(tmp_path / "t/main_t0.csv")
    assert "mt_bench" not in main.columns
    assert not main["strategy"].eq("merged_concat").any()


def test_means_of_methods_with_other_benchmarks_are_over_those_that_they_have(tmp_path: Path) -> None:
    folder, greedy = tmp_path / "r", ((0.0, 0),)
    write_replays(folder, methods=("eagle2",), benchmarks=BENCHMARKS, conditions=greedy, **SMALL)
    write_replays(folder, methods=("hass",), benchmarks=("gsm8k", "mt_bench"), conditions=greedy, **SMALL)
    write_replays(folder, methods=("eagle2",), benchmarks=("gsm8k", "mt_bench"), conditions=((1.0, 0),), **SMALL)
    tables.main(["--replay", str(folder), *ROLES, "--output", str(tmp_path / "tables")])
    labels = Labels(LAPTOP)

    def check(name: str, value: str, other: str) -> None:
        """A mean weighs domains alike by its own benchmarks, whatever the others have."""
        table = _csv(tmp_path, name)
        table = table[~labels.is_sweep(table["drafters"])] if "drafters" in table else table
        place = [*{"temperature", "method", "strategy", "drafters", "num_draft_tokens", "against", "contrast", other}]
        place = [column for column in place if column in table]
        table = table[table["benchmark"].eq("mean") | table["benchmark"].isin(BENCHMARKS)]
        seen = 0
        for _, group in table.groupby(place, dropna=False):
            cells = group.set_index("benchmark")[value]
            if "mean" in cells and len(cells) > 1:
                domains = cells.drop("mean").groupby(labels.domain).mean()
                assert cells["mean"] == pytest.approx(domains.mean(), abs=2e-4), group
                seen += 1
        assert seen > 1

    check("acceptance_length", "tau", "")
    check("acceptance_length", "tau_published_eagle", "")
    check("method_differences", "difference", "b_method")
    check("temperature_differences", "difference", "b_temperature")
    contrasts = _csv(tmp_path, "contrasts")
    contrasts[contrasts["contrast"].isin(["family", "specialists", "temperature"])].to_csv(
        tmp_path / "tables/pooled.csv", index=False
    )
    check("pooled", "estimate", "")
    main = _csv(tmp_path, "main_t0").query("method == 'hass' and strategy == 'single' and drafters == 'math'")
    assert main["mean"].item() == pytest.approx(main[["gsm8k", "mt_bench"]].to_numpy().mean(), abs=1e-4)
    printed = main[["gsm8k_published", "mt_bench_published"]].to_numpy().mean()
    assert main["mean_published"].item() == pytest.approx(printed)


def test_what_the_paper_has_not_has_no_column(tmp_path: Path) -> None:
    replays = write_replays(tmp_path / "r", benchmarks=("gsm8k", "gsm_symbolic"), conditions=((0.0, 0),), **SMALL)
    roles = json.loads(ROLES[1])
    roles["benchmarks"]["gsm_symbolic"]["published"] = "gsm_symbolic"  # stands for none of the paper's
    tables.main(["--replay", str(replays), "--roles", json.dumps(roles), "--output", str(tmp_path / "t")])
    header = (tmp_path / "t/main_t0.md").read_text().splitlines()[2]
    assert "paper: GSM8K" in header
    assert header.count("paper: ") == 2  # GSM8K and the mean


def test_a_single_file_of_one_strategy_is_enough(tmp_path: Path) -> None:
    others = tuple({row.strategy for row in rows()} - {"single"})
    folder = write_replays(
        tmp_path / "r", methods=("eagle2",), benchmarks=("gsm8k",), conditions=((0.0, 0),), without=others, **SMALL
    )
    (file,) = results.find_replays([folder])
    file.nodes_path.unlink()
    tables.main(["--replay", str(file.path), "--output", str(tmp_path / "t")])
    assert set(pd.read_csv(tmp_path / "t/acceptance_length.csv")["strategy"]) == {"single"}


def test_a_single_drafter_is_enough(tmp_path: Path) -> None:
    folder = write_replays(tmp_path / "r", methods=("eagle2",), benchmarks=("gsm8k",), conditions=((0.0, 0),), **SMALL)
    (file,) = results.find_replays([folder])
    file.nodes_path.unlink()
    cycles = pd.read_parquet(file.path).query("strategy == 'single' and drafters == 'math'")
    kept = {name: cycles[name].cat.remove_unused_categories() for name in ("strategy", "drafters")}
    write_frame(file.path, cycles.assign(**kept), file.meta)
    tables.main(["--replay", str(file.path), "--output", str(tmp_path / "t")])
    assert set(pd.read_csv(tmp_path / "t/main_t0.csv")["drafters"]) == {"math"}


def test_depth_leaves_out_cycles_that_the_end_cut_short() -> None:
    cycles = pd.DataFrame(
        {
            "temperature": 0.0, "method": "m", "benchmark": "gsm8k", "strategy": "single", "drafters": "math",
            "training_seed": 0,
            "num_draft_tokens": 40, "question": ["a", "a", "b", "b"], "accepted": [1, 1, 0, 2], "emitted": [2, 1, 1, 3],
        }
    )  # fmt: skip
    counts = depths.depth_counts(cycles, Labels(LAPTOP), num_draft_tokens=40)
    table: Any = depths.acceptance_by_depth(counts).set_index("depth")
    assert table.loc[1, "acceptance_percent"] == pytest.approx(75)
    assert table.loc[2, "num_cycles"] == 2
    assert table.loc[2, "acceptance_percent"] == pytest.approx(50)


def test_stage_imports_no_model_library() -> None:
    code = "import sys, taps.tables; print(sorted({'torch', 'transformers', 'matplotlib'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout.replace("'", '"')) == []
