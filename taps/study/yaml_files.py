"""YAML files read so that nothing in them is lost: a key that is given twice is an error, and says where."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from taps.plumbing.errors import TapsError


def read_yaml(file: Path) -> dict[str, Any]:
    """Returns the mapping that a YAML file holds.

    Raises:
        TapsError: missing, not YAML, not a mapping, or a mapping in it has a key twice, of which YAML keeps the last.
    """
    try:
        content = yaml.load(Path(file).read_text(encoding="utf-8"), Loader=_Loader)
    except _Twice as twice:
        lines = f"lines {twice.first} and {twice.second}"
        raise TapsError(f"{file}: {twice.key}", "given twice", found=lines, remedy="keep one") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise TapsError(file, "cannot be read", found=error) from None
    if not isinstance(content, dict):
        raise TapsError(file, "not a study", expected="a mapping of keys", found=type(content).__name__)
    return content


class _Twice(Exception):  # noqa: N818 (never leaves this module)
    def __init__(self, key: str, first: int, second: int) -> None:
        self.key, self.first, self.second = key, first, second


class _Loader(yaml.SafeLoader):
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
