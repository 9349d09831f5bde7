"""Reading a study and checking the whole of it before anything runs: one clear line for the first fault.

Light (no torch, no pandas), because the Snakefile imports it. Three steps, in this order: schema (keys, types, ranges,
defaults filled in), references (names that must be known elsewhere in the file), sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from taps.plumbing.errors import TapsError
from taps.study.checks import CHECKS, check_paths
from taps.study.schema import SCHEMA, check_finite, explain, load_schema, with_defaults
from taps.study.yaml_files import read_yaml

ROOT = SCHEMA.parent.parent.parent  # of the checkout, which local paths of a study are relative to


def validate(config: Mapping[str, Any], *, file: str = "config.yaml", root: Path = Path()) -> dict[str, Any]:
    """Returns `config` with the schema's defaults filled in.

    Args:
        config: The study, as parsed from its files.
        file: Its name, for messages.
        root: Folder that local paths of the config are relative to.

    Raises:
        TapsError: first fault found, e.g. `config.yaml: mixtures.mixed: names the unknown corpus maths, ...`.
    """
    check_finite(config, file)
    schema = load_schema()
    complete = with_defaults(config, schema, schema)
    errors = sorted(Draft202012Validator(schema).iter_errors(complete), key=lambda error: list(map(str, error.path)))
    if errors:
        raise explain(errors[0], file)
    for check in CHECKS:
        for key, problem, facts in check(complete):
            raise TapsError(f"{file}: {key}", problem, **facts)
    check_paths(complete, file=file, root=root)
    return complete


def read(files: Iterable[Path]) -> dict[str, Any]:
    """Returns the files' keys, later files overriding earlier ones key by key, as Snakemake merges --configfile.

    Raises:
        TapsError: as `read_yaml`.
    """
    merged: dict[str, Any] = {}
    for file in files:
        merged = _merge(merged, read_yaml(file))
    return merged


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = _merge(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged
