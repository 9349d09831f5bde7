"""What docs/ says is so: error messages are in the code, commands are the stages', counts are the report's."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from pathlib import Path

import pytest

from taps.plumbing.artefacts import read_json

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
TROUBLES = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
HEADINGS = re.findall(r"^### (.*)$", TROUBLES, flags=re.MULTILINE)


def texts_in_code() -> list[str]:
    """Returns the text constants of the package that are no docstrings, f-strings with `…` for what they fill in."""
    found = []
    for path in (ROOT / "taps").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        told = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {node} & (told | parts):
                found.append(node.value)
    return found


def test_every_trouble_is_a_message_of_the_code() -> None:
    assert len(HEADINGS) > 30
    texts = texts_in_code()
    words = [re.fullmatch(r"`([^`]+)`", heading) for heading in HEADINGS]
    assert all(words), "a heading is the message, as code"
    unknown = [match[1] for match in words if match and not any(match[1] in text for text in texts)]
    assert unknown == []


def test_every_trouble_has_a_way_out_and_stands_once() -> None:
    assert len(set(HEADINGS)) == len(HEADINGS)
    for section in re.split(r"^## ", TROUBLES, flags=re.MULTILINE)[1:]:
        assert not section.rstrip().splitlines()[-1].startswith("#"), f"nothing is said of {section.splitlines()[-1]}"


def test_what_vllm_counted_is_what_the_report_says() -> None:
    text = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
    line = r"^\| [^|]+ \| (\d+) \| (\d+) \| ([\d, ]+) \| the same \| (\d+) of (\d+) \|$"
    printed = re.findall(line, text, flags=re.MULTILINE)
    rows = read_json(ROOT / "reports/laptop/vllm.json", kind="vllm_check")["rows"]
    assert [row["vllm"] for row in rows] == [row["replay"] for row in rows]
    assert not any(row["other_texts"] for row in rows)
    assert printed == [
        (
            str(row["vllm"]["num_cycles"]),
            str(row["vllm"]["num_accepted"]),
            ", ".join(map(str, row["vllm"]["accepted_by_position"])),
            *[str(row["num_texts"])] * 2,
        )
        for row in rows
    ]


def commands() -> list[str]:
    """Returns the indented `python -m taps...` lines of docs/, continued lines joined."""
    joined = "\n".join(path.read_text(encoding="utf-8") for path in DOCS).replace("\\\n", " ")
    return re.findall(r"^    (python -m taps\.\w+ .*)$", joined, flags=re.MULTILINE)


def test_there_are_commands() -> None:
    assert len(commands()) >= 6


@pytest.mark.parametrize("command", commands())
def test_commands_have_flags_that_their_stages_know(command: str) -> None:
    _, _, module, *flags = shlex.split(command)
    importlib.import_module(module).build_parser().parse_args(flags)
