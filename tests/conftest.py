"""What several test files share: one finished smoke study."""

from __future__ import annotations

import pytest

from tests.faults import Reference, undisturbed


@pytest.fixture(scope="session")
def finished_smoke(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """Returns an undisturbed run of the smoke study, with a checkout of its own; copy it before you change anything."""
    return undisturbed(tmp_path_factory.mktemp("smoke"))
