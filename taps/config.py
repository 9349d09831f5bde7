"""What a study may say: one check of the whole config before anything runs, one clear line for the first fault.

    python -m taps.config config.yaml                                                        # "ok" or the fault
    python -m taps.config workflow/studies/paper.yaml workflow/studies/scaling_qwen3_4b.yaml # later files override

Pure and light (no torch, no pandas), because the Snakefile imports it. Three steps, in this order:
schema (keys, types, ranges, defaults filled in), references (names that must be known elsewhere in the file), sums.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from jsonschema import Draft202012Validator, ValidationError

from taps.plumbing.errors import TapsError

SCHEMA = Path(__file__).parent.parent / "workflow" / "schemas" / "config.schema.yaml"
HELDOUT = "heldout_"  # prefix of the prompts that come from a corpus's validation rows
AVERAGED = "averaged"  # name of the equal-weight average; other weights append `_<weight>`

# A number that YAML 1.1 reads as text: an exponent needs a dot in the mantissa and a sign
_TEXT_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


def validate(config: Mapping[str, Any], *, file: str = "config.yaml", root: Path = Path()) -> dict[str, Any]:
    """Returns `config` with the schema's defaults filled in.

    Args:
        config: The parsed file.
        file: Its name, for messages.
        root: Folder that local paths of the config are relative to.

    Raises:
        TapsError: first fault found, e.g. `config.yaml: mixtures.mixed: names the unknown corpus maths, ...`.
    """
    schema = yaml.safe_load(SCHEMA.read_text())
    complete = _with_defaults(config, schema, schema)
    errors = sorted(Draft202012Validator(schema).iter_errors(complete), key=lambda error: list(map(str, error.path)))
    if errors:
        raise _explain(errors[0], file)
    for check in (_check_assets, _check_target, _check_data, _check_methods, _check_decoding, _check_strategies):
        for key, problem, facts in check(complete):
            raise TapsError(f"{file}: {key}", problem, **facts)
    _check_paths(complete, file=file, root=root)
    return complete


# --- schema ----------------------------------------------------------------------------------------------------------


def _with_defaults(value: Any, schema: Mapping[str, Any], whole: Mapping[str, Any]) -> Any:
    """Returns a copy of `value` in which absent keys hold the schema's `default`."""
    while "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    if isinstance(value, Mapping):
        known = schema.get("properties", {})
        other = schema.get("additionalProperties") or {}
        absent = {key: sub["default"] for key, sub in known.items() if "default" in sub and key not in value}
        return {key: _with_defaults(item, known.get(key, other), whole) for key, item in {**absent, **value}.items()}
    if isinstance(value, list):
        return [_with_defaults(item, schema.get("items", {}), whole) for item in value]
    return value


def _explain(error: ValidationError, file: str) -> TapsError:
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
            remedy=_did_you_mean(str(unknown), allowed),
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
            expected=f"one of {', '.join(map(str, limit))}",
            found=_show(found),
            remedy=_did_you_mean(str(found), list(map(str, limit))),
        )
    expected = {
        "pattern": schema.get("description") or f"text that matches {limit}",
        "minimum": f"at least {limit}",
        "maximum": f"at most {limit}",
        "exclusiveMinimum": f"more than {limit}",
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


def _did_you_mean(word: str, known: Sequence[str]) -> str | None:
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else None


# --- references and sums: each check yields (key, problem, facts of TapsError) ---------------------------------------

Faults = Iterator[tuple[str, str, dict[str, Any]]]


def _unknown(key: str, what: str, name: str, known: Sequence[str]) -> Faults:
    if name not in known:
        facts = {"expected": f"one of {', '.join(known) or '(none defined)'}", "remedy": _did_you_mean(name, known)}
        yield key, f"names the unknown {what} {name}", facts


def _check_assets(config: Mapping[str, Any]) -> Faults:
    for name, asset in config["assets"].items():
        key = f"assets.{name}"
        kinds = [kind for kind in ("package", "hub", "path") if asset.get(kind) is not None]
        if len(kinds) != 1:
            yield (
                key,
                "not one source",
                {"expected": "exactly one of package, hub, path", "found": ", ".join(kinds) or "none"},
            )
        needed = {"package": ("version", "file", "sha256"), "hub": ("revision",), "path": ()}[kinds[0]]
        for field in needed:
            if asset.get(field) is None:
                yield f"{key}.{field}", f"missing, needed beside {kinds[0]}", {"expected": _ASSET_FIELDS[field]}


_ASSET_FIELDS = {
    "version": "the package's exact version, in quotes",
    "file": "the file's path inside the package",
    "sha256": "the file's sha256 (64 hex digits)",
    "revision": "the repository's commit (40 hex digits), as shown on its page under 'Files and versions'",
}


def _check_target(config: Mapping[str, Any]) -> Faults:
    target = config["target"]
    if (target["asset"] is None) == (not target["tiny"]):
        yield "target", "not one source", {"expected": "either asset: NAME or tiny: true"}
    if target["asset"] is not None:
        yield from _unknown("target.asset", "asset", target["asset"], list(config["assets"]))


def _check_data(config: Mapping[str, Any]) -> Faults:
    assets, corpora = list(config["assets"]), list(config["corpora"])
    for name, corpus in config["corpora"].items():
        key = f"corpora.{name}"
        if corpus["reader"] == "reasoning_gym":
            if corpus["task"] is None or corpus["max_rows"] is None:
                yield key, "incomplete", {"expected": "task and max_rows for the reader reasoning_gym"}
        elif corpus["asset"] is None:
            yield f"{key}.asset", "missing", {"expected": f"the file that the reader {corpus['reader']} reads"}
        else:
            yield from _unknown(f"{key}.asset", "asset", corpus["asset"], assets)
    for name, shares in config["mixtures"].items():
        for corpus in shares:
            yield from _unknown(f"mixtures.{name}", "corpus", corpus, corpora)
        if name.startswith(AVERAGED):
            yield f"mixtures.{name}", "name taken by averaged drafters", {"remedy": "choose another name"}
    for name, benchmark in config["benchmarks"].items():
        key = f"benchmarks.{name}"
        if name.startswith(HELDOUT):
            yield key, "name taken by held-out prompts", {"remedy": f"choose one that does not start with {HELDOUT}"}
        if benchmark["reader"] == "reasoning_gym" and benchmark["task"] is None:
            yield f"{key}.task", "missing", {"expected": "a reasoning-gym task"}
        if benchmark["reader"] != "reasoning_gym" and not benchmark["assets"]:
            yield f"{key}.assets", "missing", {"expected": f"the files that the reader {benchmark['reader']} reads"}
        for asset in benchmark["assets"]:
            yield from _unknown(f"{key}.assets", "asset", asset, assets)
        for corpus_name, corpus in config["corpora"].items():
            if benchmark["task"] is not None and (benchmark["task"], benchmark["seed"]) == (
                corpus["task"],
                corpus["seed"],
            ):
                facts = {"expected": f"another seed than corpora.{corpus_name} has", "found": benchmark["seed"]}
                yield f"{key}.seed", "repeats the training questions", facts


def _check_methods(config: Mapping[str, Any]) -> Faults:
    methods, mixtures = config["methods"], list(config["mixtures"])
    for name, method in methods.items():
        key = f"methods.{name}"
        for mixture in [*(method["mixtures"] or []), *(method["checkpoints"] or {})]:
            yield from _unknown(key, "mixture", mixture, mixtures)
        for mixture, asset in (method["checkpoints"] or {}).items():
            yield from _unknown(f"{key}.checkpoints.{mixture}", "asset", asset, list(config["assets"]))
        for field in ("init_from", "match_cost_of"):
            if (start := method[field]) is None:
                continue
            yield from _unknown(
                f"{key}.{field}", "method", start["method"], [other for other in methods if other != name]
            )
            if start["mixture"] is not None:
                yield from _unknown(f"{key}.{field}", "mixture", start["mixture"], mixtures_of(config, start["method"]))
            else:
                for mixture in mixtures_of(config, name):
                    yield from _unknown(f"{key}.{field}", "mixture", mixture, mixtures_of(config, start["method"]))
        yield from _check_no_cycle(name, methods)
        length = {**config["training"], **method["training"]}.get("epochs")
        if length is None and method["match_cost_of"] is None and not method["checkpoints"]:
            yield f"{key}.training.epochs", "missing", {"expected": "epochs here or under training, or match_cost_of"}
    averaging = config["averaging"]
    for name in averaging["weights"]:
        yield from _unknown("averaging.weights", "method", name, list(methods))
        for mixture in averaging["drafters"]:
            yield from _unknown("averaging.drafters", "mixture", mixture, mixtures_of(config, name))


def _check_no_cycle(name: str, methods: Mapping[str, Any]) -> Faults:
    seen, current = [name], methods[name]["init_from"]
    while current is not None and current["method"] in methods:
        seen.append(current["method"])
        if current["method"] == name:
            yield f"methods.{name}.init_from", "starts from itself", {"found": " <- ".join(seen)}
        if len(seen) > len(methods):
            return
        current = methods[current["method"]]["init_from"]


def _check_decoding(config: Mapping[str, Any]) -> Faults:
    drafting = config["drafting"]
    candidates = drafting["top_k"] * (1 + drafting["depth"] * drafting["top_k"])
    largest = max([drafting["num_draft_tokens"] * 2, *drafting["budgets"]])
    budgets = max(drafting["budgets"], default=0)
    for key, number in (("num_draft_tokens", drafting["num_draft_tokens"]), ("budgets", budgets)):
        if number > candidates:
            expected = f"at most the {candidates} candidates of depth {drafting['depth']}, top_k {drafting['top_k']}"
            yield f"drafting.{key}", "more nodes than the tree has", {"expected": expected, "found": number}
    if drafting["num_nodes"] < min(largest, candidates):
        expected = f"at least {min(largest, candidates)}: twice num_draft_tokens (single_double) and every budget"
        yield "drafting.num_nodes", "stores too few nodes", {"expected": expected, "found": drafting["num_nodes"]}
    seen: set[float] = set()
    for index, sampling in enumerate(config["evaluation"]["sampling"]):
        key = f"evaluation.sampling.{index}"
        if sampling["temperature"] == 0 and len(sampling["seeds"]) > 1:
            yield (
                f"{key}.seeds",
                "temperature 0 has one outcome",
                {"expected": "a single seed", "found": sampling["seeds"]},
            )
        if sampling["temperature"] in seen:
            yield f"{key}.temperature", "given twice", {"found": sampling["temperature"]}
        seen.add(sampling["temperature"])
    context = config["target"]["max_length"]
    for name, benchmark in config["benchmarks"].items():
        if benchmark["max_new_tokens"] >= context:
            facts = {"expected": f"less than target.max_length ({context})", "found": benchmark["max_new_tokens"]}
            yield f"benchmarks.{name}.max_new_tokens", "too long", facts


def _check_strategies(config: Mapping[str, Any]) -> Faults:
    strategies = config["strategies"]
    for group in strategies["combinations"]:
        for mixture in group:
            yield from _unknown("strategies.combinations", "mixture", mixture, list(config["mixtures"]))
        if len(set(group)) < 2:
            facts = {"expected": "two or more different mixtures", "found": ", ".join(group)}
            yield "strategies.combinations", "nothing to combine", facts
    needs = [name for name in strategies["names"] if not name.startswith("single")]
    if needs and not strategies["combinations"]:
        yield "strategies.combinations", "missing", {"expected": f"the drafters that {needs[0]} combines"}


def _check_paths(config: Mapping[str, Any], *, file: str, root: Path) -> None:
    paths = {f"assets.{name}.path": asset["path"] for name, asset in config["assets"].items() if asset.get("path")}
    if config["target"]["chat_template"] is not None:
        paths["target.chat_template"] = config["target"]["chat_template"]
    for key, path in paths.items():
        if not (root / path).exists():
            found = f"{path} (looked in {root.resolve()})"
            raise TapsError(f"{file}: {key}", "no such file or folder", found=found, remedy="correct the path")


# --- questions that the rules ask ------------------------------------------------------------------------------------


def mixtures_of(config: Mapping[str, Any], method: str) -> list[str]:
    """Returns the mixtures that a method has a trained or imported drafter for."""
    settings = config["methods"][method]
    if settings["checkpoints"]:
        return list(settings["checkpoints"])
    return list(settings["mixtures"] or config["mixtures"])


def averaged_name(weight: float) -> str:
    """Returns the mixture-like name of an average; `weight` is that of the second drafter."""
    return AVERAGED if math.isclose(weight, 0.5) else f"{AVERAGED}_{weight:g}"


def averages_of(config: Mapping[str, Any], method: str) -> list[str]:
    """Returns the names of a method's averaged drafters."""
    return [averaged_name(weight) for weight in config["averaging"]["weights"].get(method, [])]


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of `python -m taps.config`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="study to check; later files override keys of earlier ones")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Checks a study's config and says so."""
    files = build_parser().parse_args(argv).files
    name = " + ".join(map(str, files))
    validate(read(files), file=name, root=SCHEMA.parent.parent.parent)
    print(f"{name}: ok")


def read(files: Sequence[Path]) -> dict[str, Any]:
    """Returns the files' keys, later files overriding earlier ones key by key, as Snakemake merges --configfile.

    Raises:
        TapsError: a file that is missing, not YAML, or not a mapping.
    """
    merged: dict[str, Any] = {}
    for file in files:
        try:
            config = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise TapsError(file, "cannot be read", found=error) from None
        if not isinstance(config, dict):
            raise TapsError(file, "not a study", expected="a mapping of keys", found=type(config).__name__)
        merged = _merge(merged, config)
    return merged


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = _merge(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged


if __name__ == "__main__":
    from taps.plumbing.cli import run

    run(main)
