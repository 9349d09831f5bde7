"""Somebody's own traffic: a study with none of the paper's names gets a full, right page. The study is run for real."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from taps.analysis.labels import Labels
from taps.plumbing.artefacts import read_json
from taps.study.config import ROOT
from taps.study.roles import Roles
from tests.support.browser import CHROMIUM, Page, browser, screen

pytestmark = pytest.mark.slow
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian: apt-get install chromium)")
STUDY = "workflow/studies/own_traffic.yaml"
PAPER = r"\b(math|chat|mixed|GSM8K|MT-Bench|MATH-500|SVAMP|AIME|HASS|paper|papers|published|arXiv)\b"


def run_study(folder: Path) -> Path:
    """Returns the reports of the finished study, run below `folder`."""
    command = [Path(sys.executable).parent / "snakemake", "all", "--snakefile", ROOT / "Snakefile", "--cores", "2"]
    command += ["--directory", folder, "--replace-workflow-config", "--configfile", ROOT / STUDY]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "reports/own_traffic"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_study(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def opened(reports: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Yields the page, open in a browser."""
    with browser(tmp_path_factory.mktemp("profile")) as tab:
        tab.open(reports / "index.html")
        yield tab


def _words(page: str) -> str:
    """Returns the page's own words: without style, scripts, pictures and the study's settings."""
    without = re.sub(r"<(style|script|pre)\b.*?</\1>", "", page, flags=re.DOTALL)
    return re.sub(r"<[^>]*>", " ", re.sub(r'src="data:[^"]*"', "", without))


def test_nothing_of_the_paper_is_on_the_page(reports: Path) -> None:
    words = _words((reports / "index.html").read_text())
    assert len(words) > 10_000
    assert not re.findall(PAPER, words, flags=re.IGNORECASE)
    assert "not testable here" not in words
    claims: pd.DataFrame = pd.read_csv(reports / "claims/claims.csv")
    assert not claims["claim"].str.fullmatch(r"[CK]\d+").any()
    assert claims["published"].isna().all()


def test_every_specialist_is_matched_to_its_own_benchmark(reports: Path) -> None:
    labels = Labels(Roles.from_json(read_json(reports / "tables/tables.json", kind="tables")["roles"]))
    assert {name: labels.matched(name) for name in labels.roles.benchmarks} == {
        "code_questions": "code",
        "support_questions": "support",
    }
    assert labels.main == "code+support+legal"
    text = (reports / "index.html").read_text()
    for sentence in (
        "the Code drafter wins on Code questions",
        "the Customer support drafter wins on Support questions",
    ):
        assert sentence in text
    looks = [tuple(labels.look("single", name).values()) for name in labels.roles.drafters]
    assert len(set(looks)) == len(looks)


def test_identifiers_are_words_where_people_read(reports: Path) -> None:
    text = (reports / "index.html").read_text()
    for section in ("summary", "tables", "figures", "claims"):
        part = text[text.index(f'<section id="{section}"') :]
        words = _words(part[: part.index("</section>")])
        assert not re.findall(r"\b\w+_(?:questions|step|turn|matched|concat)\b|single_\w+", words), section


def test_no_section_table_or_figure_is_empty(reports: Path) -> None:
    text = (reports / "index.html").read_text()
    for part in re.findall(r"<section .*?</section>", text, flags=re.DOTALL):
        assert re.search(r"<(table|figure|details|dl)\b", part)
        assert len(_words(part)) > 200
    assert all("<tr" in body for body in re.findall(r"<tbody>(.*?)</tbody>", text, flags=re.DOTALL))
    content = read_json(reports / "figures/figures.json", kind="figures")
    assert len(content["figures"]) > 10
    assert [line.partition(":")[0] for line in content["left_out"]] == [
        "how findings change with training data",
        "averaging the specialists' weights",
        "tokens per second over tree shapes",
    ]
    assert all(line in text for line in (line.replace("'", "&#39;") for line in content["left_out"]))


def test_what_to_do_is_answered(reports: Path) -> None:
    advice = {item["question"]: item for item in read_json(reports / "claims/claims.json", kind="claims")["advice"]}
    assert len(advice) == 4
    speed = pd.read_csv(reports / "tables/speed.csv").query("benchmark == 'mean' and strategy != 'oracle'")
    best = max(speed.to_dict("records"), key=lambda row: row["tokens_per_s"])
    answer = advice["Which tree do I serve on this machine, and what does it bring?"]["answer"]
    assert f"{best['speedup']:.2f} [" in answer
    assert ("plain decoding is faster" in answer) is (best["high"] < best["tokens_per_s"] / best["speedup"])


@needs_browser
@pytest.mark.parametrize(("width", "height"), [(1440, 900), (390, 844)])
def test_page_fits_a_desk_and_a_phone(opened: Page, width: int, height: int) -> None:
    with screen(opened, width, height, mobile=width < 400):
        assert opened.run("document.documentElement.scrollWidth") <= width
        answers = "[...document.querySelectorAll('.answers h3')].map(part => part.getBoundingClientRect().top)"
        assert len(opened.run(answers)) == 4
        assert max(opened.run(answers)) < height
    opened.wait("!document.getElementById('pair').hidden")
    assert opened.complaints == []
    assert "questions only" in opened.run("document.getElementById('covers').textContent")
