"""A process is found in the folder it works in and below its parent, until it has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taps.plumbing.processes import Usage, descendants, processes_in, survivors, usage

WAITS = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Yields a process in `tmp_path` whose child waits for the end of its input."""
    command = [sys.executable, "-c", WAITS]
    process = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    end(process)
    process.stdout.close()


def end(process: subprocess.Popen[str]) -> None:
    """Lets the child end, and its parent with it."""
    assert process.stdin is not None
    if process.poll() is None:
        process.stdin.write("\n")
        process.stdin.close()
        process.wait()


def test_processes_of_a_folder(parent: subprocess.Popen[str], tmp_path: Path) -> None:
    (child,) = descendants(parent.pid)
    assert {parent.pid, child} == set(processes_in(tmp_path))
    assert {parent.pid, child} <= set(descendants(os.getpid()))
    assert survivors(tmp_path, patience_s=0) == processes_in(tmp_path)
    end(parent)
    assert survivors(tmp_path) == []
    assert descendants(parent.pid) == []


def test_what_processes_hold(parent: subprocess.Popen[str]) -> None:
    alone, both = usage([parent.pid]), usage([parent.pid, *descendants(parent.pid)])
    assert both.rss_mb > alone.rss_mb > 1
    assert both.num_files > alone.num_files >= 3
    end(parent)
    assert usage([parent.pid]) == Usage()
    most = Usage(rss_mb=1.0, num_files=9)
    most.raise_to(Usage(rss_mb=2.0, num_files=3))
    assert most == Usage(rss_mb=2.0, num_files=9)
