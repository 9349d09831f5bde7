"""Everything that a study leaves can be read by others, as far as the umask lets them, whatever library wrote it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from taps.plumbing.kinds import KINDS
from tests.support.artefact_studies import UNREAD, USES, Study


@pytest.mark.slow
def test_every_artefact_of_a_study_can_be_read_by_others(studies: tuple[Study, Study]) -> None:
    folder = studies[0].folder
    modes = {
        path.relative_to(folder): stat.S_IMODE(path.stat().st_mode)
        for path in [Path(parent, name) for parent, folders, files in os.walk(folder) for name in (*folders, *files)]
    }
    os.umask(mask := os.umask(0o022))
    named = {Path(use.path.format(shard="shard-00001-of-00006.safetensors")): use.kind for use in USES}
    assert named.keys() <= modes.keys()
    assert {*named.values(), *UNREAD} == set(KINDS)
    wrong = {
        str(path): oct(mode)
        for path, mode in modes.items()
        if mode != (0o755 if (folder / path).is_dir() else 0o644) & ~mask
    }
    assert wrong == {}
