"""Progress with ETA on stderr: a bar on a terminal, a line every ten seconds in a log."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

from tqdm import tqdm


def progress(
    items: Iterable[Any] | None = None, *, total: float | None = None, what: str, unit: str, show: bool = True
) -> tqdm:
    """Returns a tqdm bar over `items` (or a manual one: call `.update(n)`), labelled `what`, counting `unit`s."""
    bar = tqdm(
        items,
        total=total,
        desc=what,
        unit=unit,
        disable=not show,
        unit_scale=True,
        dynamic_ncols=True,
        file=sys.stderr,
        mininterval=0.2 if sys.stderr.isatty() else 10.0,
    )
    _shown.add(bar)
    return bar


_shown: WeakSet[tqdm] = WeakSet()


def end_bars() -> None:
    """Ends the lines of all bars that are shown, so that what is printed next has a line of its own."""
    for bar in list(_shown):
        bar.close()
