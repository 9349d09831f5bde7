"""States on disk: whole or passed over, of this very run or not used, the last two kept."""

import os
import socket
from pathlib import Path

import pytest

from taps.model.training_state import load_state, remove_states, save_state

HOST = socket.gethostname()
NO_PID = 1 << 30  # beyond any pid


def save(folder, step, *, run="a", writer=f"{HOST}.{NO_PID}", content=None):
    def write(pending):
        (pending / "engine").mkdir()
        (pending / "engine/weights").write_text(content or f"weights {step}")

    save_state(folder, step, {"fingerprint": run, "loss": step / 7}, write, writer=writer, is_main=True)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_state_comes_back_and_the_last_two_are_kept(tmp_path):
    for step in (3, 9, 120):
        save(tmp_path, step)
    assert names(tmp_path) == ["step-00000009", "step-00000120"]
    found = load_state(tmp_path, "a")
    assert found is not None
    folder, step, facts = found
    assert step == 120
    assert facts == {"fingerprint": "a", "loss": 120 / 7}
    assert (folder / "engine/weights").read_text() == "weights 120"


def truncate(state):
    (state / "engine/weights").write_text("weig")


def lose_a_file(state):
    (state / "engine/weights").unlink()


def cut_the_manifest(state):
    text = (state / "state.json").read_text()
    (state / "state.json").write_text(text[: len(text) // 2])


def lose_the_manifest(state):
    (state / "state.json").unlink()


def empty_the_manifest(state):
    (state / "state.json").write_text("{}")


@pytest.mark.parametrize("damage", [truncate, lose_a_file, cut_the_manifest, lose_the_manifest, empty_the_manifest])
def test_a_damaged_state_is_passed_over_with_a_message(tmp_path, capsys, damage):
    save(tmp_path, 10)
    save(tmp_path, 20)
    damage(tmp_path / "step-00000020")
    found = load_state(tmp_path, "a")
    assert found is not None
    assert found[1] == 10
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "step-00000020: not resumed from" in message
    damage(tmp_path / "step-00000010")
    assert load_state(tmp_path, "a") is None


def test_states_of_another_run_are_neither_used_nor_kept_in_place_of_new_ones(tmp_path, capsys):
    save(tmp_path, 500, run="old")
    save(tmp_path, 600, run="old")
    assert load_state(tmp_path, "new") is None
    assert "other settings, inputs or number of processes" in capsys.readouterr().err
    save(tmp_path, 10, run="new")
    save(tmp_path, 20, run="new")
    assert names(tmp_path) == ["step-00000010", "step-00000020"]
    found = load_state(tmp_path, "new")
    assert found is not None
    assert found[1] == 20


def test_a_writer_that_dies_leaves_the_state_before_it_and_its_rest_is_cleared_away(tmp_path):
    save(tmp_path, 10)

    def die(pending):
        (pending / "half").write_text("half")
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        save_state(tmp_path, 20, {"fingerprint": "a"}, die, writer=f"{HOST}.{NO_PID}", is_main=True)
    assert names(tmp_path) == [f".pending.{HOST}.{NO_PID}", "step-00000010"]
    found = load_state(tmp_path, "a")
    assert found is not None
    assert found[1] == 10
    save(tmp_path, 30)
    assert names(tmp_path) == ["step-00000010", "step-00000030"]


def test_a_living_writer_is_left_alone_and_a_reused_pid_is_not_in_the_way(tmp_path):
    living = tmp_path / f".pending.{HOST}.{os.getppid()}"
    own = tmp_path / f".pending.{HOST}.{os.getpid()}"
    for folder in (living, own):
        folder.mkdir()
        (folder / "half").touch()
    save(tmp_path, 20, writer=f"{HOST}.{os.getpid()}")
    assert names(tmp_path) == [living.name, "step-00000020"]
    assert not (tmp_path / "step-00000020/half").exists()


def test_other_processes_only_write(tmp_path):
    seen: list[Path] = []
    save_state(tmp_path, 5, {}, seen.append, writer="host.1", is_main=False)
    assert seen == [tmp_path / ".pending.host.1"]
    assert names(tmp_path) == []


def test_nothing_is_left_of_a_run_that_is_over(tmp_path):
    state = tmp_path / "state"
    remove_states(state)  # there is none
    save(state, 10)
    save(state, 20)
    remove_states(state)
    assert not state.exists()
    save(state, 10)
    (state / "notes.txt").touch()  # not ours
    remove_states(state)
    assert names(state) == ["notes.txt"]
