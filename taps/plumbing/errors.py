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


def first_words(error: Exception) -> str:
    """Returns the first line of a library's complaint, with its kind where the words alone do not tell."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if len(lines) > 1 and lines[0].endswith(":"):
        return f"{lines[0]} {lines[1]}"
    return lines[0] if isinstance(error, ValueError | ImportError) else f"{type(error).__name__}: {lines[0]}"
