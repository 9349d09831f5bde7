"""CSV, Markdown and LaTeX of one table hold the same numbers; text is escaped for each."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taps.analysis import rendering
from taps.analysis.rendering import Table

NUMBERS = st.floats(-1e4, 1e4, allow_nan=False)


def _table(values: list[float]) -> Table:
    frame = pd.DataFrame({"benchmark": [f"b{index}" for index in range(len(values))], "tau": values})
    return Table(name="t", title="Title", caption="Caption", frame=frame)


@given(st.lists(NUMBERS, min_size=1, max_size=5))
def test_print_is_the_rounded_csv(values: list[float]) -> None:
    table = _table(values)
    csv = pd.read_csv(io.StringIO(rendering.to_csv(table.frame)))["tau"]
    for text in (rendering.to_markdown(table), rendering.to_latex(table)):
        printed = [float(cell.replace(" ", "")) for cell in re.findall(r"b\d+ [|&] (-?[\d .]+?) (?:\||\\\\)", text)]
        assert len(printed) == len(values)
        assert all(abs(shown - exact) <= 0.005 + 1e-9 for shown, exact in zip(printed, csv, strict=True))


@given(NUMBERS, st.integers(0, 4))
def test_format_number_rounds_and_never_prints_minus_zero(value: float, decimals: int) -> None:
    text = rendering.format_number(value, decimals)
    assert abs(float(text) - value) <= 0.5 * 10**-decimals + 1e-4
    assert float(text) != 0 or not text.startswith("-")


def test_missing_numbers_and_intervals() -> None:
    assert rendering.format_number(math.nan) == "–"
    assert rendering.format_interval(2.0, math.nan, math.nan) == "2.00"
    assert rendering.format_interval(2.054, 1.98, 2.12) == "2.05 [1.98, 2.12]"
    assert rendering.format_count(math.nan) == "–"
    assert rendering.format_count(12345) == "12 345"


def test_settings_keep_their_own_digits() -> None:
    frame = pd.DataFrame({"temperature": [0.0, 0.7], "chat_weight": [0.5, 0.123456], "tau": [1.0, 2.0]})
    assert rendering.to_csv(frame) == "temperature,chat_weight,tau\n0,0.5,1.0000\n0.7,0.123456,2.0000\n"


@pytest.mark.parametrize(
    ("text", "escaped"), [("a_b & 5 %", r"a\_b \& 5 \%"), (r"\x", r"\textbackslash{}x"), ("{~^}", None)]
)
def test_latex_specials(text: str, escaped: str | None) -> None:
    found = rendering.latex_escape(text)
    assert found == (escaped or r"\{\textasciitilde{}\textasciicircum{}\}")


def test_files_are_identical_on_every_write(tmp_path: Path) -> None:
    table = _table([1.0, math.nan, 1 / 3])
    for folder in ("one", "two"):
        rendering.write_table(table, tmp_path / folder)
    for suffix in ("csv", "md", "tex"):
        assert (tmp_path / f"one/t.{suffix}").read_bytes() == (tmp_path / f"two/t.{suffix}").read_bytes()


def test_a_column_has_one_form() -> None:
    frame = pd.DataFrame(
        {"tau": [1.0, 2.5], "num_nodes": [40.0, math.nan], "temperature": [0.0, 0.7], "who": ["a", None]}
    )
    shown = rendering.in_print(frame)
    assert shown.to_dict("list") == {
        "tau": ["1.00", "2.50"],
        "nodes": ["40", "–"],
        "temperature": ["0", "0.7"],
        "who": ["a", "–"],
    }
    assert rendering.in_print(frame, {"tau": 4})["tau"].tolist() == ["1.0000", "2.5000"]
