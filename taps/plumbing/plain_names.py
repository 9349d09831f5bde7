"""Names that a wheel, a repository or an index file gives: they may lead to files below a folder, and nowhere else."""

from __future__ import annotations

import re

from taps.plumbing.errors import TapsError

_PARTS = re.compile(r"[^/\\\0\n\r]+(?:/[^/\\\0\n\r]+)*")


def plain_name(name: object, *, where: object) -> str:
    """Returns a name that is a relative path of ordinary parts, e.g. `data/test.jsonl`.

    Args:
        where: What gave the name, for the error.

    Raises:
        TapsError: no text, absolute, or with `.`, `..`, an empty part, a backslash, NUL or a line break in it.
    """
    if isinstance(name, str) and _PARTS.fullmatch(name) and not {".", ".."} & set(name.split("/")):
        return name
    expected = "a relative path without . and .."
    raise TapsError(where, "names a file that may lie elsewhere", expected=expected, found=repr(name)[:80])
