"""Command-line flags out of values: the words that rules hand to stages."""

from __future__ import annotations

import json
from typing import Any


def flags(**values: Any) -> list[str]:
    """Returns flags in the order given: lists repeat their flag, True stands alone, None and False vanish."""
    words = []
    for name, value in values.items():
        flag = f"--{name.replace('_', '-')}"
        for item in value if isinstance(value, list) else [value]:
            if item is not None and item is not False:
                words += [flag] if item is True else [flag, str(item)]
    return words


def as_json(value: Any) -> str:
    """Returns a value as one line of JSON, for a flag."""
    return json.dumps(value, ensure_ascii=False)
