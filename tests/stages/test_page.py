"""The page: self-contained, escaped, honest about gaps; in a real browser: themes, sorting, phone width, no network."""

from __future__ import annotations

import html
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from taps import claims, figures, page, tables
from taps.analysis.labels import Labels
from taps.analysis.page import cell_class, short_in_words, verdict_counts, with_code
from taps.analysis.rendering import format_interval
from taps.analysis.verdicts import Verdict
from taps.plumbing.artefacts import read_json, write_json
from taps.plumbing.provenance import provenance
from taps.study.config import ROOT as CHECKOUT
from tests.support.browser import CHROMIUM, Page, browser, screen
from tests.support.replay_fixtures import BUDGET, LAPTOP, ROLES, write_replays
from tests.support.report_fixtures import write_artefacts

CONFIG = CHECKOUT / "tests/inputs/study.yaml"
SIZE: dict[str, Any] = {
    "num_questions": 3,
    "num_tokens": 24,
    "methods": ("eagle2",),
    "conditions": ((0.0, 0), (1.0, 0)),
}
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian: apt-get install chromium)")


def build(folder: Path, replays: Path, flags: list[str], study: str = "made-up") -> Path:
    """Runs all four stages of the report and returns the page."""
    places = {name: str(folder / name) for name in ("tables", "figures", "claims")}
    tables.main(["--replay", str(replays), *flags, *ROLES, "--output", places["tables"]])
    for stage, name in ((figures, "figures"), (claims, "claims")):
        stage.main(["--tables", places["tables"], "--output", places[name]])
    words = [word for name, place in places.items() for word in (f"--{name}", place)]
    page.main(
        [
            "--study",
            study,
            *words,
            "--fact",
            "Machine",
            "2 <cores>",
            "--config",
            str(CONFIG),
            "--output",
            str(folder / "index.html"),
        ]
    )
    return folder / "index.html"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the page of a synthetic study that lacks a benchmark at T = 1, and has two training seeds at T = 0."""
    folder = tmp_path_factory.mktemp("report")
    replays = write_replays(folder / "r/seed0", benchmarks=("gsm8k", "mt_bench", "aime"), **SIZE)
    again = {"conditions": ((0.0, 0),), "without": ("merged_dedup",)}
    write_replays(folder / "r/seed1", benchmarks=("gsm8k", "mt_bench", "aime"), training_seed=1, **SIZE | again)
    (replays / "eagle2/mt_bench/t1_s0.parquet").unlink()
    return build(folder, folder / "r", write_artefacts(folder), study="<script>alert(1)</script>")


def test_page_stands_alone_and_is_small(report: Path) -> None:
    text = report.read_text()
    assert len(re.sub(r"data:[^\"]+", "", text)) < 1e6
    for link in re.findall(r"(?:src|href)=\"(?!data:|#)([^\"]*)\"", text):
        assert (report.parent / link).is_file()
    assert "@import" not in text
    assert "url(" not in text


def test_what_came_from_data_is_escaped(report: Path) -> None:
    text = report.read_text()
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "2 &lt;cores&gt;" in text
    assert "a &amp; b &lt;i&gt;.json" in text
    assert html.escape(CONFIG.read_text().splitlines()[0]) in text
    assert text.count("<script>") == 1


def test_every_printed_number_of_the_csv_is_on_the_page(report: Path) -> None:
    text = html.unescape(report.read_text())
    index = read_json(report.parent / "tables/tables.json", kind="tables")["tables"]
    latex = (report.parent / "tables/main_t0.tex").read_text()
    (main,) = [entry for entry in index if entry["name"] == "main_t0"]
    cells = [cell for row in main["rows"] for cell in row if "[" in cell]
    assert len(cells) > 20
    shown = set(re.findall(r'<td class="number">([^<]+?) ?<', text))
    assert all(cell in shown and cell in latex for cell in cells)


def test_gaps_are_said_first(report: Path) -> None:
    text = report.read_text()
    summary = text[text.index('id="summary"') : text.index('id="tables"')]
    assert "This study is incomplete" in summary
    assert "MT-Bench, EAGLE-2, T = 1 (benchmark not replayed)" in summary


def test_every_figure_has_a_caption_and_a_description(report: Path) -> None:
    text = report.read_text()
    index = read_json(report.parent / "figures/figures.json", kind="figures")["figures"]
    assert text.count("<figure id=") == len(index) == text.count("data:image/png;base64,") > 8
    assert all(f'alt="{html.escape(entry["alt"], quote=False)[:20]}' in text for entry in index)


def test_every_claim_is_there_with_its_published_verdict(report: Path) -> None:
    text = html.unescape(report.read_text())
    about_hass = {"C22"}  # which this study does not have
    for number in {f"C{index}" for index in range(1, 26)} - about_hass:
        assert f'id="claim-{number}"' in text
    assert not [number for number in about_hass if f'id="claim-{number}"' in text]
    assert "Published numbers: holds, +1.03." in text
    for question in ("win on that task?", "good everywhere?", "combining specialists?", "which signal routes?"):
        assert question in text


def test_same_inputs_same_page(report: Path, tmp_path: Path) -> None:
    flags = [word for name in ("tables", "figures", "claims") for word in (f"--{name}", str(report.parent / name))]
    for name in ("one", "two"):
        page.main(["--study", "s", *flags, "--output", str(tmp_path / name)])
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_cells_and_captions() -> None:
    assert (
        str(cell_class("2.05 [1.98, 2.12]"))
        == str(cell_class("-0.3"))
        == str(cell_class("12 345"))
        == str(cell_class("< 0.001"))
        == ' class="number"'
    )
    assert str(cell_class("GSM8K")) == ""
    assert str(cell_class("x" * 60)) == ' class="text"'
    assert str(with_code("<b> `a<b`")) == "&lt;b&gt; <code>a&lt;b</code>"


def test_short_answers_in_plain_text() -> None:
    parts = [
        {"verdict": "reproduced", "lead": "Yes", "findings": [["a beats b", "0.20 [0.10, 0.30]"], ["c is there", ""]]},
        {"verdict": "undecided", "lead": "Not shown", "findings": [["d", "0.00 [-0.10, 0.10]"]]},
    ]
    assert short_in_words(parts) == "Yes: a beats b (0.20 [0.10, 0.30]); c is there. Not shown: d (0.00 [-0.10, 0.10])."
    assert short_in_words([]) == "Not asked."


def test_a_missing_picture_is_one_clear_error(report: Path, tmp_path: Path) -> None:
    words = {"figures": [{"name": "gone", "title": "t", "caption": "c", "alt": "a"}], "left_out": []}
    write_json(tmp_path / "figures.json", words, kind="figures", provenance=provenance(stage="test"))
    flags = ["--study", "s", "--tables", str(report.parent / "tables"), "--claims", str(report.parent / "claims")]
    command = [sys.executable, "-m", "taps.page", *flags, "--figures", str(tmp_path), "--output", str(tmp_path / "x")]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "gone.png: missing; " in found.stderr.splitlines()[-1]


# --- in a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opened(report: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Yields the page, open in a browser."""
    with browser(tmp_path_factory.mktemp("profile")) as tab:
        tab.open(report)
        yield tab


@needs_browser
def test_no_console_error_no_network_every_figure_rendered(opened: Page) -> None:
    images = opened.run("[...document.images].map(image => image.complete && image.naturalWidth > 300)")
    assert images
    assert all(images)
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []
    assert sum(url.startswith("file:") for url in opened.requests) == 1


@needs_browser
def test_a_click_and_a_key_sort_a_table(opened: Page) -> None:
    header = "#rows thead th:nth-child(5) button"
    rows = "[...document.querySelector('#rows').tBodies[0].rows]"
    column = f"{rows}.map(row => parseFloat(row.cells[4].textContent)).filter(Number.isFinite)"
    state = "document.querySelector('#rows thead th:nth-child(5)').getAttribute('aria-sort')"
    before = opened.run(column)
    opened.click(header)
    assert opened.run(column) == sorted(before) != before
    assert opened.run(state) == "ascending"
    opened.run(f"document.querySelector('{header}').focus()")
    opened.press("Enter", "\r")
    assert opened.run(column) == sorted(before, reverse=True)
    assert opened.run(state) == "descending"


@needs_browser
def test_a_link_to_a_claim_opens_it(opened: Page) -> None:
    claim = "document.querySelector('#claim-C2').open"
    assert not opened.run(claim)
    opened.click(".findings a[href='#claim-C2']")
    opened.wait(claim)


@needs_browser
def test_themes_follow_the_system_and_the_button(opened: Page, tmp_path: Path) -> None:
    theme, paper = "document.documentElement.dataset.theme", "getComputedStyle(document.body).backgroundColor"
    found = {}
    for scheme in ("light", "dark"):
        opened.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        opened.wait(f"{theme} == '{scheme}'")
        found[scheme] = opened.run(paper)
        opened.screenshot(tmp_path / f"{scheme}.png")
    assert found["light"] != found["dark"]
    opened.click("#theme")
    assert (opened.run(theme), opened.run(paper)) == ("light", found["light"])
    opened.click("#theme")


@needs_browser
def test_phone_width_needs_no_sideways_scrolling(opened: Page) -> None:
    with screen(opened, 390, 844, mobile=True):
        assert opened.run("document.documentElement.scrollWidth") <= 390
        assert opened.run("Math.max(...[...document.images].map(image => image.getBoundingClientRect().right))") <= 390


@needs_browser
def test_a_phone_sees_every_number_of_a_row_and_whole_badges(opened: Page) -> None:
    with screen(opened, 390, 844, mobile=True):
        cells = "[...document.querySelector('#rows tbody tr').cells]"
        right = opened.run(f"{cells}.map(cell => cell.getBoundingClientRect().right)")
        assert len(right) == 8
        assert max(right) <= 390
        assert opened.run(f"{cells}.map(cell => getComputedStyle(cell, '::before').content)[4]") == '"MT-Bench"'
        heights = opened.run(
            "[...document.querySelectorAll('.badge')].map(badge => badge.getBoundingClientRect().height)"
        )
        assert max(heights) < 1.5 * min(height for height in heights if height)


@needs_browser
def test_first_screen_answers_the_questions(opened: Page) -> None:
    with screen(opened, 1440, 900, mobile=False):
        bottoms = opened.run("[...document.querySelectorAll('.first .answers p, .first img')].map("
                             "part => part.getBoundingClientRect().bottom)")  # fmt: skip
        assert len(bottoms) == 6  # four questions, a line about the numbers, the figure
        assert max(bottoms) < 900
        assert opened.run("document.querySelector('.advice strong').getBoundingClientRect().bottom") < 900
        assert opened.run(
            "[...document.querySelectorAll('.answers .value')].every(e => /\\d \\[.*\\]/.test(e.textContent))"
        )
        assert not opened.run(
            "document.querySelector('#summary').textContent.match(/judgements|cycles replayed|\\d rows/i)"
        )


@needs_browser
def test_filter_shows_the_standing_rows_first_and_any_other_on_demand(opened: Page) -> None:
    shown = "[...document.querySelectorAll('#rows tbody tr')].filter(row => row.offsetHeight > 0)"
    names = f"[...new Set({shown}.map(row => row.cells[0].textContent))]"
    change = "document.getElementById('filter').dispatchEvent(new Event('input'))"
    field = "document.getElementById('filter').elements"
    standing = opened.run(names)
    assert {"Math", "Chat", "Routed by confidence", "Merged, all nodes"} <= set(standing)
    assert "Merged, duplicates once" not in standing
    opened.run(f"{field}.strategy.value = 'merged, duplicates once'; {change}")
    assert opened.run(names) == ["Merged, duplicates once"]
    opened.run(f"{field}.strategy.value = ''; {field}.text.value = 'ORACLE'; {change}")
    assert opened.run(names) == ["Oracle router"]
    opened.run(f"{field}.text.value = ''; {field}.all.checked = true; {field}.temperature.value = '1'; {change}")
    assert set(opened.run(f"{shown}.map(row => row.cells[2].textContent)")) == {"1"}
    assert len(opened.run(names)) > len(standing)
    opened.run(f"{field}.benchmark.value = '5'; {change}")
    header = (
        "[...document.querySelectorAll('#rows thead th')].filter(cell => !cell.hidden).map(cell => cell.textContent)"
    )
    assert opened.run(header) == ["variant", "family", "T", "nodes per drafter", "GSM8K"]
    opened.run(f"document.getElementById('filter').reset(); {change}")
    assert opened.run(names) == standing


@needs_browser
def test_row_names_and_headers_stay_in_sight(opened: Page) -> None:
    with screen(opened, 700, 500, mobile=False):
        opened.run("document.getElementById('filter').elements.all.click()")
        box = "document.getElementById('rows').parentElement"
        opened.run(f"{box}.scrollTo(200, 300)")
        corner = opened.run(f"(() => {{const r = {box}.getBoundingClientRect(); return [r.left, r.top]}})()")
        head = opened.run("document.querySelector('#rows thead th:nth-child(5)').getBoundingClientRect().top")
        name = opened.run("(() => {const r = [...document.querySelectorAll('#rows tbody th')].at(-1)"
                          ".getBoundingClientRect(); return [r.left, r.width]})()")  # fmt: skip
        opened.run(f"{box}.scrollTo(0, 0); document.getElementById('filter').elements.all.click()")
        assert head == pytest.approx(corner[1], abs=3)
        assert name[0] == pytest.approx(corner[0], abs=3)
        assert name[1] < 230


@needs_browser
def test_comparison_finds_the_packages_own_differences(opened: Page, report: Path) -> None:
    """Every pair of the table: one and two training seeds, a row that lacks one, means, a missing benchmark."""
    opened.wait("!document.getElementById('pair').hidden")
    opened.run("comparison.then(data => { globalThis.compareData = data; })")
    opened.wait("globalThis.compareData !== undefined")
    labels = Labels(LAPTOP)
    table: Any = pd.read_csv(report.parent / "tables/paired_differences.csv")
    pairs = table.groupby(["temperature", "method", "a_strategy", "a_drafters", "b_strategy", "b_drafters"])
    assert set(table["num_training_seeds"]) == {1, 2}
    num_checked = 0
    for (temperature, method, *names), part in pairs:
        rows = [labels.row(*names[:2]), labels.row(*names[2:])]
        condition = labels.condition(temperature, method)
        found = opened.run(
            f"(() => {{const of = label => compareData.rows.find(row => row.condition === {condition!r} &&"
            f" (row.label === label || row.label === label + ', {BUDGET} nodes'));"
            f" return compared(compareData, of({rows[0]!r}), of({rows[1]!r}))}})()"
        )
        by_name = {line["name"]: line for line in found}
        assert set(by_name) == set(part["benchmark"])
        for row in part.to_dict("records"):
            line = by_name[row["benchmark"]]
            values = [math.nan if line[name] is None else line[name] for name in ("estimate", "low", "high")]
            wanted = [row[name] for name in ("difference", "low", "high")]
            assert values == pytest.approx(wanted, abs=2e-4, nan_ok=True), (row, line)
            assert (line["number"], line["seeds"]) == (row["num_questions"], row["num_training_seeds"])
            num_checked += 1
    assert num_checked > 300


@needs_browser
def test_comparison_tool_is_used_with_its_selects(opened: Page, report: Path) -> None:
    opened.wait("!document.getElementById('pair').hidden")
    pick = "(name, text) => { const select = document.getElementById('pair').elements[name];" \
        " select.value = [...select.options].find(o => o.textContent === text).value;" \
        " select.dispatchEvent(new Event('change')); }"  # fmt: skip
    for name, text in (("condition", "EAGLE-2, T = 0"), ("a", "Math, 40 nodes"), ("b", "Chat, 40 nodes")):
        opened.run(f"({pick})({name!r}, {text!r})")
    table: Any = pd.read_csv(report.parent / "tables/paired_differences.csv")
    wanted = table.query(
        "temperature == 0 and a_strategy == 'single' and a_drafters == 'math' and b_strategy == 'single' "
        "and b_drafters == 'chat' and benchmark == 'gsm8k'"
    ).to_dict("records")[0]
    cells = opened.run("[...document.querySelectorAll('#difference tbody tr')].map(row => [...row.cells].map("
                       "cell => cell.textContent)).find(row => row[0] === 'GSM8K')")  # fmt: skip
    assert cells[3] == format_interval(wanted["difference"], wanted["low"], wanted["high"])
    assert "2 training seeds" in opened.run("document.getElementById('covers').textContent")


def test_no_verdict_is_lost_in_counting() -> None:
    claims = [
        {"judgements": [{"verdict": str(verdict)} for verdict in Verdict]},
        {"judgements": [{"verdict": "no effect"}]},
    ]
    assert sum(number for _, number in verdict_counts(claims)) == len(Verdict) + 1


@needs_browser
def test_everything_has_a_name_for_screen_readers(opened: Page) -> None:
    assert opened.run("document.documentElement.lang") == "en"
    assert opened.run("[...document.querySelectorAll('select, input')].every(field => field.labels.length === 1)")
    assert opened.run("[...document.querySelectorAll('#rows tbody tr')].every(row => row.cells[0].scope === 'row')")
    assert opened.run("[...document.images].every(image => image.alt.length > 20)")
    assert opened.run(
        "[...document.querySelectorAll('button')].every(b => (b.textContent + b.ariaLabel).trim().length > 0)"
    )
    sections = "[...document.querySelectorAll('section')]"
    assert opened.run(f"{sections}.every(part => document.getElementById(part.getAttribute('aria-labelledby')))")
    assert opened.run(
        "[...document.querySelectorAll('nav a')].every(a => document.querySelector(a.getAttribute('href')))"
    )
    ids = opened.run("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
