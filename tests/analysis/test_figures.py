"""The figures stage: every figure drawn, byte-equal reruns, partial studies, and the parts that are pure."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from taps import figures, tables
from taps.analysis.figures import acceptance, costs, details
from taps.analysis.figures import trees as tree_figure
from taps.analysis.figures.style import Picture, grid, interval_bars, save, styled
from taps.analysis.findings import Findings
from taps.analysis.labels import Labels
from taps.decoding.recording import Recording
from taps.decoding.trees import PAD_TOKEN, ROOT, Trees
from taps.decoding.walk import Bank, read_text
from taps.plumbing.artefacts import read_json
from tests.support.replay_fixtures import LAPTOP, ROLES, write_replays
from tests.support.report_fixtures import write_artefacts

COMPLETE = {
    "overview", "acceptance_length", "ours_and_published", "node_budget", "averaging_sweep",
    "acceptance_by_depth_eagle2", "entropy_accepted_rejected", "confidence_accepted_rejected", "routing_shares",
    "speed_against_tau", "tree_shapes_eagle2", "training_curves",
}  # fmt: skip


def _tables(folder: Path, *, full: bool, **options: Any) -> Path:
    size: dict[str, Any] = {"num_questions": 3, "num_tokens": 24}
    replays = write_replays(folder / "r", **size, **options)
    flags = write_artefacts(folder) if full else []
    tables.main(["--replay", str(replays), *flags, *ROLES, "--output", str(folder / "tables")])
    return folder / "tables"


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the tables of a study that has everything, at T = 0."""
    folder = tmp_path_factory.mktemp("complete")
    return _tables(folder, full=True, methods=("eagle2",), benchmarks=("gsm8k", "mt_bench"), conditions=((0.0, 0),))


def test_a_value_that_rounding_put_outside_its_interval_has_a_bar_of_length_0() -> None:
    bars = interval_bars(np.array([2.0, np.nextafter(3.0, 0.0)]), np.array([1.5, 3.0]), np.array([2.25, 3.0]))
    assert bars[0].tolist() == [0.5, 0.0]
    assert bars[1][0] == 0.25
    assert (interval_bars(1.0, 1.0, 1.0) == 0).all()


def test_every_figure_is_drawn(complete: Path, tmp_path: Path) -> None:
    figures.main(["--tables", str(complete), "--output", str(tmp_path)])
    content = read_json(tmp_path / "figures.json", kind="figures")
    index = content["figures"]
    assert {entry["name"] for entry in index} == COMPLETE
    assert index[0]["name"] == "overview"  # stands on the page's first screen
    left_out = [line.partition(":")[0] for line in content["left_out"]]
    assert left_out == ["how findings change with training data", "draft trees along an answer"]
    for entry in index:
        assert len(entry["alt"]) > 20
        if entry["name"] not in ("training_curves", "overview", "tree_shapes_eagle2"):
            assert re.search(r"(10, 20 and )?40 draft tokens", entry["caption"])
            assert "3 questions" in entry["caption"]
        for suffix in ("png", "pdf"):
            assert (tmp_path / f"{entry['name']}.{suffix}").stat().st_size > 3000


def test_equal_tables_give_equal_bytes(complete: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        with styled():
            found = Findings(complete)
            for picture in (acceptance.acceptance_length(found), details.node_signal(found, "entropy")):
                assert isinstance(picture, Picture)
                save(picture, tmp_path / name)
    files = sorted((tmp_path / "one").iterdir())
    assert len(files) == 4
    for file in files:
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


def test_a_partial_study_gets_the_figures_it_allows(tmp_path: Path) -> None:
    found = _tables(
        tmp_path,
        full=False,
        methods=("hass",),
        benchmarks=("aime",),
        conditions=((1.0, 4),),
        without=("merged_concat", "merged_dedup", "routed_confidence_step"),
    )
    figures.main(["--tables", str(found), "--output", str(tmp_path / "f")])
    content = read_json(tmp_path / "f/figures.json", kind="figures")
    names = {entry["name"] for entry in content["figures"]}
    assert {"acceptance_length", "acceptance_by_depth_hass", "averaging_sweep", "routing_shares"} <= names
    assert "speed_against_tau" not in names
    assert "speed against acceptance length: forward times were not measured" in content["left_out"]


def test_drafters_have_looks_of_their_own() -> None:
    drafters = ["math", "chat", "mixed_small", "mixed_large", "averaged"]
    look = Labels(LAPTOP).look
    looks = [tuple(look("single", name).values()) for name in drafters]
    assert len({colour for colour, _ in looks}) == len({marker for _, marker in looks}) == len(drafters)
    doubled = [look("single_double", name) for name in drafters[:2]]
    assert [item["color"] for item in doubled] == [colour for colour, _ in looks[:2]]
    assert doubled[0]["marker"] not in {marker for _, marker in looks}
    assert look("routed_confidence_step", "math+chat") == look("routed_confidence_turn_calibrated", "math+chat")


def _recording() -> Recording:
    """Returns a text 1 2 3 4 (tokens of one answer) with two drafters that know different halves of it."""
    text = read_text(np.array([9, 1, 2, 3, 4]), np.array([0, 5]), np.array([1]), depth=3)
    known = {"math": [[2, 5, 3], [3, 5, 4], [4, 5, 6]], "chat": [[7, 2, 8], [7, 8, 5], [7, 8, 5]]}
    banks = {}
    for name, tokens in known.items():
        batch = Trees(
            tokens=np.array(tokens, dtype=np.int32),
            parents=np.array([[ROOT, ROOT, 0]] * 3, dtype=np.int16),
            scores=np.log(np.array([[0.6, 0.3, 0.2]] * 3)).astype(np.float32),
            entropies=np.ones((3, 3), dtype=np.float32),
        )
        banks[name] = Bank.of(name, batch, text)
    return Recording(text=text, banks=banks, trace_meta={"ids": ["q1"]}, drafting={})


def test_trees_are_drawn_with_tokens_and_accepted_paths(tmp_path: Path) -> None:
    with styled():
        picture = tree_figure.draft_trees(
            _recording(), lambda tokens: f"<{tokens[0]}$", Labels(LAPTOP), num_nodes=4, benchmark="gsm8k"
        )
        panels = picture.figure.axes
        titles = [panel.get_title(loc="left") for panel in panels]
        labels = {text.get_text() for text in panels[2].texts}
        save(picture, tmp_path)
    assert titles == ["Math: 2 accepted", "Chat: 1 accepted", "Merged, the same number of nodes: 2 accepted"]
    assert "<2$  0.45" in labels  # both drafters propose it: (0.6 + 0.3) / 2
    assert "question q1" in picture.caption


def test_leaves_get_rows_of_their_own_and_parents_stand_between() -> None:
    #  root -> 0 -> (2, 3), 1
    assert tree_figure._heights(np.array([ROOT, ROOT, 0, 0])) == [0.5, 2.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("text", "label"),
    [(" the", "·the"), ("\n\n", "↵↵"), ("\t", r"\t"), ("\u4e2d", r"\u4e2d"), ("abcdefghijklmnop", "abcdefghij…")],
)
def test_labels_are_printable(text: str, label: str) -> None:
    assert tree_figure.printable(text) == label


def test_padding_is_not_drawn() -> None:
    tree = Trees(
        tokens=np.array([[4, PAD_TOKEN]], dtype=np.int32),
        parents=np.array([[ROOT, ROOT]], dtype=np.int16),
        scores=np.array([[-1, -np.inf]], dtype=np.float32),
        entropies=np.zeros((1, 2), dtype=np.float32),
    )
    assert tree_figure._paths(tree) == [(4,)]
    assert tree_figure._accepted(tree, np.array([4, 5])) == [0]
    assert tree_figure._accepted(tree, np.array([3, 5])) == []


def test_files_carry_no_time_stamp(complete: Path, tmp_path: Path) -> None:
    with styled():
        picture = details.node_signal(Findings(complete), "entropy")
        assert picture is not None
        save(picture, tmp_path)
    assert b"CreationDate" not in (tmp_path / f"{picture.name}.pdf").read_bytes()
    assert b"Software" not in (tmp_path / f"{picture.name}.png").read_bytes()


def test_stage_imports_no_model_library() -> None:
    code = (
        "import sys, taps.figures, taps.analysis.figures.trees, taps.analysis.figures.costs, taps.decoding.recording;"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_panel_without_data_is_not_drawn(tmp_path: Path) -> None:
    drawing, (first, second) = grid(2, columns=2, height_in=2.0)
    first.plot([0, 1], [0, 1])
    second.plot([], [])
    second.axhline(0)
    save(Picture(name="p", figure=drawing, title="", caption="", alt=""), tmp_path)
    assert (first.get_visible(), second.get_visible()) == (True, False)


def test_the_lowest_drawn_panel_of_a_column_has_tick_labels(tmp_path: Path) -> None:
    drawing, panels = grid(4, columns=2, height_in=1.5, sharex=True)
    for panel in panels[:3]:
        panel.plot([0, 1], [0, 1])
    save(Picture(name="p", figure=drawing, title="", caption="", alt=""), tmp_path)
    assert [panel.xaxis.get_tick_params()["labelbottom"] for panel in panels[:3]] == [False, True, True]


def test_every_training_seed_has_a_curve_of_its_own(tmp_path: Path) -> None:
    found = Findings(_tables(tmp_path, full=True, methods=("eagle2",), benchmarks=("gsm8k",), conditions=((0.0, 0),)))
    curves = found.table("training_curves")
    found._tables["training_curves"] = pd.concat([curves, curves.assign(training_seed=1)])
    with styled():
        picture = costs.training_curves(found)
        assert isinstance(picture, Picture)
        lines = picture.figure.axes[0].get_lines()
        assert len(lines) == 2 * curves["drafters"].nunique()
        assert all((np.diff(np.asarray(line.get_xdata())) > 0).all() for line in lines)
