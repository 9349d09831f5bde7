"""A journal keeps every complete entry through a kill at any byte, and nothing of other settings."""

from taps.plumbing.journal import Journal

ENTRIES = [{"text": "naïve\nline"}, [1, 2], "three"]


def write(path):
    journal = Journal(path, {"seed": 0})
    for entry in ENTRIES:
        journal.append(entry)
    return path.read_bytes()


def test_a_kill_at_any_byte_loses_only_the_entry_being_written(tmp_path):
    path = tmp_path / "journal"
    content = write(path)
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        journal = Journal(path, {"seed": 0})
        complete = max(content[:length].count(b"\n") - 1, 0)
        assert journal.entries == ENTRIES[:complete]
        for entry in ENTRIES[complete:]:
            journal.append(entry)
        assert path.read_bytes() == content


def test_other_settings_start_anew(tmp_path, capsys):
    write(tmp_path / "journal")
    journal = Journal(tmp_path / "journal", {"seed": 1})
    assert journal.entries == []
    assert "starting anew" in capsys.readouterr().err
    journal.remove()
    assert not (tmp_path / "journal").exists()
