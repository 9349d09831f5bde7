"""YAML files read so that nothing in them is lost: a key that is given twice is an error, and says where."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from taps.plumbing.errors import TapsError

_MOST_PARTS = 100_000  # of a study; the paper's has some hundreds


def read_yaml(file: Path) -> dict[str, Any]:
    """Returns the mapping that a YAML file holds.

    Raises:
        TapsError: missing, not YAML, not a mapping, or a mapping in it has a key twice, of which YAML keeps the last;
            or it grows beyond measure by referring to itself.
    """
    try:
        content = yaml.load(Path(file).read_text(encoding="utf-8"), Loader=_Loader)
    except _Twice as twice:
        lines = f"lines {twice.first} and {twice.second}"
        raise TapsError(f"{file}: {twice.key}", "given twice", found=lines, remedy="keep one") from None
    except _Disguised as number:
        problem, remedy = "a number that YAML takes for another", "write it in full, or as text in quotes"
        raise TapsError(f"{file}:{number.line}", problem, found=number, remedy=remedy) from None
    except (OSError, ValueError, AttributeError, yaml.YAMLError, RecursionError) as error:  # also of its own types
        raise TapsError(file, "cannot be read", found=error) from None
    if not isinstance(content, dict):
        raise TapsError(file, "not a study", expected="a mapping of keys", found=type(content).__name__)
    if _is_too_large(content):
        remedy = "write them out, or leave out those that nothing needs"
        raise TapsError(file, "anchors (&, *) that multiply or hold themselves", remedy=remedy)
    return content


def _is_too_large(content: Any) -> bool:
    """Returns whether a value has more parts than anybody writes, each counted wherever it is referred to."""
    waiting, num_parts = [content], 0
    while waiting and num_parts <= _MOST_PARTS:
        value = waiting.pop()
        num_parts += 1
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
    return num_parts > _MOST_PARTS


class _Twice(Exception):  # noqa: N818 (never leaves this module)
    def __init__(self, key: str, first: int, second: int) -> None:
        self.key, self.first, self.second = key, first, second


class _Disguised(Exception):  # noqa: N818 (never leaves this module)
    def __init__(self, text: str, value: object, line: int) -> None:
        super().__init__(f"{text}, which is {value}")
        self.line = line


class _Loader(yaml.SafeLoader):
    def plain_number(self, node: yaml.ScalarNode) -> int | float:
        """Returns a number; those of base eight and sixty, 010 and 1:30, are not what they look like."""
        read = super().construct_yaml_float if node.tag.endswith("float") else super().construct_yaml_int
        value = read(node)
        if ":" in node.value or re.fullmatch(r"[-+]?0[0-9_]+", node.value):
            raise _Disguised(node.value, value, node.start_mark.line + 1)
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[Any, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge" or not isinstance(key_node, yaml.ScalarNode):
                continue
            key, line = self.construct_object(key_node), key_node.start_mark.line + 1
            if key in lines:
                raise _Twice(str(key), lines[key], line)
            lines[key] = line
        return super().construct_mapping(node, deep=deep)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.plain_number)
