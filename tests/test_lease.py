"""Leases: one holder per device and study, all devices or none, released by the kernel when the holder is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from taps.plumbing import lease
from taps.plumbing.errors import TapsError
from taps.plumbing.lease import hold_file, lease_gpus, run_command, visible_gpus

PRINT_DEVICES = [sys.executable, "-c", "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True)"]


def test_a_held_file_names_its_holder_and_can_be_held_again_after_release(tmp_path: Path) -> None:
    path = tmp_path / "study" / ".lock"
    held = hold_file(path, what="the study laptop")
    with pytest.raises(TapsError, match=rf"the study laptop is in use by process {os.getpid()}; wait"):
        hold_file(path, what="the study laptop")
    held.close()
    hold_file(path, what="the study laptop").close()


def test_kill_9_of_the_holder_releases_but_its_orphaned_child_does_not_hold(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    code = (
        "import subprocess, sys, time; from pathlib import Path; from taps.plumbing.lease import hold_file\n"
        f"held = hold_file(Path({str(path)!r}), what='it')\n"
        "child = subprocess.Popen(['sleep', '60']); print(child.pid, flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    try:
        with pytest.raises(TapsError, match=f"process {holder.pid}"):
            hold_file(path, what="it")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        os.kill(child, 0)  # the child lives
        hold_file(path, what="it").close()
    finally:
        os.kill(child, signal.SIGKILL)


def test_leases_are_disjoint_and_all_or_nothing(tmp_path: Path) -> None:
    visible = ["0", "1", "2"]
    with lease_gpus(2, visible=visible, folder=tmp_path) as first:
        assert first == ["0", "1"]
        with pytest.raises(TapsError, match=r"no 2 of 0, 1, 2 became free within 0 s"):
            lease_gpus(2, visible=visible, folder=tmp_path, patience_s=0).__enter__()
        with lease_gpus(1, visible=visible, folder=tmp_path, patience_s=0) as second:  # the failed one kept nothing
            assert second == ["2"]
    with lease_gpus(3, visible=visible, folder=tmp_path, patience_s=0) as third:
        assert third == visible


def test_more_devices_than_there_are_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(TapsError, match="expected at most 1, found 2"):
        lease_gpus(2, visible=["0"], folder=tmp_path).__enter__()


def test_a_waiting_lease_gets_the_device_when_it_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_POLL_S", 0.01)
    got: list[list[str]] = []

    def wait() -> None:
        with lease_gpus(1, visible=["0"], folder=tmp_path, patience_s=20) as devices:
            got.append(devices)

    with lease_gpus(1, visible=["0"], folder=tmp_path):
        waiter = threading.Thread(target=wait)
        waiter.start()
        waiter.join(0.1)
        assert waiter.is_alive()
        assert got == []
    waiter.join(20)
    assert got == [["0"]]


def test_visible_devices_come_from_the_environment_first() -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "3,GPU-ab"}) == ["3", "GPU-ab"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}) == []


def test_the_command_sees_its_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "5,7"}
    environment.pop("SLURM_JOB_ID", None)
    assert run_command(PRINT_DEVICES, gpus=1, environment=environment) == 0
    assert capfd.readouterr().out == "5\n"
    assert run_command([sys.executable, "-c", "raise SystemExit(7)"], gpus=1, environment=environment) == 7


@pytest.mark.parametrize("gpus", [0, 4])
def test_under_slurm_or_without_need_the_command_runs_as_it_is(gpus: int, capfd: pytest.CaptureFixture) -> None:
    environment = {**os.environ, "SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0"}
    if gpus == 0:
        environment.pop("SLURM_JOB_ID")
    assert run_command(PRINT_DEVICES, gpus=gpus, environment=environment) == 0
    assert capfd.readouterr().out == f"{os.environ.get('CUDA_VISIBLE_DEVICES')}\n"
