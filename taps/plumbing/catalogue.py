"""Catalogues: things that a study names, each defined in a module of one package and found by its name.

Strategies, readers and draft families are catalogued. A module of the package registers its entries when it is
imported, and nothing imports it by name but the catalogue. So an added entry changes the code of no stage, and a rule
counts the code of just the entries that it names: `code_digest("taps.replay", modules=STRATEGIES.modules(names))`.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from taps.plumbing.errors import TapsError

T = TypeVar("T")


def modules_of(package: str) -> list[str]:
    """Returns the dotted names of a package's modules, ascending; imports the package alone, not them."""
    path = importlib.import_module(package).__path__
    return [f"{package}.{name}" for name in sorted(found.name for found in pkgutil.iter_modules(path))]


class Catalogue(Mapping[str, T]):
    """Name -> entry of one package, in the order of their registration within a module, modules by name.

    Args:
        package: Dotted name of the package whose modules define the entries.
        what: An entry, in messages, e.g. `strategy`.
    """

    def __init__(self, package: str, *, what: str) -> None:
        self._package, self._what = package, what
        self._entries: dict[str, tuple[T, str]] = {}
        self._is_loaded = False

    def register(self, name: str, entry: T, *, module: str) -> None:
        """Adds an entry under its name.

        Raises:
            ValueError: the name is taken by another module's entry.
        """
        if name in self._entries and self._entries[name][1] != module:
            raise ValueError(f"{self._what} {name!r} of {module} is already defined in {self._entries[name][1]}")
        self._entries[name] = (entry, module)

    def forget(self, name: str) -> None:
        """Removes an entry, as tests do that have added one."""
        del self._entries[name]

    def find(self, name: str) -> T:
        """Returns the entry of that name.

        Raises:
            TapsError: there is none.
        """
        if name not in self:
            close = difflib.get_close_matches(name, list(self), n=1)
            remedy = f"did you mean {close[0]}?" if close else None
            raise TapsError(f"{self._what} {name!r}", "unknown", expected=f"one of {', '.join(self)}", remedy=remedy)
        return self[name]

    def __getitem__(self, name: str) -> T:
        return self._all()[name][0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def modules(self, names: Iterable[str] | None = None) -> list[str]:
        """Returns the dotted names of the modules that define these entries, or all; each once, ascending."""
        entries = self._all()
        return sorted({entries[name][1] for name in (names if names is not None else entries)})

    def _all(self) -> dict[str, tuple[T, str]]:
        if not self._is_loaded:
            for module in modules_of(self._package):
                importlib.import_module(module)
            self._is_loaded = True
            ordered = sorted(self._entries.items(), key=lambda item: item[1][1])  # whatever was imported first
            self._entries = dict(ordered)
        return self._entries
