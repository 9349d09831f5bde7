"""Folders go to the Hub whole, to a repository that is new or may be written to, with the environment's token only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taps.data.uploads import check_upload
from taps.plumbing.errors import TapsError
from tests.support.fake_hub import REVISION, FakeHub, serving

FILES = {"README.md": b"a card", "config.json": b"{}", "model.safetensors": bytes(range(256)) * 40}
CODE = """
import json, sys
from pathlib import Path
from taps.data.uploads import upload_folder
from taps.plumbing.cli import run
run(lambda: print(upload_folder(Path(sys.argv[1]), sys.argv[2], **json.loads(sys.argv[3]))))
"""


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with serving(FakeHub({})) as hub:
        yield hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "exported"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    return folder


def upload(
    hub: FakeHub, folder: Path, repo: str, *, public: bool = False, replace: bool = False
) -> subprocess.CompletedProcess[str]:
    """Runs an upload in a process of its own: the library reads its address when it is imported."""
    command = [sys.executable, "-c", CODE, str(folder), repo, json.dumps({"public": public, "replace": replace})]
    environment = {**os.environ, **hub.environment(folder.parent)}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("public", [False, True])
def test_a_folder_becomes_a_repository(hub, folder, public):
    done = upload(hub, folder, "me/new", public=public)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{hub.url}/me/new/commit/{REVISION}"
    assert hub.uploaded == {"me/new": FILES}
    assert hub.private == (set() if public else {"me/new"})
    assert hub.tokens == {"Bearer hf_secret"}


def test_a_repository_that_is_there_is_written_to_only_if_told(hub, folder):
    hub.uploaded["me/old"] = {"README.md": b"theirs"}
    done = upload(hub, folder, "me/old")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: --push-to-hub me/old: there already; ")
    assert hub.uploaded["me/old"] == {"README.md": b"theirs"}
    assert upload(hub, folder, "me/old", replace=True).returncode == 0
    assert hub.uploaded["me/old"] == FILES


def test_what_the_hub_refuses_is_one_line_without_the_token(hub, folder):
    done = upload(hub, folder, "other/toy")
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "--push-to-hub other/toy: the Hub refused, found" in line
    assert "Traceback" not in done.stderr
    assert "hf_secret" not in done.stderr


def test_without_a_token_nothing_is_asked(monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(TapsError, match=r"--push-to-hub me/new: no token in the environment; .*HF_TOKEN"):
        check_upload("me/new")
    with pytest.raises(TapsError, match="--push-to-hub toy: not a Hub repository"):
        check_upload("toy")
