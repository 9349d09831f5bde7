"""CUDA paths on an emulated `cuda:0`: right values, no tensor on the wrong side, and budgets of waits and copies.

The device lives in a process of its own (`python -m tests.support.emulated FOLDER`), which tells here what it saw.
It carries forward and backward of every stage's core and DeepSpeed's loop with ZeRO-1 in bfloat16, and ends at what is
CUDA's own: kernels and their choice, streams, NCCL, and the pickles of training states.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.emulated.process import why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no device can be emulated: {why_not()}")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Returns scenario -> facts, from one run of all."""
    command = [sys.executable, "-m", "tests.support.emulated", str(tmp_path_factory.mktemp("emulated"))]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def facts(seen: dict[str, Any], scenario: str) -> dict[str, Any]:
    assert "failed" not in seen[scenario], seen[scenario]["failed"]
    return seen[scenario]


def test_features_are_the_hosts_and_are_checked_in_one_look(seen):
    found = facts(seen, "features")
    assert found["difference"] < 1e-2  # bfloat16
    assert found["agreement"]["num_equal_argmax"] == found["agreement"]["num_positions"]
    assert found["counts"]["sync"] <= 2, found["sites"]


# --- traces ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["trace", "sampled_trace"])
def test_a_trace_is_the_hosts_with_one_copy_a_step(seen, scenario):
    found = facts(seen, scenario)
    assert all(found["same"])
    assert found["counts"]["sync"] <= found["steps"] + 2, found["sites"]  # prompts' features, and a block of steps'
    assert found["counts"]["pageable"] <= 12, found["sites"]  # once per batch, none per step


def test_kernels_that_answer_nan_for_rows_without_keys_change_nothing(seen):
    found = facts(seen, "trace_on_hostile_kernels")
    assert found["empty_rows"] == 0
    assert all(found["same"])
    assert found["difference"] < 1e-4


# --- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["eagle2_step", "hass_step", "published_hass_step", "online_step"])
def test_losses_and_gradients_are_the_hosts(seen, scenario):
    found = facts(seen, scenario)
    assert found["losses"] == pytest.approx(found["losses_on_host"], rel=1e-5)
    assert found["difference"] < 1e-5 * max(1.0, found["largest"])


@pytest.mark.parametrize("scenario", ["eagle2_step", "hass_step", "published_hass_step"])
def test_forward_and_backward_wait_for_nothing(seen, scenario):
    found = facts(seen, scenario)
    assert found["counts"].get("sync", 0) == 0, found["sites"]
    assert found["counts"]["copy"] == 2  # features and integers, from pinned memory
    assert found["counts"]["pageable"] <= 1, found["sites"]  # the frequencies, once in a run


def test_features_computed_on_the_device_stay_there(seen):
    found = facts(seen, "online_step")
    assert found["counts"]["copy"] == 1  # integers
    assert not [site for site in found["sites"] if site[1] == "to the host"]


@pytest.mark.parametrize("scenario", ["deepspeed_float32", "deepspeed_zero1"])
def test_a_training_step_waits_three_times_at_most(seen, scenario):
    found = facts(seen, scenario)
    assert found["device"] == "cuda:0"
    assert found["moved"] > 0  # every tensor
    assert found["losses"][-1] < 20
    own = [site for site in found["sites"] if site[0] == "sync" and site[1] != "_local_scalar_dense"]
    assert sum(site[-1] for site in own) <= found["looks"], own  # losses are looked at now and then
    assert found["counts"]["sync"] <= 3 * found["steps"], found["sites"]
    assert (
        found["counts"]["sync"] <= 1.2 * found["steps"] + found["looks"]
    )  # what DeepSpeed leaves: the gradient's norm
    assert found["counts"]["copy"] == 2 * found["steps"]


def test_validation_runs_on_the_device(seen):
    found = facts(seen, "validation")
    assert found["counts"]["sync"] <= 3
    assert 0 < found["found"]["validation_probability"] < 20


# --- drafting and live decoding --------------------------------------------------------------------------------------


def test_a_bank_is_the_hosts(seen):
    found = facts(seen, "bank")
    assert found["same"] > 0.99
    assert found["positions"] > 30


@pytest.mark.parametrize(("strategy", "syncs", "copies"), [("single", 18, 8), ("routed_history", 26, 10)])
def test_a_live_cycle_keeps_its_budget(seen, strategy, syncs, copies):
    found = facts(seen, "live")[strategy]
    assert found["same"]
    assert found["cycles"] > 5
    assert found["per_cycle"]["sync"] <= syncs, found["sites"]
    assert found["per_cycle"]["pageable"] <= copies, found["sites"]


def test_every_strategy_gives_the_hosts_text(seen):
    assert all(found["same"] for found in facts(seen, "live").values())


def test_costs_are_measured_on_the_device(seen):
    assert facts(seen, "costs") == {"finite": True, "on": "cuda:0"}
