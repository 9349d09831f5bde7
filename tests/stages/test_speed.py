"""Measuring speed: every line is there, counts are right, and the time limit leaves a usable file."""

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from taps import speed
from taps.measuring.hardware import PeakMemory, matmul_rate
from taps.measuring.training_speed import Measurement
from taps.model.drafter import DrafterConfig
from taps.model.flops import num_parameters, target_flops
from taps.plumbing.artefacts import read_json, write_tensors

CONFIG = {
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}


@pytest.fixture(scope="module")
def measure(tmp_path_factory):
    folder = tmp_path_factory.mktemp("speed")
    (folder / "config.json").write_text(json.dumps(CONFIG))

    def run(*more):
        flags = ["--shape", folder / "config.json", "--num-tokens", 600, "--lengths", 20, 40, "--draft-vocab", 50]
        flags += ["--batch-size", 4, "--positions", 20, "--output", folder / "speed.json", *more]
        speed.main([str(flag) for flag in flags])
        return read_json(folder / "speed.json", kind="speed")

    return run


def test_every_measurement_is_a_line_with_rates_and_memory(measure, capsys):
    found = measure()
    lines = found["measurements"]
    assert [(line["what"], line["columns"], line["unit"]) for line in lines] == [
        ("features", 0, "tokens"),
        ("eagle2", 50, "tokens"),
        ("hass", 50, "tokens"),
        ("eagle2", 300, "tokens"),
        ("hass", 300, "tokens"),
        ("bank", 50, "positions"),
        ("bank", 300, "positions"),
    ]
    assert all(line["per_s"] > 0 and line["peak_memory_mb"] > 50 for line in lines)
    assert all((line["tflops"] > 0) == (line["what"] != "bank") for line in lines)
    assert all(line["peak_share"] is None for line in lines)  # a CPU
    assert 2 * 64 < lines[0]["bytes_per_token"] <= 2 * 64 + 16
    assert (found["num_rows"], found["skipped"]) == (20, [])
    assert 20 * 20 <= found["num_tokens"] <= 20 * 40
    by_name = {(line["what"], line["columns"]): line["tflops"] / line["per_s"] for line in lines[1:5]}
    assert by_name["hass", 300] > 2 * by_name["eagle2", 300]  # three passes, one target head
    assert by_name["eagle2", 300] > by_name["eagle2", 50]
    assert "| hass | 300 |" in capsys.readouterr().out


def test_the_time_limit_leaves_out_and_names_the_rest(measure, capsys):
    found = measure("--limit-s", 0)
    assert [line["what"] for line in found["measurements"]] == ["features"]
    assert found["skipped"] == ["eagle2 sliced", "hass sliced", "eagle2 full", "hass full", "bank sliced", "bank full"]
    assert "left out at the time limit: eagle2 sliced, hass sliced" in capsys.readouterr().out


@given(num_tokens=st.integers(100, 5000), shortest=st.integers(2, 40), extra=st.integers(0, 40))
def test_random_rows_are_seeded_and_half_supervised(num_tokens, shortest, extra):
    rows = speed.random_rows(num_tokens, shortest, shortest + extra, vocab_size=7)
    again = speed.random_rows(num_tokens, shortest, shortest + extra, vocab_size=7)
    assert all((rows[name] == again[name]).all() for name in rows)
    lengths = rows["offsets"][1:] - rows["offsets"][:-1]
    assert shortest <= lengths.min() <= lengths.max() <= shortest + extra
    assert rows["offsets"][-1] == len(rows["tokens"]) == len(rows["supervised"])
    assert rows["supervised"].sum() == sum(math.ceil(length / 2) for length in lengths)
    assert rows["tokens"].max() < 7


def test_given_tokens_are_cut_at_a_row(tmp_path):
    tensors = {name: torch.arange(100, dtype=torch.int32) for name in ("tokens", "supervised")}
    offsets = torch.tensor([0, 30, 50, 90, 100])
    write_tensors(tmp_path / "t.safetensors", {**tensors, "offsets": offsets}, kind="tokens", provenance={})
    args = speed.build_parser().parse_args(
        ["--shape", "llama3-8b", "--output", "x", "--tokens", str(tmp_path / "t.safetensors"), "--num-tokens", "60"]
    )
    kept, _ = speed.read_tensors(speed.write_rows(args, {}, tmp_path / "cut.safetensors"), kind="tokens")
    assert kept["offsets"].tolist() == [0, 30, 50]
    assert len(kept["tokens"]) == len(kept["supervised"]) == 50


def test_counted_operations_are_those_of_a_forward_pass():
    config: Any = CONFIG  # annotated as text only
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), attn_implementation="eager")
    with FlopCounterMode(display=False) as counter:
        model.get_decoder()(input_ids=torch.zeros((1, 40), dtype=torch.int64))
    half_attention = 2 * 3 * 4 * 16 * 40 * 40  # causal attention needs half of what eager attention computes
    counted = target_flops(DrafterConfig.from_json(CONFIG), num_layers=3, num_tokens=40, context=20)
    assert counted == pytest.approx(counter.get_total_flops() - half_attention, rel=0.01)


def test_share_of_peak_only_in_bfloat16_on_a_known_device():
    line = Measurement(what="hass", per_s=1.0, tflops=98.9, peak_memory_mb=1.0)
    assert speed.line_of(line, {"bf16_peak_tflops": 989.0, "dtype": "bfloat16"})["peak_share"] == pytest.approx(0.1)
    assert speed.line_of(line, {"bf16_peak_tflops": 989.0, "dtype": "float32"})["peak_share"] is None
    assert speed.line_of(line, {"bf16_peak_tflops": None, "dtype": "bfloat16"})["peak_share"] is None


def test_peak_memory_counts_what_was_freed_and_forgets_what_came_before():
    before = PeakMemory(torch.device("cpu")).megabytes()
    block = torch.ones(40_000_000, dtype=torch.uint8)
    del block
    memory = PeakMemory(torch.device("cpu"))
    low = memory.megabytes()
    block = torch.ones(80_000_000, dtype=torch.uint8)
    del block
    assert memory.megabytes() >= low + 60
    assert low < before + 40


def test_matmul_rate_is_one_that_machines_have():
    assert 1e8 < matmul_rate(torch.device("cpu"), torch.float32, seconds=0.01) < 1e14


def test_the_published_shape_is_that_of_its_draft_model():
    shape = DrafterConfig.from_json(speed.SHAPES["llama3-8b"])
    assert (shape.head_dim, shape.num_key_value_heads, shape.hidden_size) == (128, 8, 4096)
    assert num_parameters(shape) == 251_662_336  # fc 33.6 M, attention 41.9 M, MLP 176.2 M, one norm
