"""What belongs together: every artefact names its causes by digest, and whoever reads several compares them.

Causes are `provenance.inputs`. An artefact that names no such cause was written by hand, and is not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from taps.plumbing.errors import ArtefactError
from taps.plumbing.provenance import digest_of, provenance_of
from taps.plumbing.remedies import rebuild_command


def inputs_of(path: Path, *, kind: str) -> dict[str, str]:
    """Returns name -> digest of what an artefact was made from.

    Raises:
        ArtefactError: as the reader of its kind.
    """
    return dict(provenance_of(path, kind=kind).get("inputs", {}))


def check_made_from(path: Path, causes: Mapping[str, Path | None], *, kind: str) -> None:
    """Checks that an artefact was made from the very inputs at hand.

    Args:
        path: Where the artefact lies.
        causes: Name among its inputs -> where that input lies; None is left out.
        kind: What the artefact is, e.g. `trace`.

    Raises:
        ArtefactError: it was made from another one.
    """
    named = inputs_of(path, kind=kind)
    for name, cause in causes.items():
        if cause is not None and name in named:
            check_equal(path, name, named[name], digest_of(cause), wanted_by=cause, kind=kind)


def check_equal(path: Path, name: str, found: str | None, wanted: str | None, *, wanted_by: object, kind: str) -> None:
    """Checks that an artefact's cause is the wanted one, where both are known.

    Args:
        path: Where the artefact lies.
        name: Of the cause, e.g. `target`.
        found: Digest that the artefact names.
        wanted: Digest that it should name.
        wanted_by: What names that, for the message.
        kind: What the artefact is, e.g. `trace`.

    Raises:
        ArtefactError: they differ.
    """
    if found is not None and wanted is not None and found != wanted:
        raise ArtefactError(
            path,
            f"made from another {name}",
            expected=f"{wanted[:12]} ({wanted_by})",
            found=found[:12],
            remedy=rebuild_command(path, kind),
        )


def common_cause(artefacts: Iterable[tuple[Path, str]], name: str) -> dict[str, str]:
    """Returns {name: digest} of the cause that all artefacts share, empty if none of them names one.

    Args:
        artefacts: (path, kind) of each.
        name: Of the cause, e.g. `target`.

    Raises:
        ArtefactError: two of them name different ones.
    """
    first: tuple[Path, str] | None = None
    for path, kind in artefacts:
        if (digest := inputs_of(path, kind=kind).get(name)) is None:
            continue
        if first is not None:
            check_equal(path, name, digest, first[1], wanted_by=first[0], kind=kind)
        first = first or (path, digest)
    return {name: first[1]} if first else {}


def check_fitted_for(path: Path, drafters: Mapping[str, str | None], *, kind: str) -> None:
    """Checks that what was fitted to draft models was fitted to those at hand.

    Args:
        path: Where the artefact lies.
        drafters: Name -> digest of the draft model at hand, None where it is not known.
        kind: What the artefact is, e.g. `calibration`.

    Raises:
        ArtefactError: it was fitted to another draft model of that name.
    """
    fitted_to = inputs_of(path, kind=kind)
    for name, digest in drafters.items():
        found = fitted_to.get(f"drafter.{name}")
        check_equal(path, f"drafter {name}", found, digest, wanted_by="the one at hand", kind=kind)


def labels_of(path: Path, *names: str, kind: str) -> dict[str, Any]:
    """Returns name -> label of those that an artefact carries in its provenance, e.g. the benchmark of a trace."""
    made = provenance_of(path, kind=kind)
    return {name: made[name] for name in names if name in made}


def common_labels(artefacts: Sequence[tuple[Path, str]], *names: str) -> dict[str, Any]:
    """Returns name -> label of those that all artefacts, (path, kind) each, carry alike."""
    first, *others = [labels_of(path, *names, kind=kind) for path, kind in artefacts]
    return {name: label for name, label in first.items() if all(other.get(name) == label for other in others)}


def check_label(path: Path, name: str, found: object, wanted: object, *, flag: str) -> None:
    """Checks that an artefact is what a flag calls it, where it says what it is.

    Args:
        path: Where the artefact lies.
        name: What is labelled, e.g. `benchmark`.
        found: What the artefact says, None for nothing.
        wanted: What the flag says.
        flag: The flag's name, for the message.

    Raises:
        ArtefactError: it says that it is another.
    """
    if found is not None and found != wanted:
        raise ArtefactError(path, f"of another {name.replace('_', ' ')} than {flag} says", expected=wanted, found=found)
