"""Leases: one holder per device and study, all devices or none, released by the kernel when the holder is killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from taps.plumbing import lease
from taps.plumbing.errors import TapsError
from taps.plumbing.lease import (
    hold_file,
    lease_folder,
    lease_gpus,
    list_gpus,
    parse_gpus,
    run_command,
    visible_gpus,
)

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


# --- which devices ---------------------------------------------------------------------------------------------------

TWO = """GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-d17e47df-d268-c3f3-1b07-005d5ae1dc40)
"""
CUT = """GPU 0: NVIDIA A100-PCIE-40GB (UUID: GPU-aaaa)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 3g.20gb     Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
GPU 1: NVIDIA A100-PCIE-40GB (UUID: GPU-bbbb)
"""


def test_devices_are_known_by_their_uuids_and_mig_instances_stand_for_their_gpu() -> None:
    first, second = parse_gpus(TWO)
    assert first == ["GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f"]
    assert second[0].startswith("GPU-d17e47df")
    cut, whole = parse_gpus(CUT)
    assert [name[:12] for name in cut] == ["MIG-c6d4f1ef", "MIG-cba663e8"]
    assert whole == ["GPU-bbbb"]
    assert parse_gpus("No devices were found\n") == []


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (None, ["GPU-5c", "GPU-d1"]),
        ("1", ["GPU-d1"]),
        ("1,0", ["GPU-d1", "GPU-5c"]),
        ("GPU-d17e", ["GPU-d1"]),
        ("GPU-else", ["GPU-else"]),
        ("", []),
        ("-1", []),
        ("0,-1,1", ["GPU-5c"]),
        ("NoDevFiles", []),
        ("7", ["7"]),
    ],
)
def test_visible_devices_come_from_the_environment_first(named: str | None, expected: list[str]) -> None:
    environment = {} if named is None else {"CUDA_VISIBLE_DEVICES": named}
    found = visible_gpus(environment, parse_gpus(TWO))
    assert [name[:6] if name != "GPU-else" else name for name in found] == expected


def test_without_the_drivers_tool_devices_are_counted_from_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may show /dev/nvidia3 alone; CUDA calls it 0."""
    (tmp_path / "nvidia3").touch()
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(lease, "Path", lambda _: tmp_path)
    assert list_gpus() == [["0"]]


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of its own and two devices; returns the folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(lease, "list_gpus", lambda: parse_gpus(TWO))
    return tmp_path


def without_gpus(**more: str) -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "CUDA_"))} | more


def test_the_command_sees_its_devices(machine: Path, capfd: pytest.CaptureFixture) -> None:
    assert run_command(PRINT_DEVICES, gpus=1, environment=without_gpus(CUDA_VISIBLE_DEVICES="1")) == 0
    assert capfd.readouterr().out.startswith("GPU-d17e47df")
    assert run_command([sys.executable, "-c", "raise SystemExit(7)"], gpus=1, environment=without_gpus()) == 7


def test_two_jobs_of_one_allocation_get_a_device_each(machine: Path, capfd: pytest.CaptureFixture) -> None:
    environment = without_gpus(SLURM_JOB_ID="1", CUDA_VISIBLE_DEVICES="0,1")
    visible = visible_gpus(environment, parse_gpus(TWO))
    with lease_gpus(1, visible=visible, folder=lease_folder(environment), allocation="1") as first:
        assert run_command(PRINT_DEVICES, gpus=1, environment=environment) == 0
        assert capfd.readouterr().out.strip() not in first
    with pytest.raises(TapsError, match="expected at most 2, found 3"):
        run_command(PRINT_DEVICES, gpus=3, environment=environment)


def test_numbers_of_two_allocations_are_different_devices(tmp_path: Path) -> None:
    """Each calls the only device that it sees 0."""
    with lease_gpus(1, visible=["0"], folder=tmp_path, allocation="17") as devices:
        assert devices == ["0"]
        with lease_gpus(1, visible=["0"], folder=tmp_path, allocation="18", patience_s=0) as others:
            assert others == ["0"]
        with pytest.raises(TapsError, match="became free"):
            lease_gpus(1, visible=["0"], folder=tmp_path, allocation="17", patience_s=0).__enter__()
    with (
        lease_gpus(1, visible=["GPU-a"], folder=tmp_path, allocation="17"),
        pytest.raises(TapsError, match="became free"),
    ):
        lease_gpus(1, visible=["GPU-a"], folder=tmp_path, allocation="18", patience_s=0).__enter__()


def test_without_need_the_command_runs_as_it_is(capfd: pytest.CaptureFixture) -> None:
    assert run_command(PRINT_DEVICES, gpus=0, environment=without_gpus()) == 0
    assert capfd.readouterr().out == f"{os.environ.get('CUDA_VISIBLE_DEVICES')}\n"


# --- where leases lie ------------------------------------------------------------------------------------------------


def test_the_folder_is_its_owners_alone(machine: Path) -> None:
    folder = lease_folder({})
    assert folder.parent == machine
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    assert stat.S_IMODE(lease_folder({}).stat().st_mode) == 0o700


def test_a_folder_that_somebody_else_laid_is_not_used(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "elsewhere").mkdir()
    (machine / "runtime").mkdir()
    name = machine / f"taps-leases-{os.getuid()}"
    name.symlink_to(machine / "elsewhere")
    assert lease_folder({"XDG_RUNTIME_DIR": str(machine / "runtime")}).parent == machine / "runtime"
    with pytest.raises(TapsError, match="is not yours, so no lease can be kept there; set XDG_RUNTIME_DIR"):
        lease_folder({})
    name.unlink()
    name.write_text("a file")
    with pytest.raises(TapsError, match="is not yours"):
        lease_folder({"XDG_RUNTIME_DIR": str(machine / "gone")})
    name.unlink()
    name.mkdir()
    uid = os.getuid()
    monkeypatch.setattr(lease.os, "getuid", lambda: uid + 1)
    (machine / f"taps-leases-{uid + 1}").mkdir()  # of uid, not of uid + 1
    with pytest.raises(TapsError, match="is not yours"):
        lease_folder({})


@pytest.mark.parametrize("dangling", [False, True])
def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path, dangling: bool) -> None:
    precious, lock = tmp_path / "precious", tmp_path / "gpu-0.lock"
    if not dangling:
        precious.write_text("years of work")
    lock.symlink_to(precious)
    with pytest.raises(TapsError, match="a link where a lock should be"):
        hold_file(lock, what="GPU 0")
    assert not precious.exists() if dangling else precious.read_text() == "years of work"
    with pytest.raises(TapsError, match="no 1 of 0 became free"):
        lease_gpus(1, visible=["0"], folder=tmp_path, patience_s=0).__enter__()
