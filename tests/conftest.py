"""What several test files share: how they spread over processes, and one finished smoke study."""

from __future__ import annotations

import os

import pytest

from tests.faults import Reference, undisturbed

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: the processes share the cores


@pytest.hookimpl(tryfirst=True)  # before the plugin reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps together what shares costly fixtures: a file's tests, and all tests that look at the finished study."""
    for item in items:
        shares_study = "finished_smoke" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("smoke" if shares_study else item.path.stem))


@pytest.fixture(scope="session")
def finished_smoke(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Returns an undisturbed run of the smoke study, with a checkout of its own; copy it before you change anything."""
    return undisturbed(tmp_path_factory.mktemp("smoke"))
