"""Imports go one way, from stages down to plumbing, and no stage imports another (LAYERS below)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from taps.plumbing.code_digest import import_closure

PACKAGE = Path(__file__).parents[2] / "taps"
LAYERS = {
    "plumbing": 0,
    "published": 1,
    "data": 1,
    "model": 2,
    "decoding": 3,
    "study": 4,
    "measuring": 4,
    "analysis": 5,
}
STAGE = 6
MODULES = sorted(".".join(("taps", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in PACKAGE.rglob("*.py"))


def layer(module: str) -> int:
    """Returns how high a module stands; `taps` itself, which holds the version only, below all."""
    parts = module.removesuffix(".__init__").split(".")
    if len(parts) == 1:
        return -1
    return LAYERS.get(parts[1], STAGE)


def imports(module: str) -> set[str]:
    """Returns the modules of the package that a module's import statements name, those inside functions included."""
    tree = ast.parse((PACKAGE.parent / Path(*module.split("."))).with_suffix(".py").read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            names.add(node.module or "")
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if f"{name}" in MODULES or f"{name}.__init__" in MODULES} - {"taps"}


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_one_way(module: str) -> None:
    own = layer(module)
    for other in imports(module):
        same_package = module.split(".")[:2] == other.split(".")[:2]
        allowed = layer(other) < own or (same_package and own < STAGE)
        assert allowed, f"{module} imports {other}, which stands {'as high' if layer(other) == own else 'higher'}"


def test_every_package_has_a_layer() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages == set(LAYERS)


@pytest.mark.parametrize(
    "stage", ["taps.train", "taps.cost", "taps.calibrate", "taps.bank", "taps.trace", "taps.features"]
)
def test_no_strategy_but_single_is_in_the_code_of_stages_that_choose_nothing(stage: str) -> None:
    strategies = {name for name in import_closure(stage) if name.startswith("taps.decoding.strategies.")}
    assert strategies <= {"taps.decoding.strategies.single"}


@pytest.mark.parametrize(
    "stage", ["taps.replay", "taps.live_check", "taps.decode", "taps.tables", "taps.figures", "taps.page"]
)
def test_strategies_are_found_by_name_not_imported(stage: str) -> None:
    strategies = {name for name in import_closure(stage) if name.startswith("taps.decoding.strategies.")}
    assert strategies <= {"taps.decoding.strategies.single"}
