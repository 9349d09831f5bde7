"""Training from the command line: equal however it is split, resumed bit for bit, and able to learn."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from taps import trace, train
from taps.model.drafter import DrafterConfig
from taps.model.flops import training_cost
from taps.model.target_head import load_target_head
from taps.plumbing.artefacts import read_tensors, write_json, write_jsonl, write_tensors
from taps.plumbing.errors import TapsError
from taps.tiny_target import byte_tokenizer
from tests.support import killed_runs
from tests.support.live_fixtures import save_tiny_target
from tests.support.training_fixtures import largest_difference, make_study, record, weights, write_tokens

HASS = ["--alignment-passes", 2, "--top-k-weight", 1.0]
SHORT = ["--epochs", 1, "--batch-size", 4, "--learning-rate", 2e-3]  # 28 rows: 7 steps


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def trained(study):
    """Returns a function: name and flags -> folder of a draft model trained in this process, made once per name."""

    def run(name, *more, **options):
        output = study.folder / "drafters" / name
        if not output.exists():
            train.main(study.flags(output, *SHORT, *HASS, *more, **options))
        return output

    return run


def metrics(drafter):
    return [json.loads(line) for line in (drafter / "metrics.jsonl").read_text().splitlines()]


# --- the same run, however it is split -------------------------------------------------------------------------------


def test_accumulation_changes_nothing(trained):
    """Each of the four rows of a batch has another number of supervised tokens, and another noise."""
    whole, pieces = trained("whole"), trained("pieces", "--accumulation", 4)
    assert largest_difference(whole, pieces) < 1e-5
    assert largest_difference(whole, trained("quiet", "--noise", 0)) > 1e-4
    for one, other in zip(metrics(whole), metrics(pieces), strict=True):
        for name in ("value", "probability", "top_k", "validation_value"):
            assert one[name] == pytest.approx(other[name], rel=1e-4)
    assert record(whole)["own"]["flops"] == record(pieces)["own"]["flops"]


@pytest.mark.slow
def test_two_processes_change_nothing(study, trained):
    outputs = {name: study.folder / "drafters" / name for name in ("two", "two_zero1", "two_zero2_bf16")}
    more = {"two": [], "two_zero1": ["--zero-stage", 1, "--accumulation", 2]}
    more["two_zero2_bf16"] = ["--zero-stage", 2, "--dtype", "bfloat16"]
    runs = [study.flags(output, *SHORT, *HASS, *more[name]) for name, output in outputs.items()]
    script = study.folder / "runs.py"
    script.write_text(f"from taps import train\nfor flags in {runs!r}:\n    train.main(flags)\n")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    root = Path(__file__).parents[2]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=180, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert largest_difference(trained("whole"), outputs["two"]) < 1e-5
    assert largest_difference(trained("whole"), outputs["two_zero1"]) < 1e-5
    assert (
        largest_difference(trained("bfloat16_2", "--dtype", "bfloat16", "--zero-stage", 2), outputs["two_zero2_bf16"])
        < 0.01
    )
    assert record(outputs["two"])["own"]["num_tokens"] == record(trained("whole"))["own"]["num_tokens"]
    assert not list(study.folder.rglob("*.state"))


def test_every_dtype_and_zero_stage_learns_the_same(study):
    for dtype in ("float32", "bfloat16"):
        outputs = []
        for stage in (0, 1, 2):
            outputs.append(study.folder / f"drafters/{dtype}_{stage}_long")
            flags = ["--epochs", 6, "--batch-size", 4, "--learning-rate", 1e-2, "--dtype", dtype, "--zero-stage", stage]
            train.main(study.flags(outputs[-1], *flags))
            losses = [entry["value"] + entry["probability"] for entry in metrics(outputs[-1])]
            assert losses[-1] < 0.9 * losses[0]
            assert largest_difference(outputs[0], outputs[-1]) < 1e-6


# --- TensorBoard -----------------------------------------------------------------------------------------------------


def test_event_files_hold_every_step_and_change_nothing(trained, tmp_path):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logged, whole = trained("logged", "--tensorboard", tmp_path / "events"), trained("whole")
    assert (logged / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert (logged / "provenance.json").read_bytes() == (whole / "provenance.json").read_bytes()
    events = accumulators.EventAccumulator(str(tmp_path / "events")).Reload()
    steps = events.Scalars("step/probability")
    assert [event.step for event in steps] == list(range(1, record(whole)["num_steps"] + 1))
    (epoch,) = metrics(whole)
    assert events.Scalars("epoch/probability")[0].value == pytest.approx(epoch["probability"])
    # each step has another number of supervised tokens: the epoch's mean lies among the steps'
    assert min(event.value for event in steps) < epoch["probability"] < max(event.value for event in steps)
    assert {f"epoch/{name}" for name in epoch} <= set(events.Tags()["scalars"])


def test_event_files_need_their_package(study, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(TapsError, match=r"tensorboard is not installed.*pip install tensorboard"):
        train.main(study.flags(tmp_path / "drafter", *SHORT, "--tensorboard", tmp_path / "events"))


# --- killed and started again ----------------------------------------------------------------------------------------


def fork(study, output, log, *more, kill=(None, 1), state=None):
    """Runs to the end or to its death; returns the exit code."""
    flags = study.flags(output, *SHORT, *HASS, "--checkpoint-every", 0, *more, state=state)
    return killed_runs.finish(killed_runs.start(flags, log, *kill))


@pytest.fixture(scope="module")
def uninterrupted(study):
    output = study.folder / "drafters/uninterrupted"
    assert fork(study, output, study.folder / "uninterrupted.log", "--epochs", 2) == 0
    return output


def test_killed_at_any_moment_it_ends_with_the_same_weights(study, uninterrupted):
    output, log = study.folder / "drafters/killed", study.folder / "killed.log"
    state = output.with_name("killed.state")
    kills = [
        ("in a step", 1),  # no state yet
        ("before the manifest", 2),  # states hold 1 step
        ("in the middle of a file", 3),  # 3
        ("before the rename", 1),  # 3
        ("in a step", 6),  # 8, in the second epoch
        ("in the middle of a file", 6),  # 13
        ("before the draft model is written", 1),  # 14, all there are
    ]
    steps, leftovers = [], 0
    for kill in kills:
        assert fork(study, output, log, "--epochs", 2, kill=kill) == -9, kill
        steps.append(max((int(folder.name[5:]) for folder in state.glob("step-*")), default=0))
        leftovers += len(list(state.glob(".pending*")))
    assert steps == [0, 1, 3, 3, 8, 13, 14]
    assert leftovers >= 3  # some died while writing
    assert not (output / "model.safetensors").exists()
    assert fork(study, output, log, "--epochs", 2) == 0
    assert (output / "model.safetensors").read_bytes() == (uninterrupted / "model.safetensors").read_bytes()
    assert "not resumed from" not in log.read_text()
    assert not state.exists()
    for one, other in zip(metrics(output), metrics(uninterrupted), strict=True):
        assert one | {"seconds": 0} == other | {"seconds": 0}
    for name in ("num_tokens", "flops"):
        assert record(output)["own"][name] == record(uninterrupted)["own"][name]


def test_a_truncated_state_is_passed_over_for_the_one_before(study, uninterrupted):
    output, log = study.folder / "drafters/truncated", study.folder / "truncated.log"
    state = output.with_name("truncated.state")
    process = killed_runs.start(
        study.flags(output, *SHORT, *HASS, "--epochs", 2, "--checkpoint-every", 0, state=state), log
    )
    while not (state / "step-00000003").exists():
        assert process.is_alive()
        time.sleep(0.001)
    process.kill()  # wherever it is
    killed_runs.finish(process)
    *_, older, newest = sorted(state.glob("step-*"))  # three, if it died between rename and removal
    files = [file for file in newest.rglob("*") if file.is_file() and file.name != "state.json"]
    largest = max(files, key=lambda file: file.stat().st_size)
    os.truncate(largest, largest.stat().st_size - 100)
    assert fork(study, output, log, "--epochs", 2) == 0
    assert f"{newest}: not resumed from, " in log.read_text()
    assert str(older) not in log.read_text()
    assert (output / "model.safetensors").read_bytes() == (uninterrupted / "model.safetensors").read_bytes()


def test_two_runs_of_one_job_do_not_disturb_each_other(study, uninterrupted):
    output, log = study.folder / "drafters/twice", study.folder / "twice.log"
    flags = study.flags(output, *SHORT, *HASS, "--epochs", 2, "--checkpoint-every", 0)
    both = [killed_runs.start(flags, log) for _ in range(2)]
    assert [killed_runs.finish(process) for process in both] == [0, 0], log.read_text()
    assert (output / "model.safetensors").read_bytes() == (uninterrupted / "model.safetensors").read_bytes()


def test_a_state_of_other_settings_is_not_used(study, uninterrupted):
    output, log = study.folder / "drafters/changed", study.folder / "changed.log"
    assert fork(study, output, log, "--epochs", 2, "--seed", 1, kill=("in a step", 9)) == -9
    assert fork(study, output, log, "--epochs", 2) == 0
    assert log.read_text().count("other settings, inputs or number of processes") == 2
    assert (output / "model.safetensors").read_bytes() == (uninterrupted / "model.safetensors").read_bytes()


@pytest.mark.parametrize("stage", [0, 2])
def test_bfloat16_and_zero_resume_too(study, stage):
    more = ["--dtype", "bfloat16", "--zero-stage", stage]
    whole, killed = (study.folder / f"drafters/{name}_{stage}" for name in ("whole", "killed"))
    log = study.folder / f"bfloat16_{stage}.log"
    assert fork(study, whole, log, *more) == 0
    assert fork(study, killed, log, *more, kill=("in a step", 5)) == -9
    assert fork(study, killed, log, *more) == 0
    assert (whole / "model.safetensors").read_bytes() == (killed / "model.safetensors").read_bytes()


def test_states_hold_the_draft_models_tensors_and_no_code(study):
    output = study.folder / "drafters/looked_at"
    log, state = study.folder / "looked_at.log", output.with_name("looked_at.state")
    assert fork(study, output, log, kill=("before the draft model is written", 1)) == -9
    files = {file.name: file for file in (state / "step-00000007").rglob("*") if file.is_file()}
    assert sorted(files) == ["mp_rank_00_model_states.pt", "state.json"]
    content = torch.load(files["mp_rank_00_model_states.pt"], map_location="cpu", weights_only=False)
    names = [f"drafter.{name}" for name in weights(study.folder / "drafters/uninterrupted")]
    assert sorted(content["module"]) == sorted(names)
    assert len(content["optimizer"]["state"]) == len(names)
    stored = sum(tensor.numel() for tensor in content["module"].values())
    assert files["mp_rank_00_model_states.pt"].stat().st_size < 3 * 4 * stored + 40_000  # weights and two moments
    shapes = {tuple(tensor.shape) for tensor in content["module"].values()}
    assert not [shape for shape in shapes if load_target_head(study.target).config["vocab_size"] in shape]


# --- costs -----------------------------------------------------------------------------------------------------------


def test_matching_a_cost_spends_it_within_a_step_and_costs_add_up(study):
    hass, long, onward = (study.folder / "drafters" / name for name in ("hass", "long", "onward"))
    flags = ["--batch-size", 4, "--learning-rate", 1e-3]
    train.main(study.flags(hass, *flags, "--epochs", 1, "--alignment-passes", 3, "--top-k-weight", 1.0))
    train.main(study.flags(long, *flags, "--match-cost", hass))
    spent, matched = record(hass), record(long)
    config = DrafterConfig.from_json(load_target_head(study.target).config)
    cost = training_cost(config, head_columns=config.vocab_size, num_passes=1)
    largest_step = cost.flops([38] * 4, 4 * 38)
    assert abs(matched["total"]["flops"] - spent["total"]["flops"]) <= largest_step / 2
    assert matched["num_steps"] > 2 * spent["num_steps"]

    train.main(study.flags(onward, *flags, "--epochs", 1, "--init-from", long, "--learning-rate", 1e-9, "--noise", 0))
    assert largest_difference(long, onward) < 1e-6
    for name, own in record(onward)["own"].items():
        assert record(onward)["total"][name] == own + matched["total"][name]
        assert own > 0
    with pytest.raises(TapsError, match="already spent by --init-from"):
        train.main(study.flags(study.folder / "no", "--match-cost", hass, "--init-from", onward))


# --- features on the fly ---------------------------------------------------------------------------------------------


def test_online_features_give_the_losses_of_those_on_disk(trained, capsys):
    offline, online = metrics(trained("whole")), metrics(trained("online", online=("math", "chat")))
    for one, other in zip(offline, online, strict=True):
        for name in ("value", "probability", "top_k", "validation_value", "validation_probability"):
            assert one[name] == pytest.approx(other[name], rel=2e-3)
    num_tokens = record(trained("whole"))["own"]["num_tokens"] + 2 * 28  # one epoch of 28 rows
    notice = rf"features of {num_tokens} tokens on the fly: about \S+ s in every epoch and no disk; stored, 0\.0 MB"
    assert re.search(notice, capsys.readouterr().err)


# --- learning --------------------------------------------------------------------------------------------------------


def sharp_target(folder):
    """Writes a random target whose most likely token stands out, so that the best chain is among 40 nodes."""
    tokenizer = byte_tokenizer(["Tom has 3 apples. He buys 2 more. How many are there?"])
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
        initializer_range=1.0,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """Returns the metrics of a draft model that has seen one greedy answer of 71 tokens, 400 times."""
    folder = tmp_path_factory.mktemp("learnt")
    target, text = sharp_target(folder / "target"), folder / "traces/one/t0_s0.safetensors"
    prompt = {"id": "a", "category": None, "turns": ["Tom has 3 apples."], "reference": None}
    write_jsonl(folder / "prompts.jsonl", [prompt], kind="prompts", provenance={})
    flags = ["--target", target, "--prompts", folder / "prompts.jsonl", "--max-new-tokens", 71, "--output", text]
    trace.main([str(flag) for flag in [*flags, "--temperature", 0, "--seed", 0, "--batch-size", 1]])
    recorded, _ = read_tensors(text, kind="trace")
    tokens, prompt_length = recorded["tokens"], int(recorded["prompt_lengths"])
    assert len(tokens) == prompt_length + 71

    row = write_tokens(folder / "one.safetensors", [tokens], [torch.arange(len(tokens)) >= prompt_length])
    mixture = {"train": {"one": [0] * 50}, "validation": {"one": [0]}}
    write_json(folder / "one.json", mixture, kind="mixture", provenance={})
    vocabulary = torch.tensor(sorted({*tokens.tolist(), *range(100)}))
    write_tensors(folder / "vocab.safetensors", {"token_ids": vocabulary}, kind="draft_vocab", provenance={})
    flags = ["--target", target, "--tokens", f"one={row}", "--features", "one=online"]
    flags += ["--mixture", folder / "one.json", "--heldout-trace", text, "--draft-vocab", folder / "vocab.safetensors"]
    flags += ["--epochs", 8, "--batch-size", 1, "--learning-rate", 5e-3, "--noise", 0, "--probability-weight", 1.0]
    flags += ["--state", folder / "state", "--output", folder / "drafter"]
    train.main([str(flag) for flag in flags])
    return metrics(folder / "drafter")


@pytest.mark.slow
def test_one_answer_learnt_by_heart_is_drafted_to_the_full_depth(learnt):
    assert learnt[-1]["tau_one"] >= 0.95 * (5 + 2)
    assert learnt[0]["tau_one"] < learnt[-1]["tau_one"]  # it is what was learnt that counts
    assert learnt[-1]["validation_top1"] == 1.0


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--accumulation", 3], "--batch-size: must divide evenly, expected a multiple of 3, found 4"),
        (["--clip-value", 0.5, "--zero-stage", 1], "--clip-value: needs --zero-stage 0"),
        (["--features", "code=online"], "--features: other corpora than --tokens"),
    ],
)
def test_flags_that_do_not_fit_are_refused(study, more, message):
    with pytest.raises(TapsError, match=message):
        train.main(study.flags(study.folder / "no", *SHORT, *more))
    assert not (study.folder / "no").exists()


def test_features_of_another_target_and_a_draft_model_of_another_target_are_refused(study, trained):
    folder = study.folder / "other"
    save_tiny_target(folder, seed=5)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rope_parameters": {"rope_theta": 7.0}}))
    with pytest.raises(TapsError, match="features of another target"):
        train.main([*study.flags(study.folder / "no", *SHORT), "--target", str(folder)])
    online = study.flags(study.folder / "no", *SHORT, "--init-from", trained("whole"), online=("math", "chat"))
    with pytest.raises(TapsError, match="made from another target"):
        train.main([*online, "--target", str(folder)])
