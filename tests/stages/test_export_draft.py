"""Exported folders obey every rule of their reader, the validator notices each rule broken, cards say what is known."""

import csv
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from taps import export_draft, import_draft
from taps.model.checkpoint import read_drafter_config, read_drafter_tensors, save_drafter
from taps.model.drafter import DraftModel
from taps.model.flavours import FLAVOURS
from taps.plumbing.artefacts import write_json, write_tensors
from taps.plumbing.errors import TapsError
from taps.plumbing.provenance import provenance
from tests.support.draft_models import CONFIG
from tests.support.fake_hub import FakeHub, serving
from tests.support.target_fixtures import write_target

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def drafter(tmp_path, config=CONFIG):
    torch.manual_seed(0)
    save_drafter(tmp_path / "drafter", DraftModel(config).state_dict(), config, provenance={})
    return tmp_path / "drafter"


def export(tmp_path, flavour, *, config=CONFIG, options=()):
    """Returns (folder, tensors, content of config.json)."""
    target = write_target(tmp_path / "target", config)
    source, output = drafter(tmp_path, config), tmp_path / flavour
    flags = [f"--drafter={source}", f"--target={target}", f"--flavour={flavour}", f"--output={output}", *options]
    export_draft.main(flags)
    return output, load_file(output / "model.safetensors"), json.loads((output / "config.json").read_text())


def check(tmp_path, folder, flavour):
    export_draft.main([f"--check={folder}", f"--target={tmp_path / 'target'}", f"--flavour={flavour}"])


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_unbiased_head(tmp_path, flavour):
    _, tensors, content = export(tmp_path, flavour)
    embedding = load_file(tmp_path / "target" / "model.safetensors")["model.embed_tokens.weight"]
    head = read_drafter_tensors(tmp_path / "drafter")
    assert all(torch.equal(tensors.pop(name), tensor) for name, tensor in head.items())
    expected = {
        "eagle": {"embed_tokens.weight": embedding},
        "vllm": {},
        "sglang": {"embed_tokens.weight": embedding, "fc.bias": torch.zeros(32)},
    }[flavour]
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in expected.items())
    assert content["architectures"] == ["LlamaForCausalLMEagle" if flavour == "sglang" else "LlamaForCausalLM"]
    assert content["bias"] is False
    assert content["max_position_embeddings"] == 128
    assert content["rope_theta"] == 10000.0 == content["rope_parameters"]["rope_theta"]
    assert (content["bos_token_id"], content["eos_token_id"]) == (1, [2, 3])
    assert "null" not in json.dumps(content)
    assert content["torch_dtype"] == "float32"


@pytest.mark.parametrize("flavour", ["eagle", "sglang"])
def test_biased_head_keeps_its_bias(tmp_path, flavour):
    _, tensors, content = export(tmp_path, flavour, config=replace(CONFIG, bias=True))
    assert torch.equal(tensors["fc.bias"], read_drafter_tensors(tmp_path / "drafter")["fc.bias"])
    assert content["bias"] is (flavour == "eagle")  # SGLang would look for biases in its attention


def test_biased_head_is_refused_for_vllm(tmp_path):
    with pytest.raises(TapsError, match=r"--flavour vllm: cannot read fc.bias"):
        export(tmp_path, "vllm", config=replace(CONFIG, bias=True))
    assert not (tmp_path / "vllm").exists()


def test_heads_of_another_family_are_refused(tmp_path):
    with pytest.raises(TapsError, match="reads Llama heads only"):
        export(tmp_path, "eagle", config=replace(CONFIG, attention_bias=True, model_type="qwen2"))


def test_scaled_rope_is_written_in_both_forms(tmp_path):
    _, _, content = export(tmp_path, "eagle", config=replace(CONFIG, rope=LLAMA3_ROPE))
    assert content["rope_parameters"] == LLAMA3_ROPE
    assert content["rope_scaling"] == {name: value for name, value in LLAMA3_ROPE.items() if name != "rope_theta"}


def test_dtype(tmp_path):
    _, tensors, content = export(tmp_path, "sglang", options=["--dtype=bfloat16"])
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert content["torch_dtype"] == "bfloat16"


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("flavour", ["eagle", "sglang"])
def test_an_exported_head_is_imported_bit_equal(tmp_path, flavour, bias):
    folder, _, _ = export(tmp_path, flavour, config=replace(CONFIG, bias=bias))
    back = tmp_path / "back"
    import_draft.main([f"--source={folder}", f"--target={tmp_path / 'target'}", f"--output={back}"])
    ours, again = read_drafter_tensors(tmp_path / "drafter"), read_drafter_tensors(back)
    assert read_drafter_config(back).bias is bias
    assert ours.keys() == again.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in ours.items())


def broken(tmp_path, folder, *, tensors=None, drop=(), config=None, forget=()):
    """Rewrites an exported folder with a fault."""
    kept = load_file(folder / "model.safetensors") | (tensors or {})
    save_file({name: value for name, value in kept.items() if name not in drop}, folder / "model.safetensors")
    content = json.loads((folder / "config.json").read_text()) | (config or {})
    (folder / "config.json").write_text(json.dumps({k: v for k, v in content.items() if k not in forget}))
    return folder


EMBEDDING = {"embed_tokens.weight": torch.zeros(300, 32)}
FAULTS = [
    ("eagle", {"config": {"architectures": ["LlamaForCausalLMEagle"]}}, "architectures"),
    ("vllm", {"config": {"architectures": ["EagleLlamaForCausalLM"]}}, "architectures"),
    ("sglang", {"config": {"architectures": ["LlamaForCausalLM"]}}, "architectures"),
    ("eagle", {"tensors": {"fc.bias": torch.zeros(32)}}, '"bias", expected True, found False'),
    ("eagle", {"config": {"bias": True}}, '"bias", expected False, found True'),
    ("eagle", {"forget": ["bias"]}, '"bias", expected False, found nothing'),
    ("vllm", {"tensors": {"fc.bias": torch.zeros(32)}, "config": {"bias": True}}, r"fc.bias, expected False"),
    ("sglang", {"drop": ["fc.bias"]}, r"fc.bias, expected True"),
    ("sglang", {"config": {"bias": True}}, '"bias", expected False, found True'),
    ("eagle", {"drop": EMBEDDING}, r"embed_tokens.weight, expected True"),
    ("vllm", {"tensors": EMBEDDING}, r"embed_tokens.weight, expected False"),
    ("sglang", {"drop": EMBEDDING}, r"embed_tokens.weight, expected True"),
    ("eagle", {"tensors": {"embed_tokens.weight": torch.zeros(299, 32)}}, r"the shape of embed_tokens.weight"),
    *((flavour, {"tensors": {"lm_head.weight": torch.zeros(300, 32)}}, "lm_head") for flavour in FLAVOURS),
    *((flavour, {"config": {"max_position_embeddings": 64}}, "max_position_embeddings") for flavour in FLAVOURS),
    *((flavour, {"forget": ["rope_theta"]}, "rope_theta, expected 10000.0, found nothing") for flavour in FLAVOURS),
    *((flavour, {"forget": ["rope_parameters"]}, "rope_parameters") for flavour in FLAVOURS),
    ("eagle", {"config": {"rope_theta": 500000.0}}, "rope_theta, expected 10000.0, found 500000.0"),
    *((flavour, {"config": {"pad_token_id": None}}, r"null values.*pad_token_id") for flavour in FLAVOURS),
    ("eagle", {"config": {"rope_parameters": {"factor": None}}}, r"null values.*rope_parameters.factor"),
]


@pytest.mark.parametrize(("flavour", "fault", "rule"), FAULTS)
def test_the_validator_names_the_broken_rule(tmp_path, flavour, fault, rule):
    folder, _, _ = export(tmp_path, flavour)
    check(tmp_path, folder, flavour)
    with pytest.raises(TapsError, match=f"breaks the {flavour} rule for {rule}"):
        check(tmp_path, broken(tmp_path, folder, **fault), flavour)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_validator_checks_names_and_shapes(tmp_path, flavour):
    folder, _, _ = export(tmp_path, flavour)
    name = "layers.0.mlp.up_proj.weight"
    broken(tmp_path, folder, tensors={name: torch.zeros(2, 2)})
    with pytest.raises(TapsError, match=f"{name} has a wrong shape"):
        check(tmp_path, folder, flavour)
    broken(tmp_path, folder, drop=[name])
    with pytest.raises(TapsError, match=f"lacks {name}"):
        check(tmp_path, folder, flavour)
    (folder / "config.json").unlink()
    with pytest.raises(TapsError, match="incomplete"):
        check(tmp_path, folder, flavour)


def test_a_drafter_of_another_target_is_refused(tmp_path):
    source = drafter(tmp_path)
    target = write_target(tmp_path / "target", replace(CONFIG, vocab_size=299))
    with pytest.raises(TapsError, match="drafts for another target: vocab_size"):
        export_draft.main(
            [f"--drafter={source}", f"--target={target}", "--flavour=eagle", f"--output={tmp_path / 'o'}"]
        )


# --- what is there already


def test_nothing_is_written_over_unless_told(tmp_path):
    folder, _, _ = export(tmp_path, "vllm")
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(TapsError, match=r"vllm: there already; .*--force"):
        export(tmp_path, "vllm")
    assert (folder / "notes.txt").read_text() == "mine"
    export(tmp_path, "vllm", options=["--force"])
    assert {file.name for file in folder.iterdir()} == {"README.md", "config.json", "model.safetensors"}


# --- draft vocabularies


def vocabulary(tmp_path, *, size=300):
    """Writes a draft vocabulary and a draft model that was trained with it; returns the flags of the two."""
    write_target(tmp_path / "target")
    ids = torch.arange(0, 256, 2)
    made = provenance(stage="taps.draft_vocab", inputs={"target": tmp_path / "target"})
    path = tmp_path / "draft_vocab.safetensors"
    write_tensors(path, {"token_ids": ids}, kind="draft_vocab", provenance=made, meta={"vocab_size": size})
    torch.manual_seed(0)
    made = provenance(stage="taps.train", inputs={"target": tmp_path / "target", "draft_vocab": path}, method="eagle2")
    save_drafter(tmp_path / "ours", DraftModel(CONFIG).state_dict(), CONFIG, provenance=made)
    common = [f"--drafter={tmp_path / 'ours'}", f"--target={tmp_path / 'target'}", f"--output={tmp_path / 'out'}"]
    return common, path, ids


def test_sglang_gets_the_draft_vocabulary_as_it_reads_it(tmp_path, capsys):
    common, path, ids = vocabulary(tmp_path)
    export_draft.main([*common, "--flavour=sglang", f"--token-map={path}"])
    assert torch.equal(torch.load(tmp_path / "out/token_map.pt", weights_only=True), ids)
    assert "draft vocabulary is left out" not in capsys.readouterr().out
    card = (tmp_path / "out/README.md").read_text()
    assert f"--speculative-token-map {tmp_path / 'out'}/token_map.pt" in card
    assert "drafting to the 128 tokens" in card


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_draft_vocabulary_that_is_left_out_is_named(tmp_path, capsys, flavour):
    common, _, _ = vocabulary(tmp_path)
    export_draft.main([*common, f"--flavour={flavour}"])
    said = capsys.readouterr().out
    assert "the draft vocabulary is left out: the server drafts over all of the target's tokens" in said
    assert ("--token-map" in said) == (flavour == "sglang")
    assert "token_map" not in (tmp_path / "out/README.md").read_text()


def test_foreign_draft_vocabularies_are_refused(tmp_path):
    common, path, _ = vocabulary(tmp_path)
    with pytest.raises(TapsError, match=r"--token-map: is read by SGLang only, .*found vllm"):
        export_draft.main([*common, "--flavour=vllm", f"--token-map={path}"])
    write_tensors(path, {"token_ids": torch.arange(9)}, kind="draft_vocab", provenance={}, meta={"vocab_size": 300})
    with pytest.raises(TapsError, match="made from another draft_vocab"):
        export_draft.main([*common, "--flavour=sglang", f"--token-map={path}"])
    common, path, _ = vocabulary(tmp_path, size=299)
    with pytest.raises(TapsError, match="of another target, expected of 300 tokens, found 299"):
        export_draft.main([*common, "--flavour=sglang", f"--token-map={path}"])
    assert not (tmp_path / "out").exists()


# --- the card


def commands_of(card):
    """Returns what stands in the card's code block, as one line."""
    return re.sub(r"\\\n\s*", "", card.partition("```")[2].partition("```")[0]).strip()


@pytest.mark.parametrize(
    ("flavour", "said"),
    [
        ("vllm", """vllm serve TARGET --speculative-config '{"method": "eagle", "model": "OUT", "num_spec"""),
        ("sglang", "--speculative-num-steps 6 --speculative-eagle-topk 8 --speculative-num-draft-tokens 41"),
        ("eagle", 'ea_model_path="OUT",\n    total_token=41,\n    depth=5,\n    top_k=8,'),
    ],
)
def test_a_card_says_how_to_serve_and_what_is_not_known(tmp_path, flavour, said):
    folder, _, _ = export(tmp_path, flavour)
    card = (folder / "README.md").read_text()
    assert said.replace("OUT", str(folder)) in commands_of(card)
    assert "## Training\n\nNot stated here." in card
    assert "Acceptance length" not in card
    assert "{" not in card.partition("```")[0]


STUDY = """study: own
target: {asset: big}
assets:
  big: {hub: me/big, revision: 0123456789abcdef0123456789abcdef01234567}
  sums: {package: sums, version: "1.0", file: sums/rows.jsonl, sha256: "%s"}
corpora: {maths: {reader: gsm8k_solutions, asset: sums, part: [0, 0.5]}}
mixtures: {maths: {maths: 1.0}}
methods: {mine: {family: eagle2, training: {epochs: 1}}}
evaluation: {sampling: [{temperature: 0, seeds: [0]}]}
strategies: {names: [single]}
benchmarks: {sums: {reader: gsm8k, assets: [sums], part: [0.5, 1], num_prompts: 1, max_new_tokens: 4}}
drafting: {depth: 3, top_k: 4, num_draft_tokens: 12, num_nodes: 24}
""" % ("0" * 64)
ROW = {"temperature": 0, "method": "mine", "strategy": "single", "drafters": "ours", "benchmark": "sums"}
ROW |= {"num_draft_tokens": 12, "tau": 1.5, "tau_low": 1.25, "tau_high": 1.75, "num_questions": 9}


def trained(tmp_path):
    """Writes a draft model with the records that training leaves, tables with it and its study; returns the flags."""
    target = write_target(tmp_path / "target")
    inputs: dict[str, Path | str] = {"target": target, "tokens.maths": "0" * 64}
    made = provenance(stage="taps.train", inputs=inputs, method="mine", training_seed=3)
    save_drafter(tmp_path / "ours", DraftModel(CONFIG).state_dict(), CONFIG, provenance=made)
    spent = {"num_tokens": 12345, "flops": 1.0, "seconds": 1.0}
    content = {"num_steps": 7, "num_supervised": 4321, "alignment_passes": 1, "own": spent, "total": spent}
    write_json(tmp_path / "ours/training.json", content, kind="training", provenance=made)
    rows = [
        ROW | {"num_training_seeds": 2},
        ROW | {"num_training_seeds": 2, "num_draft_tokens": 6, "tau": 1.25},
        ROW | {"num_training_seeds": 2, "benchmark": "mean", "num_questions": 18},
        ROW | {"num_training_seeds": 2, "drafters": "theirs", "tau": 7.0},
    ]
    (tmp_path / "tables").mkdir()
    with open(tmp_path / "tables/acceptance_length.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    (tmp_path / "study.yaml").write_text(STUDY)
    flags = [f"--drafter={tmp_path / 'ours'}", f"--target={target}", "--flavour=sglang"]
    return [
        *flags,
        f"--output={tmp_path / 'out'}",
        f"--tables={tmp_path / 'tables'}",
        f"--config={tmp_path}/study.yaml",
    ]


def test_a_card_says_what_the_artefacts_and_the_study_say(tmp_path):
    licences = ["--licence=maths=cc-by-4.0", "--licence=target=apache-2.0", "--licence=drafter=mit"]
    export_draft.main([*trained(tmp_path), *licences])
    card = (tmp_path / "out/README.md").read_text()
    assert card.startswith('---\nlicense: "mit"\nbase_model: "me/big"\ntags:')
    for line in (
        "* from: me/big at 0123456789abcdef0123456789abcdef01234567",
        "* licence: apache-2.0",
        "| maths | sums: rows.jsonl of the package sums 1.0, part 0 to 0.5 | cc-by-4.0 |",
        "* tokens read, over all epochs: 12,345",
        "* of these supervised: 4,321",
        "* training seed: 3",
        "| benchmark | temperature | questions | training seeds | τ, 6 nodes | τ, 12 nodes |",
        "| sums | 0 | 9 | 2 | 1.25 [1.25, 1.75] | 1.50 [1.25, 1.75] |",
        "| mean | 0 | 18 | 2 | – | 1.50 [1.25, 1.75] |",
    ):
        assert f"\n{line}\n" in card
    assert "7.00" not in card
    assert "--speculative-num-steps 4 --speculative-eagle-topk 4 --speculative-num-draft-tokens 13" in commands_of(card)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--licence=math=mit"], "--licence: of nothing on the card, expected target, drafter, maths, found math"),
        (["--tables={}/nowhere"], "nowhere/acceptance_length.csv: missing"),
        (["--config={}/other.yaml"], "trained on corpora of another study, .*found maths"),
        (["--drafter={}/again"], "has no row of mine again, found ours, theirs"),
    ],
)
def test_cards_of_another_study_are_refused(tmp_path, change, message):
    flags = trained(tmp_path)
    (tmp_path / "other.yaml").write_text(STUDY.replace("maths", "sums"))
    (tmp_path / "ours").rename(tmp_path / "again")
    (tmp_path / "ours").symlink_to(tmp_path / "again")
    with pytest.raises(TapsError, match=message):
        export_draft.main([*flags, *(word.format(tmp_path) for word in change)])
    assert not (tmp_path / "out").exists()


def test_a_licence_needs_a_name(tmp_path, capsys):
    with pytest.raises(SystemExit):
        export_draft.main([*trained(tmp_path), "--licence=mit"])
    assert "expected NAME=LICENCE, e.g. math=mit, found 'mit'" in capsys.readouterr().err


def test_a_folder_is_pushed_to_the_hub_as_it_lies_there(tmp_path):
    with serving(FakeHub({})) as hub:
        command = [sys.executable, "-m", "taps.export_draft", *trained(tmp_path), "--push-to-hub", "me/maths"]
        environment = {**os.environ, **hub.environment(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        assert hub.uploaded == {"me/maths": {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}}
    card = hub.uploaded["me/maths"]["README.md"].decode()
    assert "\n# maths\n" in card
    assert "--speculative-draft-model-path me/maths " in commands_of(card)
