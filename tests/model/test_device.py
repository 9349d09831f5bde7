"""What a device lacks is said before anything is loaded: no build, no driver, no such device, no room."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from taps.model import device as module
from taps.model.device import check_device, weight_bytes
from taps.model.distributed import start_processes
from taps.model.target import load_target
from taps.model.target_head import load_target_head
from taps.plumbing.errors import TapsError
from tests.support.live_fixtures import save_tiny_target


@pytest.fixture
def machine(monkeypatch):
    """A machine with two devices of 80 GB, 70 GB of them free; its parts can be changed."""
    parts = SimpleNamespace(cuda="12.8", count=2, free=70e9, total=80e9, error=None)

    def init():
        if parts.error:
            raise RuntimeError(parts.error)

    monkeypatch.setattr(module.torch, "version", SimpleNamespace(cuda=parts.cuda, hip=None))
    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: parts.count)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (parts.free, parts.total))
    return parts


@pytest.mark.skipif(torch.version.cuda is not None, reason="this PyTorch is built with CUDA")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_build_without_cuda_says_so(device):
    with pytest.raises(TapsError, match=f"--device {device}: this PyTorch knows no GPU, found {torch.__version__[:5]}"):
        check_device(device)


def test_a_cpu_always_passes():
    check_device("cpu", need_bytes=1e18)
    check_device(torch.device("cpu"))


def test_a_device_with_room_passes(machine):
    check_device("cuda", need_bytes=69e9)
    check_device(torch.device("cuda", 1))


@pytest.mark.parametrize(
    ("change", "device", "need", "message"),
    [
        (
            {"error": "The NVIDIA driver on your system is too old"},
            "cuda",
            0,
            "no GPU can be used here, found The NVIDIA",
        ),
        ({"error": "No CUDA GPUs are available"}, "cuda:0", 0, "found No CUDA GPUs are available; see nvidia-smi"),
        ({}, "cuda:2", 0, "no such device, expected 3 devices, found 2"),
        ({"count": 0}, "cuda", 0, "no such device, expected 1 devices, found 0"),
        (
            {},
            "cuda",
            100e9,
            r"the target is larger than the device, expected 100\.0 GB, found 80\.0 GB; choose a smaller",
        ),
        ({}, "cuda", 75e9, r"too little free memory for the target, expected 75\.0 GB, found 70\.0 GB of 80\.0 GB"),
    ],
)
def test_what_is_lacking_is_named(machine, change, device, need, message):
    vars(machine).update(change)
    with pytest.raises(TapsError, match=message) as error:
        check_device(device, need_bytes=need, what="the target")
    assert "\n" not in str(error.value)


def test_a_target_is_weighed_before_it_is_read(machine, tmp_path, monkeypatch):
    folder = save_tiny_target(tmp_path / "target")
    machine.total = machine.free = weight_bytes(folder, torch.bfloat16)
    monkeypatch.setattr("taps.model.target.load_model", lambda *_, **__: pytest.fail("it was loaded"))
    with pytest.raises(TapsError, match="the target is larger than the device"):
        load_target(folder, dtype=torch.float32, device="cuda")


def test_weights_are_weighed_from_their_headers(tmp_path):
    save_file({"a": torch.zeros(3, 5, dtype=torch.float16), "b": torch.zeros(())}, tmp_path / "model.safetensors")
    assert 16 * 2 < weight_bytes(tmp_path, torch.bfloat16) < 16 * 2 * 1.2


def test_heads_and_processes_ask_first(machine, tmp_path, monkeypatch):
    machine.error = "No CUDA GPUs are available"
    with pytest.raises(TapsError, match="no GPU can be used here"):
        load_target_head(save_tiny_target(tmp_path / "target"), device="cuda")
    machine.error = None
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(TapsError, match="cuda:2: no such device"):
        start_processes("cuda")
