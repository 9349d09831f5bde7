"""Tables of corpora, training, calibration, speed and the live check, from hand-written artefacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from taps import claims, tables
from taps.analysis import inputs
from taps.analysis.shares import clopper_pearson
from taps.analysis.speeds import live_check
from taps.plumbing.artefacts import read_json, write_json
from tests.support.replay_fixtures import ROLES, write_replays
from tests.support.report_fixtures import COST, MADE_FROM, live_report, write_artefacts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with `tables` made of replays and every optional artefact."""
    folder = tmp_path_factory.mktemp("study")
    size: dict[str, Any] = {"num_questions": 3, "num_tokens": 24}
    replays = write_replays(folder / "r", methods=("eagle2",), benchmarks=("gsm8k", "mt_bench"), **size)
    flags = write_artefacts(folder)
    tables.main(["--replay", str(replays), *flags, *ROLES, "--output", str(folder / "tables")])
    return folder


def _csv(folder: Path, name: str) -> Any:
    return pd.read_csv(folder / "tables" / f"{name}.csv")


def test_corpora_name_every_reason(folder: Path) -> None:
    row = _csv(folder, "corpora").iloc[0]
    assert row["read"] == row["kept"] + row["dropped"]
    assert row["reasons"] == "empty_text 1; too_long 2"
    assert r"a \& b <i>.json" in (folder / "tables/corpora.tex").read_text()


def test_overlap(folder: Path) -> None:
    assert _csv(folder, "overlap").to_dict("records")[0]["num_shared"] == 2


def test_training_leaves_out_averages(folder: Path) -> None:
    table = _csv(folder, "training")
    assert table["drafters"].tolist() == ["math", "chat"]
    assert table["tokens_per_s"].tolist() == [2000, 2000]
    assert table["validation_top1"].tolist() == [0.4, 0.4]
    assert len(_csv(folder, "training_curves")) == 8


def test_a_draft_model_without_its_training_record_is_named(tmp_path: Path) -> None:
    for name, stage in (("math", "taps.train"), ("averaged", "taps.average"), ("released", None)):
        (tmp_path / name).mkdir()
        if stage:
            write_json(tmp_path / name / "provenance.json", {}, kind="drafter", provenance={"stage": stage})
    drafters = [(f"eagle2/seed0/{path.name}", path) for path in sorted(tmp_path.iterdir())]
    table = inputs.notes([], drafters=drafters)
    assert table is not None
    assert table.frame["part"].tolist() == ["training of eagle2/seed0/math"]
    assert "training.json is missing" in table.frame["note"][0]


def test_page_is_told_what_was_trained_and_where(folder: Path) -> None:
    facts = dict(read_json(folder / "tables/tables.json", kind="tables")["facts"])
    assert facts["Training"] == "2 draft models, 80 000 tokens read in 0.7 minutes"
    assert facts["Machine"] == "cpu, 2 threads, float32"
    assert facts["Temperatures"] == "T = 0 (sampling seeds: 1), T = 1 (sampling seeds: 2)"


def test_calibration(folder: Path) -> None:
    row = _csv(folder, "calibration").iloc[0]
    assert (row["method"], row["drafters"], row["error_before"], row["error_after"]) == ("eagle2", "math", 0.12, 0.03)


def test_speed_follows_the_cost_model(folder: Path) -> None:
    speed = _csv(folder, "speed").query("temperature == 0 and benchmark == 'gsm8k'").set_index(["strategy", "drafters"])
    acceptance = _csv(folder, "acceptance_length").query("temperature == 0 and benchmark == 'gsm8k'")
    tau = acceptance.query("num_draft_tokens == 40").set_index(["strategy", "drafters"])["tau"]
    one_s = 0.020 + 0.080 + COST["overhead_one_s"]
    two_s = 2 * 0.020 + 0.100 + COST["overhead_many_s"]
    assert speed.loc[("single", "math"), "tokens_per_s"] == pytest.approx(tau["single", "math"] / one_s, abs=2e-3)
    merged = ("merged_concat", "math+chat")
    assert speed.loc[merged, "tokens_per_s"] == pytest.approx(tau[merged] / two_s, abs=2e-3)
    assert speed.loc[merged, "speedup"] == pytest.approx(tau[merged] / two_s * 0.041, abs=1e-3)


def test_live_check_counts_places_where_texts_part(tmp_path: Path) -> None:
    write_json(tmp_path / "live.json", live_report(num_equal_texts=3), kind="live_check", provenance=MADE_FROM)
    frame: Any = live_check([("eagle2/gsm8k", tmp_path / "live.json")]).frame.set_index("strategy")
    assert frame.loc["single", "diverged_percent"] == pytest.approx(100 / 480, abs=1e-4)
    assert frame.loc["all", "num_tokens"] == 960
    assert frame.loc["plain", "diverged_percent"] == 0
    low, high = map(float, clopper_pearson(2, 960))
    assert frame.loc["all", ["low", "high"]].tolist() == pytest.approx([100 * low, 100 * high], abs=1e-4)


@pytest.mark.parametrize(("num_equal_texts", "verdict"), [(4, "reproduced"), (0, "undecided")])
def test_lossless_claim_needs_the_live_check(folder: Path, tmp_path: Path, num_equal_texts: int, verdict: str) -> None:
    write_json(tmp_path / "l.json", live_report(num_equal_texts), kind="live_check", provenance=MADE_FROM)
    flags = ["--live", f"eagle2/gsm8k={tmp_path / 'l.json'}"]
    tables.main(["--replay", str(folder / "r/eagle2/gsm8k/t0_s0.parquet"), *flags, "--output", str(tmp_path / "t")])
    claims.main(["--tables", str(tmp_path / "t"), "--output", str(tmp_path / "c")])
    table = pd.read_csv(tmp_path / "c/claims.csv").set_index("claim")
    assert table.loc["C24", "verdict"] == verdict
