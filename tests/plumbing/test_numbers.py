"""Numbers in a study and on a command line: finite, whole where they count, within what makes sense, or refused."""

from __future__ import annotations

import argparse
import ast
import importlib
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from taps.plumbing.cli import stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.numbers import TYPES
from taps.study.config import ROOT, validate

PACKAGE = ROOT / "taps"
NUMBERLESS = ("__init__", "__main__", "config", "page", "claims")
STAGES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem not in NUMBERLESS)
NEVER = ("nan", "inf", "-inf", "1e400", "", "x", "0x10", "1_0", " ")
WRONG: dict[str, tuple[str, ...]] = {
    "number": ("0", "-1", "1.5", "1e3", "99999999999"),
    "count": ("-1", "0.5", "1e3"),
    "seed": ("-1", "0.5", str(2**64)),
    "depth": ("-1", "257", "1.0"),
    "nodes": ("0", "32768"),
    "share": ("0", "-0.1", "1.0001", "1e-400"),
    "share0": ("-0.1", "1.0001"),
    "beta": ("-0.1", "1"),
    "rate": ("0", "-1"),
    "weight": ("-1", "-1e-9"),
    "temperature": ("-1", "101"),
}
RIGHT: dict[str, dict[str, float]] = {
    "number": {"1": 1, "2147483647": 2**31 - 1},
    "count": {"0": 0, "7": 7},
    "seed": {"0": 0, str(2**63 - 1): 2**63 - 1},
    "depth": {"0": 0, "256": 256},
    "nodes": {"1": 1, "32767": 32767},
    "share": {"1": 1, "0.001": 0.001},
    "share0": {"0": 0, "1": 1},
    "beta": {"0": 0, "0.999": 0.999},
    "rate": {"3e-5": 3e-5},
    "weight": {"0": 0, "1e3": 1000},
    "temperature": {"0": 0, "0.7": 0.7},
}


@pytest.mark.parametrize("name", TYPES)
def test_each_type_takes_what_makes_sense_and_nothing_else(name: str) -> None:
    for text, value in RIGHT[name].items():
        assert TYPES[name](text) == value
    for text in (*NEVER, *WRONG[name]):
        if text in ("1_0", " ") and text.strip().replace("_", "").isdigit():
            continue  # Python's own spelling of ten
        with pytest.raises(argparse.ArgumentTypeError, match=r"^expected a (whole )?number .*, found "):
            TYPES[name](text)


def test_a_refused_number_is_one_line(capsys: pytest.CaptureFixture) -> None:
    parser = stage_parser("taps.bank", "Drafts.")
    parser.add_argument("--top-p", type="share")
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--top-p", "nan"])
    assert ended.value.code == 2
    line = "error: --top-p: expected a number above 0, at most 1, found 'nan'; see python -m taps.bank --help\n"
    assert capsys.readouterr().err == line


def test_no_stage_takes_a_bare_int_or_float() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "type" and isinstance(node.value, ast.Name):
                assert node.value.id not in ("int", "float"), f"{path}:{node.value.lineno}"


@pytest.mark.parametrize("stage", STAGES)
def test_every_number_of_every_stage_is_checked(stage: str, capsys: pytest.CaptureFixture) -> None:
    parser = importlib.import_module(f"taps.{stage}").build_parser()
    numbers = [action for action in parser._actions if action.type in TYPES]
    for action in numbers:
        for text in ("nan", "-inf", "-1"):
            words = [f"{action.option_strings[0]}={text}"] if action.nargs is None else [action.option_strings[0], text]
            with pytest.raises(SystemExit):
                parser.parse_args(words)
            printed = capsys.readouterr().err
            assert printed.count("\n") == 1
            assert printed.startswith(f"error: {action.option_strings[0]}: expected "), printed


# --- a study's config ------------------------------------------------------------------------------------------------


def numbers_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Returns the places of all numbers in a config."""
    if isinstance(value, dict):
        return [place for key, item in value.items() for place in numbers_in(item, (*path, key))]
    if isinstance(value, list):
        return [place for index, item in enumerate(value) for place in numbers_in(item, (*path, index))]
    return [path] if isinstance(value, int | float) and not isinstance(value, bool) else []


def study() -> dict[str, Any]:
    """Returns the smoke study with every number that the schema gives a default."""
    text = (ROOT / "workflow" / "studies" / "smoke.yaml").read_text(encoding="utf-8")
    return validate(yaml.safe_load(text), file="smoke.yaml", root=ROOT)


PLACES = numbers_in(study())


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, -1, 1e300, 10**40], ids=str)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_no_number_of_a_study_may_be_anything(place: tuple[Any, ...], number: float) -> None:
    config = study()
    *parents, last = place
    inner: Any = config
    for key in parents:
        inner = inner[key]
    inner[last] = number
    with pytest.raises(TapsError) as caught:
        validate(config, file="smoke.yaml", root=ROOT)
    message = str(caught.value)
    assert message.startswith("smoke.yaml: ")
    assert str(place[0]) in message


def test_yaml_spells_them_in_many_ways(tmp_path: Path) -> None:
    for text in (".nan", ".NaN", ".inf", "-.inf", ".Inf"):
        config = study()
        config["training"] = yaml.safe_load(f"learning_rate: {text}")
        with pytest.raises(TapsError, match=r"smoke\.yaml: training\.learning_rate: not a finite number, found"):
            validate(config, file="smoke.yaml", root=ROOT)


def test_a_whole_number_may_be_written_with_a_point() -> None:
    config = study()
    config["drafting"]["depth"] = 2.0
    found = validate(config, file="smoke.yaml", root=ROOT)["drafting"]["depth"]
    assert (found, type(found)) == (2, int)
    config["drafting"]["depth"] = 2.5
    with pytest.raises(TapsError, match="expected a whole number"):
        validate(config, file="smoke.yaml", root=ROOT)
