"""A study's data is checked before anything runs: sources, parts and templates apart, names that are plain."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from taps.data.corpus_reader import CORPUS_READERS
from taps.data.prompt_reader import PROMPT_READERS
from taps.plumbing.errors import TapsError
from taps.study import assets, budget, data
from taps.study.config import read, validate
from taps.study.schema import SCHEMA, load_schema

ROOT = SCHEMA.parent.parent.parent
SMOKE = read([ROOT / "workflow" / "studies" / "smoke.yaml"])
GSM8K = {
    "hub": "openai/gsm8k",
    "repo_type": "dataset",
    "revision": "740312add88f781978c0658806c59bc2815b9866",
    "config": "main",
    "split": "test",
}
CORPUS = {"reader": "gsm8k_solutions", "asset": "gsm8k", "part": [0, 0.75], "max_rows": 1000}
BENCHMARK = {"reader": "gsm8k", "assets": ["gsm8k"], "part": [0.75, 1], "num_prompts": 3, "exclude_overlap": ["math"]}
GENERATED = {"reader": "reasoning_gym", "task": "gsm_symbolic", "num_prompts": 3}


def study(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Returns the smoke study with GSM8K split in two; `changes` are dotted keys -> values, None removes a key."""
    config = copy.deepcopy(SMOKE)
    config["assets"]["gsm8k"] = dict(GSM8K)
    config["corpora"]["math"] = {**CORPUS, "max_tokens": 6000}
    config["benchmarks"]["gsm8k"] = {**BENCHMARK, "max_new_tokens": 16}
    for key, value in (changes or {}).items():
        *parents, last = key.split(".")
        place = config
        for parent in parents:
            place = place[parent]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return config


def checked(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    return validate(study(changes), file="s.yaml", root=ROOT)


def test_the_study_as_it_is():
    config = checked()
    assert data.corpus_flags(config, "math") == [
        "--reader", "gsm8k_solutions", "--part", "0:0.75", "--max-rows", "1000"
    ]  # fmt: skip
    assert data.prompts_flags(config, "gsm8k")[:4] == ["--reader", "gsm8k", "--part", "0.75:1"]
    assert data.excluded_corpora(config, "gsm8k") == ["<results>/corpora/math.jsonl"]
    assert data.corpus_source(config, "math", ROOT) == ["resources/gsm8k/test.jsonl"]
    flags = assets.fetch_flags(config, "gsm8k", ROOT)
    assert flags[:2] == ["--hub", "openai/gsm8k"]
    assert flags[-4:] == ["--config", "main", "--split", "test"]
    assert not assets.is_folder(config, "gsm8k", ROOT)


def test_planning_takes_the_number_of_turns_from_the_reader():
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    sizes |= {"num_key_value_heads": 1, "vocab_size": 10}
    plan = {"target_shape": sizes, "tokens_per_row": {"math": 10, "chat": 10}, "prompt_tokens": 10, "answer_tokens": 10}
    config = checked({"plan": {**plan, "devices": {"x": {"training_tflops": 1, "decoding_tflops": 1}}}})
    sequences = {name: number for name, (_, _, number) in budget.recorded(config).items()}
    assert sequences == {"mt_bench": 6, "gsm_symbolic": 3, "gsm8k": 3}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"corpora.math.reader": "gsm8k"},
            r"corpora\.math\.reader: unknown value, expected one of gsm8k_solutions, hub",
        ),
        ({"benchmarks.gsm8k.reader": "gsm"}, r"benchmarks\.gsm8k\.reader: unknown value.*did you mean gsm8k\?"),
        (
            {"corpora.math.part": [0, 0.8]},
            r"benchmarks\.gsm8k\.part: training reads it, too, expected apart from 0 to 0\.8",
        ),
        ({"corpora.math.part": None}, r"benchmarks\.gsm8k\.part: training reads it, too, expected apart from 0 to 1"),
        ({"benchmarks.gsm8k.part": None}, r"benchmarks\.gsm8k\.part: training reads it, too"),
        ({"corpora.math.part": [0.5, 0.5]}, r"corpora\.math\.part: empty"),
        ({"corpora.math.part": [0.5]}, r"corpora\.math\.part: not allowed, expected at least 2 entries"),
        ({"corpora.math.part": [0, 1.5]}, r"corpora\.math\.part\.1: not allowed, expected at most 1"),
        ({"benchmarks.gsm8k.exclude_overlap": ["maths"]}, r"names the unknown corpus maths.*did you mean math\?"),
        ({"corpora.math.templates": "1-3"}, r"corpora\.math\.templates: no templates to choose from"),
        ({"assets.gsm8k.repo_type": "model"}, r"assets\.gsm8k\.repo_type: a split is of a data set"),
        ({"assets.gsm8k.file": "main/test.parquet"}, r"assets\.gsm8k\.split: no split of a single file"),
        ({"assets.gsm8k.split": None}, r"assets\.gsm8k\.split: missing, needed beside config"),
        ({"assets.gsm8k.revision": None}, r"assets\.gsm8k\.revision: missing"),
        ({"assets.chat.rows": 3}, r"assets\.chat\.split: missing, needed beside rows"),
    ],
)
def test_faults_are_named(changes, message):
    with pytest.raises(TapsError, match=message):
        checked(changes)


@pytest.mark.parametrize(
    ("corpus", "benchmark", "message"),
    [
        ({}, {"seed": 1}, None),
        ({}, {"seed": 0}, "repeats the training questions"),
        ({"templates": "0-49"}, {"templates": "50-99", "seed": 0}, None),
        ({"templates": "0-49"}, {"templates": "49,60", "seed": 1}, r"corpora\.math uses them, too.*found 49"),
        ({"templates": "0-2"}, {"seed": 1}, r"corpora\.math uses them, too.*found 0, 1, 2"),
        ({}, {"templates": "5", "seed": 1}, r"corpora\.math uses them, too.*found 5"),
        ({"templates": "0-"}, {"seed": 1}, r"corpora\.math\.templates: not allowed"),
    ],
)
def test_templates_of_training_and_benchmark_are_apart(corpus, benchmark, message):
    generated = {"reader": "reasoning_gym", "task": "gsm_symbolic", "max_rows": 60, "max_tokens": 6000, **corpus}
    asked = {"gsm_symbolic": {**GENERATED, "max_new_tokens": 16, **benchmark}}
    changes: dict[str, Any] = {"corpora.math": generated, "benchmarks": asked, "evaluation.live": None}
    if message is None:
        checked(changes)
        return
    with pytest.raises(TapsError, match=message):
        checked(changes)


HOSTILE: dict[str, list[Any]] = {
    "assets.gsm8k.hub": ["../..", "a/..", "./a", "a", "a/b/c", "a/b\n", "_a/b"],
    "assets.gsm8k.revision": ["main", "0" * 39, "0" * 40 + "\n"],
    "assets.gsm8k.split": ["a/b", "../a", "a\n", "a b", ""],
    "assets.gsm8k.config": ["a/b", "../a", "a\n", ""],
    "assets.gsm8k.file": ["/etc/passwd", "../a", "a/../b", "a/..", "./a", "a\\b", "a\n", "{x}"],
    "assets.chat.path": ["a\n", "{x}", "a<b>"],
    "corpora.math.templates": ["1-", "a", "1,,2", "1\n", ""],
    "study": ["a\n", "A", "a/b", ""],
    "target.date": ["2024-13-01", "2024-1-1", "today", "2024-07-26\n"],
    "target.template_options": [{"a b": 1}, {"a": [1]}, {"a\n": 1}],
    "target.max_template_drop": [-0.1, 1.1, "x"],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in HOSTILE.items() for value in values])
def test_values_that_lead_elsewhere_are_refused(key, value):
    with pytest.raises(TapsError, match=key.replace(".", r"\.")):
        checked({key: value})


def test_patterns_end_where_the_text_ends():
    pending: list[Any] = [load_schema()]
    patterns = []
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            patterns += [part["pattern"]] if isinstance(part.get("pattern"), str) else []
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    assert len(patterns) > 8
    assert [pattern for pattern in patterns if pattern.endswith("$")] == []


def test_the_schema_allows_exactly_the_readers_that_there_are():
    defs = load_schema()["$defs"]
    assert defs["corpus"]["properties"]["reader"]["enum"] == list(CORPUS_READERS)
    assert defs["benchmark"]["properties"]["reader"]["enum"] == list(PROMPT_READERS)


def test_a_splits_local_folder_is_an_input(tmp_path):
    (tmp_path / "mine").mkdir()
    config = study(
        {"assets.gsm8k": {"path": "mine", "split": "train"}, "assets.chat.path": "mine", "assets.mt_bench.path": "mine"}
    )
    complete = validate(config, root=tmp_path)
    assert assets.asset_path(complete, "gsm8k", tmp_path) == "resources/gsm8k/train.jsonl"
    assert assets.fetch_flags(complete, "gsm8k", tmp_path)[-2:] == ["--split", "train"]
    assert [Path(path).name for path in assets.local_source(complete, "gsm8k", tmp_path)] == ["mine"]


def test_options_and_date_of_the_chat_template_reach_the_stage():
    config = checked({"target.template_options": {"enable_thinking": False, "name": "x"}, "target.date": "2025-01-02"})
    assert assets.template_flags(config) == [
        "--template-option", "enable_thinking=false", "--template-option", 'name="x"', "--date", "2025-01-02"
    ]  # fmt: skip
