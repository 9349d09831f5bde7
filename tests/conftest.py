"""What several test files share: how they spread over processes, and one finished smoke study."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadFileScheduling

from taps.faults import Reference, undisturbed

if TYPE_CHECKING:
    from tests.support.artefact_studies import Study

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: the processes share the cores
os.environ["TAPS_SNAKEMAKE_OPTIONS"] = ""  # stages run as the workflow's jobs do: remedies name its commands

_TOGETHER = {  # files whose tests share a costly fixture -> what they share
    "tests/workflow/test_additions.py": "finished study",
    "tests/stages/test_decoding_speed.py": "finished study",
    "tests/workflow/test_faults.py": "finished study",
    "tests/workflow/test_reruns.py": "finished study",
    "tests/whole/test_damage.py": "two studies",
    "tests/whole/test_modes.py": "two studies",
    "tests/plumbing/test_lineage.py": "two studies",
}


class _ByFixtures(LoadFileScheduling):
    """Gives one process all tests that share costly fixtures: those of a file, and of files that go together."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return _TOGETHER.get(file, file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Returns the scheduler of `pytest -n`."""
    return _ByFixtures(config, log)


@pytest.fixture(scope="session")
def finished_smoke(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Returns an undisturbed run of the smoke study, with a checkout of its own; copy it before you change anything."""
    return undisturbed(tmp_path_factory.mktemp("smoke"))


@pytest.fixture(scope="session")
def studies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Study]:
    """Returns two studies in miniature that share nothing; leave them as they are."""
    from tests.support.artefact_studies import Study

    folder = tmp_path_factory.mktemp("studies")
    return Study(folder / "a", seed=0), Study(folder / "b", seed=5)
