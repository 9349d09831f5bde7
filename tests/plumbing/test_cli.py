"""Known errors end a stage in one line; unknown ones keep their traceback."""

from __future__ import annotations

import argparse
import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from taps.plumbing.cli import by_name, named_path, run
from taps.plumbing.errors import TapsError
from taps.plumbing.progress import progress


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (TapsError("a.json", "is\nbroken", expected="x", found="y", remedy="mend it"), "a.json: is broken, expected x"),
        (OSError(errno.ENOSPC, "No space left on device", "a.tmp"), "a.tmp: disk full; free some space and rerun"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "output: disk full (your quota is used up); free some space"),
        (MemoryError(), "out of memory; lower the batch size"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory; lower the batch size"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), "out of memory; lower the batch size"),
    ],
    ids=["ours", "disk", "quota", "memory", "device memory", "torch memory"],
)
def test_a_known_error_is_one_line(error: Exception, line: str, capsys: pytest.CaptureFixture) -> None:
    def main() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        run(main)
    assert ended.value.code == 1
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: {line}")
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_an_error_has_a_line_of_its_own_below_a_bar(capsys: pytest.CaptureFixture) -> None:
    def main() -> None:
        bar = progress(total=9, what="working", unit="row")
        bar.update(3)
        raise TapsError("here", "wrong")

    with pytest.raises(SystemExit):
        run(main)
    assert capsys.readouterr().err.endswith("\nerror: here: wrong\n")


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), OSError(errno.EBADF, "fd"), KeyError("x")], ids=str)
def test_an_unknown_error_keeps_its_traceback(error: Exception) -> None:
    def main() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        run(main)
    assert caught.value is error


def test_ctrl_c_is_130_and_success_returns(capsys: pytest.CaptureFixture) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        run(interrupted)
    assert ended.value.code == 130
    run(lambda: None)
    assert capsys.readouterr() == ("", "")


def test_a_name_is_given_once() -> None:
    assert by_name([("a", Path("x")), ("b", Path("x"))], "--corpus") == {"a": Path("x"), "b": Path("x")}
    with pytest.raises(TapsError, match="--corpus: a name is given twice, found a"):
        by_name([("a", Path("x")), ("b", Path("x")), ("a", Path("y"))], "--corpus")


def test_named_paths() -> None:
    assert named_path("math=a/b=c") == ("math", Path("a/b=c"))
    for text in ("math", "=a", "math="):
        with pytest.raises(argparse.ArgumentTypeError, match="expected NAME=PATH"):
            named_path(text)


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    program = "from taps.plumbing.cli import run; run(lambda: print('x\\n' * 100_000))"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 128 + signal.SIGPIPE
