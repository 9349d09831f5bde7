"""The schema of a study's config: defaults filled in, and its complaints in the words of the house."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from jsonschema import ValidationError

from taps.data.corpus_reader import CORPUS_READERS
from taps.data.prompt_reader import PROMPT_READERS
from taps.decoding.strategy import STRATEGIES
from taps.model.family import FAMILIES
from taps.plumbing.errors import TapsError

SCHEMA = Path(__file__).parent.parent.parent / "workflow" / "schemas" / "config.schema.yaml"

CATALOGUES: dict[str, Mapping[str, Any]] = {
    "strategies": STRATEGIES,
    "families": FAMILIES,
    "corpus_readers": CORPUS_READERS,
    "prompt_readers": PROMPT_READERS,
}
"""What the schema calls `x-catalogue`: name -> entries that a study may name."""

_LARGEST = {"integer": 2**31 - 1, "number": 1e15}  # where the schema names no limit of its own

# A number that YAML 1.1 reads as text: an exponent needs a dot in the mantissa and a sign
_TEXT_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


def load_schema() -> dict[str, Any]:
    """Returns the schema, with the entries of catalogues as the values that `x-catalogue` allows."""
    schema: dict[str, Any] = yaml.safe_load(SCHEMA.read_text(encoding="utf-8"))
    pending: list[Any] = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if (catalogue := part.get("x-catalogue")) is not None:
                part["enum"] = [*CATALOGUES[catalogue], *([None] if "default" in part else [])]
            types = part.get("type")
            for kind in set(types if isinstance(types, list) else [types]) & set(_LARGEST):
                part.setdefault("maximum", _LARGEST[kind])
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    return schema


def check_finite(value: Any, file: str, key: str = "") -> None:
    """Checks that no number in a config is infinite or none, as YAML's `.inf` and `.nan` are: no limit would see it.

    Raises:
        TapsError: one is.
    """
    if isinstance(value, Mapping):
        for name, item in value.items():
            check_finite(item, file, _join(key, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            check_finite(item, file, _join(key, number))
    elif isinstance(value, float) and not math.isfinite(value):
        raise TapsError(f"{file}: {key}", "not a finite number", found=value)


def with_defaults(value: Any, schema: Mapping[str, Any], whole: Mapping[str, Any]) -> Any:
    """Returns a copy of `value` in which absent keys hold the schema's `default` and 5.0 for a whole number is 5."""
    while "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    if isinstance(value, Mapping):
        known = schema.get("properties", {})
        other = schema.get("additionalProperties") or {}
        absent = {key: sub["default"] for key, sub in known.items() if "default" in sub and key not in value}
        return {key: with_defaults(item, known.get(key, other), whole) for key, item in {**absent, **value}.items()}
    if isinstance(value, list):
        return [with_defaults(item, schema.get("items", {}), whole) for item in value]
    if isinstance(value, float) and value.is_integer() and "integer" in str(schema.get("type")):
        return int(value)
    return value


def explain(error: ValidationError, file: str) -> TapsError:
    """Returns the schema's complaint in the words of the house: where, expected, found, remedy."""
    key = ".".join(map(str, error.path))
    found, limit, schema = error.instance, cast(Any, error.validator_value), cast(dict[str, Any], error.schema)
    if str(error.validator) in ("additionalProperties", "propertyNames"):
        allowed = sorted(schema.get("properties", {})) or sorted(schema.get("enum", []))
        unknown = next(name for name in found if name not in allowed) if isinstance(found, Mapping) else found
        return TapsError(
            f"{file}: {_join(key, unknown)}",
            "unknown key",
            expected=f"one of {', '.join(allowed)}" if allowed else schema.get("description"),
            remedy=did_you_mean(str(unknown), allowed),
        )
    if error.validator == "required":
        absent = next(name for name in limit if name not in cast(Any, found))
        about = schema["properties"].get(absent, {})
        return TapsError(f"{file}: {_join(key, absent)}", "missing", expected=about.get("description"))
    if error.validator == "type":
        return TapsError(
            f"{file}: {key}",
            "wrong type",
            expected=_type_names(limit),
            found=_show(found),
            remedy=_type_remedy(found, limit),
        )
    if error.validator == "enum":
        return TapsError(
            f"{file}: {key}",
            "unknown value",
            expected=f"one of {', '.join(str(value) for value in limit if value is not None)}",
            found=_show(found),
            remedy=did_you_mean(str(found), list(map(str, limit))),
        )
    expected = {
        "pattern": schema.get("description") or f"text that matches {limit}",
        "minimum": f"at least {limit}",
        "maximum": f"at most {limit}",
        "exclusiveMinimum": f"more than {limit}",
        "exclusiveMaximum": f"less than {limit}",
        "maxItems": f"at most {limit} entries",
        "minItems": f"at least {limit} entries",
        "minProperties": f"at least {limit} entries",
        "uniqueItems": "each entry once",
    }.get(str(error.validator), error.message)
    return TapsError(f"{file}: {key}", "not allowed", expected=expected, found=_show(found))


def _join(key: str, name: object) -> str:
    return f"{key}.{name}" if key else str(name)


def _show(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _type_names(types: str | Sequence[str]) -> str:
    words = {
        "object": "a mapping",
        "array": "a list",
        "string": "text",
        "integer": "a whole number",
        "number": "a number",
    }
    names = [types] if isinstance(types, str) else types
    return " or ".join(words.get(name, "true or false" if name == "boolean" else name) for name in names)


def _type_remedy(found: object, types: str | Sequence[str]) -> str | None:
    if isinstance(found, str) and _TEXT_NUMBER.fullmatch(found) and "string" not in types:
        return f"YAML reads {found} as text, write {float(found):.1e}".replace("e-0", "e-").replace("e+0", "e+")
    if isinstance(found, int | float) and "string" in types:
        return "put it in quotes"
    return None


def did_you_mean(word: str, known: Sequence[str]) -> str | None:
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else None
