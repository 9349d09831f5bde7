"""What several test files share: how they spread over processes, and one finished smoke study."""

from __future__ import annotations

import os
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.faults import Reference, undisturbed

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: the processes share the cores

# all their tests look at the finished study
_STUDY_FILES = (
    "tests/test_additions.py",
    "tests/test_decoding_speed.py",
    "tests/test_faults.py",
    "tests/test_reruns.py",
)


class _ByFixtures(LoadFileScheduling):
    """Gives one process all tests that share costly fixtures: those of a file, and of the files of the study."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "study" if file in _STUDY_FILES else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Returns the scheduler of `pytest -n`."""
    return _ByFixtures(config, log)


@pytest.fixture(scope="session")
def finished_smoke(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Returns an undisturbed run of the smoke study, with a checkout of its own; copy it before you change anything."""
    return undisturbed(tmp_path_factory.mktemp("smoke"))
