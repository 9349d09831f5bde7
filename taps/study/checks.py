"""What a schema cannot say about a study: names that must be known elsewhere in the file, sums, files on disk.

Each check yields its faults as (key, problem, facts of TapsError); the first one is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from taps import published
from taps.data.corpus_reader import CORPUS_READERS
from taps.data.generated import TEMPLATES_OF, parse_templates
from taps.data.prompt_reader import PROMPT_READERS
from taps.decoding.strategy import STRATEGIES
from taps.model.family import FAMILIES
from taps.plumbing.errors import TapsError
from taps.study.contents import AVERAGED, HELDOUT, averaged_drafters, drafters_of, evaluations, specialists
from taps.study.schema import did_you_mean

Faults = Iterator[tuple[str, str, dict[str, Any]]]


def _unknown(key: str, what: str, name: str, known: Sequence[str]) -> Faults:
    if name not in known:
        facts = {"expected": f"one of {', '.join(known) or '(none defined)'}", "remedy": did_you_mean(name, known)}
        yield key, f"names the unknown {what} {name}", facts


def _same_name(key: str, what: str, numbers: Sequence[float]) -> Faults:
    """Files are named by numbers in six digits, without an exponent."""
    names = [f"{number:g}" for number in numbers]
    for number, name in zip(numbers, names, strict=True):
        if names.count(name) > 1:
            same = [other for other, own in zip(numbers, names, strict=True) if own == name]
            yield key, f"two {what} that files would name {name}", {"found": ", ".join(map(repr, same))}
        if "e" in name:
            yield key, f"{what} too small to name files by", {"expected": "0 or at least 0.0001", "found": number}


def check_assets(config: Mapping[str, Any]) -> Faults:
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
        yield from _check_split(key, kinds[0], asset)


def _check_split(key: str, kind: str, asset: Mapping[str, Any]) -> Faults:
    """A split of a data set is neither a file nor a model."""
    if asset.get("split") is None:
        for field in ("config", "rows"):
            if asset.get(field) is not None:
                yield f"{key}.split", f"missing, needed beside {field}", {"expected": "a split's name, e.g. train"}
    elif kind == "hub" and asset["repo_type"] != "dataset":
        yield f"{key}.repo_type", "a split is of a data set", {"expected": "dataset", "found": asset["repo_type"]}
    elif kind == "package" or asset.get("file") is not None:
        yield f"{key}.split", "no split of a single file", {"expected": "split, or file"}


_ASSET_FIELDS = {
    "version": "the package's exact version, in quotes",
    "file": "the file's path inside the package",
    "sha256": "the file's sha256 (64 hex digits)",
    "revision": "the repository's commit (40 hex digits), as shown on its page under 'Files and versions'",
}


def check_target(config: Mapping[str, Any]) -> Faults:
    target = config["target"]
    if (target["asset"] is None) == (target["tiny"] is None):
        yield "target", "not one source", {"expected": "either asset: NAME or tiny: {steps: N}"}
    if target["asset"] is not None:
        yield from _unknown("target.asset", "asset", target["asset"], list(config["assets"]))


def check_data(config: Mapping[str, Any]) -> Faults:
    assets, corpora = list(config["assets"]), list(config["corpora"])
    for name, corpus in config["corpora"].items():
        key = f"corpora.{name}"
        yield from _check_source(key, corpus)
        if CORPUS_READERS.find(corpus["reader"]).is_generated:
            if corpus["task"] is None or corpus["max_rows"] is None:
                yield key, "incomplete", {"expected": f"task and max_rows for the reader {corpus['reader']}"}
        elif corpus["asset"] is None:
            yield f"{key}.asset", "missing", {"expected": f"the file that the reader {corpus['reader']} reads"}
        else:
            yield from _unknown(f"{key}.asset", "asset", corpus["asset"], assets)
    for name, shares in config["mixtures"].items():
        for corpus in shares:
            yield from _unknown(f"mixtures.{name}", "corpus", corpus, corpora)
        if name.startswith(AVERAGED):
            yield f"mixtures.{name}", "name taken by averaged drafters", {"remedy": "choose another name"}
    for corpus in config["drafting"]["draft_vocab_corpora"] or ():
        yield from _unknown("drafting.draft_vocab_corpora", "corpus", corpus, corpora)
    for name, benchmark in config["benchmarks"].items():
        key = f"benchmarks.{name}"
        if name.startswith(HELDOUT):
            yield key, "name taken by held-out prompts", {"remedy": f"choose one that does not start with {HELDOUT}"}
        yield from _check_source(key, benchmark)
        generated = PROMPT_READERS.find(benchmark["reader"]).is_generated
        if generated and benchmark["task"] is None:
            yield f"{key}.task", "missing", {"expected": "a reasoning-gym task"}
        if not generated and not benchmark["assets"]:
            yield f"{key}.assets", "missing", {"expected": f"the files that the reader {benchmark['reader']} reads"}
        for asset in benchmark["assets"]:
            yield from _unknown(f"{key}.assets", "asset", asset, assets)
        for corpus_name in benchmark["exclude_overlap"]:
            yield from _unknown(f"{key}.exclude_overlap", "corpus", corpus_name, corpora)
        for corpus_name, corpus in config["corpora"].items():
            yield from _check_apart(key, benchmark, f"corpora.{corpus_name}", corpus)


def _check_source(key: str, source: Mapping[str, Any]) -> Faults:
    """Parts and templates are there, and of what has them."""
    if source["part"] is not None and not source["part"][0] < source["part"][1]:
        yield f"{key}.part", "empty", {"expected": "[start, end] with start < end", "found": source["part"]}
    if source["templates"] is not None and source["task"] != TEMPLATES_OF:
        yield f"{key}.templates", "no templates to choose from", {"expected": f"task: {TEMPLATES_OF}"}


def _check_apart(key: str, benchmark: Mapping[str, Any], other: str, corpus: Mapping[str, Any]) -> Faults:
    """A benchmark does not ask what a corpus teaches, as far as the config tells."""
    if benchmark["task"] is not None and benchmark["task"] == corpus["task"]:
        named = [parse_templates(side["templates"]) for side in (benchmark, corpus) if side["templates"]]
        if named and (shared := frozenset.intersection(*named)):
            found = ", ".join(map(str, sorted(shared)))
            yield f"{key}.templates", f"{other} uses them, too", {"expected": "templates of its own", "found": found}
        if not named and benchmark["seed"] == corpus["seed"]:
            expected = f"another seed than {other} has"
            yield f"{key}.seed", "repeats the training questions", {"expected": expected, "found": benchmark["seed"]}
    if corpus["asset"] in benchmark["assets"] and (benchmark["part"] or corpus["part"]):
        (start, end), (first, last) = benchmark["part"] or (0, 1), corpus["part"] or (0, 1)
        if max(start, first) < min(end, last):
            expected = f"apart from {first} to {last}, where {other} reads {corpus['asset']}"
            yield f"{key}.part", "training reads it, too", {"expected": expected, "found": f"{start} to {end}"}


def check_methods(config: Mapping[str, Any]) -> Faults:
    methods, mixtures = config["methods"], list(config["mixtures"])
    for name, method in methods.items():
        key = f"methods.{name}"
        named = method["mixtures"] or []
        for mixture in [*(named.values() if isinstance(named, dict) else named), *(method["checkpoints"] or {})]:
            yield from _unknown(key, "mixture", mixture, mixtures)
        for benchmark in method["benchmarks"] or []:
            yield from _unknown(f"{key}.benchmarks", "benchmark", benchmark, list(config["benchmarks"]))
        for mixture, asset in (method["checkpoints"] or {}).items():
            yield from _unknown(f"{key}.checkpoints.{mixture}", "asset", asset, list(config["assets"]))
        for field in ("init_from", "match_cost_of"):
            if (start := method[field]) is None:
                continue
            yield from _unknown(
                f"{key}.{field}", "method", start["method"], [other for other in methods if other != name]
            )
            if start["mixture"] is not None:
                yield from _unknown(f"{key}.{field}", "mixture", start["mixture"], drafters_of(config, start["method"]))
            else:
                for mixture in drafters_of(config, name):
                    yield from _unknown(f"{key}.{field}", "mixture", mixture, drafters_of(config, start["method"]))
        yield from check_no_cycle(name, methods)
        length = {**config["training"], **method["training"]}.get("epochs")
        if length is None and method["match_cost_of"] is None and not method["checkpoints"]:
            yield f"{key}.training.epochs", "missing", {"expected": "epochs here or under training, or match_cost_of"}
        if method["family"] is None and name not in FAMILIES:
            expected = f"one of {', '.join(FAMILIES)}"
            yield f"{key}.family", "missing, as the method is not named like a draft family", {"expected": expected}
        for other in method["compared_with"] or []:
            yield from _unknown(f"{key}.compared_with", "method", other, [known for known in methods if known != name])


def check_averaging(config: Mapping[str, Any]) -> Faults:
    averaging, drafters = config["averaging"], averaged_drafters(config)
    for name, weights in averaging["weights"].items():
        yield from _same_name(f"averaging.weights.{name}", "weights", weights)
        yield from _unknown("averaging.weights", "method", name, list(config["methods"]))
        for mixture in drafters:
            yield from _unknown("averaging.drafters", "mixture", mixture, drafters_of(config, name))
        if len(drafters) < 2:
            found = {"expected": "two or more mixtures", "found": ", ".join(drafters) or "no specialists"}
            yield "averaging.drafters", "nothing to average", found
        if set(weights) - {0.5} and averaging["pair"] is None and len(drafters) > 2:
            facts = {"expected": "the two whose weight is swept", "found": f"{len(drafters)} drafters, no pair"}
            yield "averaging.pair", "missing", facts
    for mixture in averaging["pair"] or []:
        yield from _unknown("averaging.pair", "averaged mixture", mixture, drafters)


def check_roles(config: Mapping[str, Any]) -> Faults:
    mixtures = list(config["mixtures"])
    for key in ("curve", "own_answers"):
        for name in config["roles"][key]:
            yield from _unknown(f"roles.{key}", "method", name, list(config["methods"]))
    for name in [*(config["roles"]["specialists"] or []), *config["roles"]["titles"]]:
        yield from _unknown("roles", "mixture", name, mixtures)
    for name, benchmark in config["benchmarks"].items():
        if benchmark["matched"] is not None:
            yield from _unknown(f"benchmarks.{name}.matched", "specialist", benchmark["matched"], specialists(config))
        if benchmark["stands_for"] is not None:
            known = list(published.paper()["benchmarks"])
            yield from _unknown(f"benchmarks.{name}.stands_for", "published benchmark", benchmark["stands_for"], known)


def check_no_cycle(name: str, methods: Mapping[str, Any]) -> Faults:
    seen, current = [name], methods[name]["init_from"]
    while current is not None and current["method"] in methods:
        seen.append(current["method"])
        if current["method"] == name:
            yield f"methods.{name}.init_from", "starts from itself", {"found": " <- ".join(seen)}
        if len(seen) > len(methods):
            return
        current = methods[current["method"]]["init_from"]


def check_decoding(config: Mapping[str, Any]) -> Faults:
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
    temperatures: list[float] = []
    for index, sampling in enumerate(config["evaluation"]["sampling"]):
        key = f"evaluation.sampling.{index}"
        if sampling["temperature"] == 0 and len(sampling["seeds"]) > 1:
            yield (
                f"{key}.seeds",
                "temperature 0 has one outcome",
                {"expected": "a single seed", "found": sampling["seeds"]},
            )
        if sampling["temperature"] in temperatures:
            yield f"{key}.temperature", "given twice", {"found": sampling["temperature"]}
        temperatures.append(sampling["temperature"])
    yield from _same_name("evaluation.sampling", "temperatures", temperatures)
    context = config["target"]["max_length"]
    for name, benchmark in config["benchmarks"].items():
        if benchmark["max_new_tokens"] >= context:
            facts = {"expected": f"less than target.max_length ({context})", "found": benchmark["max_new_tokens"]}
            yield f"benchmarks.{name}.max_new_tokens", "too long", facts


def check_strategies(config: Mapping[str, Any]) -> Faults:
    strategies = config["strategies"]
    for group in strategies["combinations"]:
        for mixture in group:
            yield from _unknown("strategies.combinations", "mixture", mixture, list(config["mixtures"]))
        if len(set(group)) < 2:
            facts = {"expected": "two or more different mixtures", "found": ", ".join(group)}
            yield "strategies.combinations", "nothing to combine", facts
    for name in strategies["equal_passes"]:
        yield from _unknown("strategies.equal_passes", "one of strategies.names", name, strategies["names"])
        if STRATEGIES[name].one_drafter:
            yield "strategies.equal_passes", "nothing to share", {"expected": "several drafters", "found": name}
    needs = [name for name in strategies["names"] if not STRATEGIES[name].one_drafter]
    if needs and not strategies["combinations"]:
        yield "strategies.combinations", "missing", {"expected": f"the drafters that {needs[0]} combines"}


def check_evaluation(config: Mapping[str, Any]) -> Faults:
    for index, sampling in enumerate(config["evaluation"]["sampling"]):
        for benchmark in sampling["benchmarks"] or []:
            known = list(config["benchmarks"])
            yield from _unknown(f"evaluation.sampling[{index}].benchmarks", "benchmark", benchmark, known)
    if not evaluations(config):
        yield (
            "evaluation.sampling",
            "nothing is evaluated",
            {"expected": "a temperature and a benchmark of some method"},
        )


def check_tuning(config: Mapping[str, Any]) -> Faults:
    """Trees are tuned for known methods that have greedy texts, calibrated strategies with fitted temperatures."""
    tuning = config["evaluation"]["tuning"]
    if tuning is None:
        return
    for method in tuning["methods"]:
        yield from _unknown("evaluation.tuning.methods", "method", method, list(config["methods"]))
    if all(sampling["temperature"] for sampling in config["evaluation"]["sampling"]):
        yield "evaluation.tuning", "needs greedy texts", {"expected": "temperature 0 in evaluation.sampling"}
    for name in tuning["strategies"]:
        needs_factors = STRATEGIES[name].calibrated and not any(
            STRATEGIES[other].calibrated for other in config["strategies"]["names"]
        )
        if needs_factors:
            found = {"expected": "a calibrated strategy in strategies.names, so that drafters are calibrated"}
            yield f"evaluation.tuning.strategies: {name}", "needs fitted temperatures", found


def check_live(config: Mapping[str, Any]) -> Faults:
    """Live decoding names known methods, benchmarks and strategies, and has a greedy text to be compared with."""
    live = config["evaluation"]["live"]
    if live is None:
        return
    for method in live["methods"]:
        yield from _unknown("evaluation.live.methods", "method", method, list(config["methods"]))
    for benchmark in live["benchmarks"]:
        yield from _unknown("evaluation.live.benchmarks", "benchmark", benchmark, list(config["benchmarks"]))
    for strategy in live["strategies"]:
        yield from _unknown("evaluation.live.strategies", "replayed strategy", strategy, config["strategies"]["names"])
    if all(sampling["temperature"] for sampling in config["evaluation"]["sampling"]):
        yield "evaluation.live", "needs greedy text", {"expected": "temperature 0 in evaluation.sampling"}


def check_paths(config: Mapping[str, Any], *, file: str, root: Path) -> None:
    paths = {f"assets.{name}.path": asset["path"] for name, asset in config["assets"].items() if asset.get("path")}
    if config["target"]["chat_template"] is not None:
        paths["target.chat_template"] = config["target"]["chat_template"]
    for key, path in paths.items():
        if not (root / path).exists():
            found = f"{path} (looked in {root.resolve()})"
            raise TapsError(f"{file}: {key}", "no such file or folder", found=found, remedy="correct the path")


CHECKS = (
    check_assets,
    check_target,
    check_data,
    check_methods,
    check_averaging,
    check_roles,
    check_decoding,
    check_strategies,
    check_evaluation,
    check_tuning,
    check_live,
)
