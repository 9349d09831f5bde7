"""The one exception a user is meant to see: where, what was expected, what was found, and the remedy."""

from __future__ import annotations


class TapsError(Exception):
    """An error that the user can mend; `taps.plumbing.cli.run` prints it as one line and exits with 1.

    Args:
        where: File, config key or flag at fault, e.g. `config.yaml: mixtures.mixed`.
        problem: What is wrong, in a few words.
        expected: What would have been right.
        found: What was there instead.
        remedy: What to do, ideally a command.
    """

    def __init__(
        self,
        where: object,
        problem: str,
        *,
        expected: object = None,
        found: object = None,
        remedy: str | None = None,
    ) -> None:
        parts = [f"{where}: {problem}"]
        if expected is not None:
            parts.append(f"expected {expected}")
        if found is not None:
            parts.append(f"found {found}")
        message = ", ".join(parts) + (f"; {remedy}" if remedy else "")
        super().__init__(" ".join(message.split()))  # one line, whatever line breaks a name or value holds


class ArtefactError(TapsError):
    """A file of ours is missing, truncated, edited, or not what its reader asked for."""
