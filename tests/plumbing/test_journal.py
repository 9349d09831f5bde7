"""A journal keeps every whole entry through a kill at any byte and damage to any other, and nothing of other runs."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from taps.plumbing.journal import Journal

ENTRIES = {0: {"text": "naïve\nline"}, 1: [1, 2], 2: "three"}


def write(path: Path, seed: int = 0) -> bytes:
    journal = Journal(path, {"seed": seed})
    for number, entry in ENTRIES.items():
        journal.write(number, entry)
    return path.read_bytes()


def test_a_kill_at_any_byte_loses_only_the_entry_being_written(tmp_path, capsys):
    path = tmp_path / "journal"
    content = write(path)
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        journal = Journal(path, {"seed": 0})
        complete = content[:length].count(b"\n")
        assert journal.entries == {number: ENTRIES[number] for number in range(complete)}
        for number in range(complete, len(ENTRIES)):
            journal.write(number, ENTRIES[number])
        assert path.read_bytes() == content
    assert capsys.readouterr().err == ""  # a kill is nothing to speak of


@given(data=st.data())
def test_a_damaged_line_costs_that_line(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("journal") / "journal"
    lines = write(path).splitlines(keepends=True)
    number = data.draw(st.integers(0, 2))
    place = data.draw(st.integers(0, len(lines[number]) - 2))
    damaged = bytearray(lines[number])
    damaged[place] ^= data.draw(st.integers(1, 255).filter(lambda mask: damaged[place] ^ mask not in b"\r\n"))
    path.write_bytes(b"".join([*lines[:number], bytes(damaged), *lines[number + 1 :]]))
    journal = Journal(path, {"seed": 0})
    others = {key: entry for key, entry in ENTRIES.items() if key != number}
    assert journal.entries in (others, ENTRIES)  # the latter where the change means nothing, as of a space
    journal.write(number, ENTRIES[number])
    assert Journal(path, {"seed": 0}).entries == ENTRIES


def test_damage_is_reported_with_its_extent(tmp_path, capsys):
    path = tmp_path / "journal"
    lines = write(path).splitlines(keepends=True)
    for damage in (b"\xff\xfe\n", b"[]\n", b"{}\n", b'{"number": 1, "seal": 2, "entry": []}\n', b"[" * 5000 + b"\n"):
        path.write_bytes(lines[0] + damage + lines[2])
        assert Journal(path, {"seed": 0}).entries == {0: ENTRIES[0], 2: ENTRIES[2]}
        assert "journal: 1 of 3 entries are damaged or of other settings, done again" in capsys.readouterr().err


def test_other_settings_start_anew(tmp_path, capsys):
    write(tmp_path / "journal")
    journal = Journal(tmp_path / "journal", {"seed": 1})
    assert journal.entries == {}
    assert "3 of 3 entries are damaged or of other settings" in capsys.readouterr().err
    journal.remove()
    assert not (tmp_path / "journal").exists()
