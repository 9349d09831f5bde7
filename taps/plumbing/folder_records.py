"""Folders that are made as a whole: a record in them lists their files with hashes, readers check what they take.

The record is a JSON artefact whose content has `files`: name -> sha256. A reader asks for a file by name and gets its
path once its hash is the listed one; a file that the record does not list is none of the folder's.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from taps.plumbing.artefacts import read_json
from taps.plumbing.envelopes import changed, missing
from taps.plumbing.errors import ArtefactError
from taps.plumbing.folders import visible_files
from taps.plumbing.hashes import sha256_of_all
from taps.plumbing.kinds import KINDS
from taps.plumbing.remedies import rebuild_command


def hashes_of(folder: Path, names: Iterable[str] | None = None) -> dict[str, str]:
    """Returns name -> sha256 of files of a folder, all of its own by default, by name."""
    names = sorted(names if names is not None else (file.name for file in folder.iterdir() if file.is_file()))
    return dict(zip(names, sha256_of_all([folder / name for name in names]), strict=True))


def check_folder(folder: Path, *, kind: str, names: Iterable[str] | None = None, without: str = "\0") -> None:
    """Checks files of a folder against its record; a folder without a record is not of our making and passes.

    Args:
        folder: E.g. a target or a draft model.
        kind: What it is, as its record names it.
        names: Files that will be read. By default all that are listed, and then no other file may lie there.
        without: Suffix of files to pass over, e.g. of weights where only a tokenizer is read.

    Raises:
        ArtefactError: as `check_hashes`, or the record is broken.
    """
    folder, record = Path(folder), KINDS[kind].record
    if not os.path.lexists(folder / record):
        return
    listed: dict[str, str] = read_json(folder / record, kind=kind)["files"]
    if names is None:
        visible = {file.name for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")}
        names = {*listed, *visible} - {record}
    check_hashes(folder, listed, kind=kind, names=[name for name in names if not name.endswith(without)])


def check_hashes(folder: Path, listed: Mapping[str, str], *, kind: str, names: Iterable[str] | None = None) -> None:
    """Checks files of a folder against the hashes in its record.

    Args:
        folder: Where they lie.
        listed: `files` of the record.
        kind: Of the folder, for the remedy.
        names: Those that will be read; all that are listed by default.

    Raises:
        ArtefactError: one is not listed, missing, or changed since the record was written.
    """
    wanted = sorted(listed if names is None else names)
    for name in wanted:
        if name not in listed:
            raise ArtefactError(folder / name, "not in the folder's record", remedy=rebuild_command(folder, kind))
        if not (folder / name).is_file():
            raise missing(folder, kind, file=folder / name)
    for name, digest in zip(wanted, sha256_of_all([folder / name for name in wanted]), strict=True):
        if digest != listed[name]:
            raise changed(folder / name, kind)


def listing_digest(folder: Path) -> str:
    """Returns the sha256 of a folder's sorted listing, a line `<sha256>  <name>` for each of its visible files."""
    names = sorted(file.relative_to(folder).as_posix() for file in visible_files(folder))
    hashes = sha256_of_all([folder / name for name in names])
    listing = "".join(f"{digest}  {name}\n" for digest, name in zip(hashes, names, strict=True))
    return hashlib.sha256(os.fsencode(listing)).hexdigest()  # names are bytes, and need not be UTF-8
