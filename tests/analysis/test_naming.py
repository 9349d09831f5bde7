"""Identifiers become words in print; the CSV keeps them."""

from __future__ import annotations

import pandas as pd

from taps.analysis.labels import Labels
from taps.analysis.naming import gaps_in_words, in_words
from taps.analysis.rendering import Table
from tests.support.replay_fixtures import LAPTOP

LABELS = Labels(LAPTOP)


def test_print_has_titles_and_the_csv_identifiers() -> None:
    frame = pd.DataFrame(
        {
            "benchmark": ["gsm_symbolic"],
            "method": ["eagle2"],
            "strategy": ["routed_confidence_step"],
            "drafters": ["math+chat"],
            "against": ["math"],
            "contrast": ["lead slope, math"],
        }
    )
    table = in_words(Table(name="t", title="", caption="", frame=frame), LABELS)
    assert table.frame.equals(frame)
    assert table.shown.iloc[0].tolist() == [
        "GSM-symbolic", "EAGLE-2", "routed by confidence", "Math + Chat", "Math", "lead slope, Math",
    ]  # fmt: skip


def test_gaps_are_phrases() -> None:
    columns = ["temperature", "method", "benchmark", "training_seed", "seed", "strategy", "drafters", "what"]
    rows = [
        (1.0, "eagle2", "mt_bench", -1, -1, "", "", "benchmark not replayed"),
        (0.0, "hass", "gsm8k", 2, 0, "merged_dedup", "math+chat", "not replayed at 40 draft tokens"),
    ]
    assert gaps_in_words(pd.DataFrame(rows, columns=columns), LABELS) == [
        "MT-Bench, EAGLE-2, T = 1 (benchmark not replayed)",
        "Merged, duplicates once on GSM8K, HASS, T = 0, training seed 2, seed 0 (not replayed at 40 draft tokens)",
    ]
