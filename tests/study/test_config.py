"""The config's check: every fault is one line that names file, key, what was expected, what was found, and a remedy."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from taps.config import main, read, validate
from taps.plumbing.errors import TapsError
from taps.study.contents import averages_of, drafters_of
from taps.study.schema import SCHEMA
from taps.study.train import draft_vocab_tokens

ROOT = SCHEMA.parent.parent.parent
STUDY_FOLDER = ROOT / "workflow" / "studies"
STUDIES = sorted([ROOT / "config.yaml", *STUDY_FOLDER.glob("*.yaml")])
LAPTOP = yaml.safe_load((ROOT / "tests/inputs/study.yaml").read_text())


def edited(path: str, value: Any) -> dict[str, Any]:
    """Returns the laptop study with one key set (or removed, if value is KeyError)."""
    config = copy.deepcopy(LAPTOP)
    *parents, last = path.split("/")
    place = config
    for key in parents:
        place = place[int(key)] if isinstance(place, list) else place[key]
    if value is KeyError:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    return config


def fault(path: str, value: Any) -> str:
    with pytest.raises(TapsError) as caught:
        validate(edited(path, value), root=ROOT)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("config.yaml: ")
    return message


def test_schema_is_a_valid_schema_and_closed_everywhere() -> None:
    schema = yaml.safe_load(SCHEMA.read_text())
    Draft202012Validator.check_schema(schema)
    open_places = []

    def visit(node: Any, path: str) -> None:
        if isinstance(node, dict):
            if "properties" in node and node.get("additionalProperties") is not False:
                open_places.append(path)
            for key, child in node.items():
                visit(child, f"{path}/{key}")

    visit(schema, "")
    assert open_places == []


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.stem)
def test_shipped_studies_are_valid(study: Path) -> None:
    base = {"scaling": "paper.yaml", "overnight_controls": "overnight.yaml"}
    overlays = [STUDY_FOLDER / name for stem, name in base.items() if study.stem.startswith(stem)]
    merged = read([*overlays, study])
    if study.stem == "paper_pretrained":
        with pytest.raises(TapsError, match=r"assets.eagle2_math.revision: missing, needed beside hub"):
            validate(merged, root=ROOT)
        for asset in merged["assets"].values():
            asset.setdefault("revision", 40 * "0")
    names = {"config": "laptop", "overnight_controls": "overnight"}
    assert validate(merged, root=ROOT)["study"] == names.get(study.stem, study.stem)


def test_defaults_are_filled_in_at_every_level_and_nothing_given_is_lost() -> None:
    config = validate(LAPTOP, root=ROOT)
    assert config["parallel"]["model_threads"] == 1
    assert config["methods"]["eagle2"]["init_from"] is None
    assert config["evaluation"]["top_p"] == 1.0
    assert config["corpora"]["math"]["regenerate"] is None
    assert config["assets"] == {name: {"repo_type": "model", **asset} for name, asset in LAPTOP["assets"].items()}
    assert "parallel" not in LAPTOP


@pytest.mark.parametrize(
    ("path", "value", "parts"),
    [
        ("benchmraks", {}, ["benchmraks", "unknown key", "expected one of", "did you mean benchmarks?"]),
        ("drafting/topk", 4, ["drafting.topk", "unknown key", "did you mean top_k?"]),
        ("corpora/math/tokens", 4, ["corpora.math.tokens", "unknown key", "did you mean max_tokens?"]),
        ("study", KeyError, ["study", "missing", "expected the study's name"]),
        ("study", "my study; touch x", ["study", "lower-case letters", "found"]),
        ("training/learning_rate", "3e-5", ["training.learning_rate", "a number", 'found "3e-5"', "write 3.0e-5"]),
        ("training/batch_size", 1.5, ["training.batch_size", "a whole number", "found 1.5"]),
        ("device", "gpu", ["device", "expected one of cpu, cuda", 'found "gpu"']),
        ("assets/mt_bench/version", 26.3, ["assets.mt_bench.version", "text", "found 26.3", "put it in quotes"]),
        ("assets/gsm8k/sha256", "abc", ["assets.gsm8k.sha256", "64 lower-case hex digits", 'found "abc"']),
        ("assets/gsm8k/sha256", KeyError, ["assets.gsm8k.sha256", "needed beside package"]),
        ("assets/gsm8k/hub", "openai/gsm8k", ["assets.gsm8k", "exactly one of package, hub, path", "package, hub"]),
        ("assets/local", {}, ["assets.local", "exactly one of package, hub, path", "found none"]),
        ("assets/local", {"hub": "a/b"}, ["assets.local.revision", "commit (40 hex digits)"]),
        ("assets/local", {"hub": "a/b", "revision": "main"}, ["assets.local.revision", "40 hex digits", '"main"']),
        ("assets/local", {"path": "no/such.json"}, ["assets.local.path", "no such file", "no/such.json"]),
        ("target/chat_template", "no.jinja", ["target.chat_template", "no such file", "no.jinja"]),
        ("target/asset", "smollm", ["target.asset", "unknown asset smollm", "did you mean smollm2?"]),
        ("target/tiny", {}, ["target", "either asset: NAME or tiny: {steps: N}"]),
        ("corpora/chat/asset", "sharegtp", ["corpora.chat.asset", "unknown asset", "did you mean sharegpt?"]),
        ("corpora/chat/asset", KeyError, ["corpora.chat.asset", "missing", "sharegpt"]),
        ("corpora/math/task", KeyError, ["corpora.math", "task and max_rows"]),
        ("corpora/chat/reader", "sharegbt", ["corpora.chat.reader", "did you mean sharegpt?"]),
        ("mixtures/mixed_small/maths", 0.5, ["mixtures.mixed_small", "unknown corpus maths", "did you mean math?"]),
        ("drafting/draft_vocab_corpora", ["maths"], ["drafting.draft_vocab_corpora", "unknown corpus maths"]),
        ("mixtures/mixed_small/math", 1.5, ["mixtures.mixed_small.math", "at most 1", "found 1.5"]),
        ("mixtures/mixed_small/math", 0, ["mixtures.mixed_small.math", "more than 0", "found 0"]),
        ("mixtures/averaged", {"math": 1.0}, ["mixtures.averaged", "name taken"]),
        ("benchmarks/gsm8k/reader", "gsm9k", ["benchmarks.gsm8k.reader", "unknown value", "did you mean gsm8k?"]),
        ("benchmarks/gsm8k/assets", ["gms8k"], ["benchmarks.gsm8k.assets", "unknown asset", "did you mean gsm8k?"]),
        ("benchmarks/gsm8k/assets", [], ["benchmarks.gsm8k.assets", "missing"]),
        ("benchmarks/heldout_x", {"reader": "gsm8k"}, ["benchmarks.heldout_x", "name taken"]),
        ("benchmarks/gsm_symbolic/seed", 0, ["benchmarks.gsm_symbolic.seed", "repeats the training questions"]),
        ("benchmarks/gsm8k/max_new_tokens", 5000, ["benchmarks.gsm8k.max_new_tokens", "less than target.max_length"]),
        ("methods/hass", {"init_from": {"method": "eagle3"}}, ["methods.hass.init_from", "did you mean eagle2?"]),
        ("methods/hass", {"init_from": {"method": "hass"}}, ["methods.hass.init_from", "unknown method hass"]),
        ("methods/hass", {"init_from": {}}, ["methods.hass.init_from.method", "missing"]),
        ("methods/hass", {"mixtures": ["mixed"]}, ["methods.hass", "unknown mixture mixed"]),
        ("methods/hass", {"epochs": 3}, ["methods.hass.epochs", "unknown key", "expected one of"]),
        ("training", {"batch_size": 8}, ["methods.eagle2.training.epochs", "missing", "or match_cost_of"]),
        ("methods/hass", {"checkpoints": {"math": "nowhere"}}, ["methods.hass.checkpoints.math", "unknown asset"]),
        ("averaging", {"weights": {"eagle": [0.5]}}, ["averaging.weights", "did you mean eagle2?"]),
        ("averaging", {"weights": {"eagle2": [1.0]}}, ["averaging.weights.eagle2.0", "not allowed", "found 1.0"]),
        ("drafting/num_draft_tokens", 500, ["drafting.num_draft_tokens", "328 candidates", "found 500"]),
        ("drafting/num_nodes", 60, ["drafting.num_nodes", "at least 80", "found 60"]),
        ("drafting/budgets", [90], ["drafting.num_nodes", "at least 90", "found 80"]),
        ("evaluation/sampling/0/seeds", [0, 1], ["sampling.0.seeds", "temperature 0 has one outcome"]),
        ("evaluation/sampling/1/temperature", 0, ["evaluation.sampling.1.temperature", "given twice", "found 0"]),
        ("evaluation/sampling", [], ["evaluation.sampling", "at least 1"]),
        (
            "evaluation/live",
            {"methods": ["medusa"], "benchmarks": ["gsm8k"], "strategies": ["single"]},
            ["evaluation.live.methods", "unknown method medusa"],
        ),
        (
            "evaluation/live",
            {"methods": ["eagle2"], "benchmarks": ["gsm8k"], "strategies": ["routed_confidence_turn_calibrated"]},
            ["evaluation.live.strategies", "unknown replayed strategy routed_confidence_turn_calibrated"],
        ),
        ("strategies/names", ["merged"], ["strategies.names.0", "unknown value"]),
        ("strategies/names", ["single", "single"], ["strategies.names", "each entry once"]),
        ("strategies/combinations", [["math", "maths"]], ["strategies.combinations", "did you mean math?"]),
        ("strategies/combinations", [["math", "math"]], ["strategies.combinations", "two or more different"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_fault_names_key_expected_found_and_remedy(path: str, value: Any, parts: list[str]) -> None:
    message = fault(path, value)
    assert [part for part in parts if part not in message] == [], message


def test_corpora_that_rank_the_draft_vocabulary_can_be_named() -> None:
    config = copy.deepcopy(LAPTOP)
    config["corpora"]["added"] = config["corpora"]["chat"]
    everything = draft_vocab_tokens(validate(copy.deepcopy(config), root=ROOT))
    assert everything == [f"<results>/tokens/{corpus}.safetensors" for corpus in ("math", "chat", "added")]
    config["drafting"]["draft_vocab_corpora"] = ["math", "chat"]
    assert draft_vocab_tokens(validate(config, root=ROOT)) == everything[:2]


def test_strategies_that_combine_need_a_combination() -> None:
    config = edited("strategies", {"names": ["single", "oracle"]})
    with pytest.raises(TapsError, match="drafters that oracle combines"):
        validate(config, root=ROOT)


def test_circular_starts_are_refused() -> None:
    config = edited("methods/a", {"init_from": {"method": "b"}})
    config["methods"]["b"] = {"init_from": {"method": "a"}}
    with pytest.raises(TapsError, match=r"methods.a.init_from: starts from itself, found a <- b <- a"):
        validate(config, root=ROOT)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(key=st.sampled_from(sorted(LAPTOP)), value=json_values)
def test_any_value_is_accepted_or_refused_in_one_line(key: str, value: Any) -> None:
    try:
        validate(edited(key, value), root=ROOT)
    except TapsError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 (both outcomes are right; only the form is checked)


def test_names_of_averaged_drafters() -> None:
    config = validate(edited("averaging", {"weights": {"eagle2": [0.3, 0.5]}}), root=ROOT)
    assert averages_of(config, "eagle2") == {
        "averaged_0.3": {"math": 0.7, "chat": 0.3},
        "averaged": {"math": 0.5, "chat": 0.5},
    }
    assert drafters_of(config, "eagle2") == ["math", "chat", "mixed_small", "mixed_large"]


def test_command_line_says_ok_or_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(ROOT / "config.yaml")])
    assert capsys.readouterr().out.endswith("config.yaml: ok\n")
    broken = tmp_path / "broken.yaml"
    for text, problem in (("a: [1", "cannot be read"), ("- 1", "not a study"), ("\xff", "not a study")):
        broken.write_text(text)
        with pytest.raises(TapsError, match=problem):
            main([str(broken)])
    with pytest.raises(TapsError, match="cannot be read"):
        main([str(tmp_path / "absent.yaml")])
