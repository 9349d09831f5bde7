"""A hash of the code that a stage can reach: an edited formula reruns the stages that use it, an edited comment none.

Snakemake sees only the shell line `python -m taps.x`, which an edit of the package leaves unchanged; each rule
therefore carries `params: code=code_digest("taps.x")`.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_PACKAGE = "taps"
_COMMAND_LINE_WORDS = ("help", "metavar", "description", "epilog")
_PRINTED_WORDS = ("title", "look")


def code_digest(module: str, *, modules: Iterable[str] = (), printed: bool = False) -> str:
    """Returns 16 hex digits over `module` and everything of this package that it imports, directly or not.

    Words for people do not count: docstrings, comments, layout, the texts of a command line (`help` and the like), and
    what a decorator says for print (`title`, `look`). The hash covers `ast.unparse` of what is left of each syntax
    tree. Imports inside functions count. So do the data files that modules read (templates, published numbers): those
    in the folder of a package, and those below a file or folder beside a module that the module names. Nothing is
    imported or run.

    Args:
        modules: What the module finds by name in catalogues (`taps.plumbing.catalogue`), which no import shows.
        printed: Whether what decorators say for print counts, as it must for stages that print.
    """
    digest = hashlib.sha256()
    for name in sorted(set.union(*map(import_closure, {module, *modules}))):
        digest.update(f"{name}\n{_read(name, printed)[0]}\n".encode())
        for path in _data_files(name):
            digest.update(f"{path.relative_to(_root())}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def import_closure(module: str) -> set[str]:
    """Returns the modules of this package that `module` reaches through imports, itself included.

    Raises:
        ModuleNotFoundError: `module` is not a file of this package.
    """
    if _file(module) is None:
        raise ModuleNotFoundError(f"no module {module} beside {__file__}", name=module)
    reached: set[str] = set()
    pending = [module]
    while pending:
        if (name := pending.pop()) not in reached:
            reached.add(name)
            pending += _read(name, False)[1]
    return reached


@cache
def _read(module: str, printed: bool) -> tuple[str, tuple[str, ...]]:
    """Returns (code without docstrings, modules of this package imported by it, their parent packages included)."""
    path = _file(module)
    assert path is not None
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    imported = {found for node in ast.walk(tree) for name in _names(node, module, path) if (found := _resolve(name))}
    parents = {parent for name in imported | {module} for parent in _parents(name)}
    return ast.unparse(_without_words(tree, printed)), tuple(sorted((imported | parents) - {module}))


@cache
def _data_files(module: str) -> list[Path]:
    """Returns the files, other than modules and their documentation, that a module of this package reads."""
    path = _file(module)
    assert path is not None
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    beside = {found.name: found for found in path.parent.iterdir()}
    named = [beside[word] for word in words & beside.keys() if not (beside[word] / "__init__.py").exists()]
    found = {file for path in named for file in (path, *path.rglob("*"))}
    found |= set(beside.values()) if path.name == "__init__.py" else set()
    files = [file for file in found if file.is_file() and file.suffix not in (".py", ".pyc")]
    return sorted(file for file in files if file.name != "README.md")


def _names(node: ast.AST, module: str, path: Path) -> list[str]:
    """Returns the dotted names that an import statement may load; `from a import b` may mean a.b or b of a."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
        base = ".".join([*package[: len(package) - node.level + 1], *([node.module] if node.module else [])])
    return [base, *(f"{base}.{alias.name}" for alias in node.names)]


def _resolve(name: str) -> str | None:
    """Returns `name` if it is a module of this package, else None."""
    return name if name.split(".")[0] == _PACKAGE and _file(name) is not None else None


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


@cache
def _file(module: str) -> Path | None:
    """Returns the source file of a module of this package, or None."""
    root = _root()
    path = root.joinpath(*module.split(".")[1:])
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if path != root and candidate.exists():
            return candidate
    return root / "__init__.py" if path == root else None


@cache
def _root() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _without_words(tree: ast.Module, printed: bool) -> ast.Module:
    """Returns the tree without what only people read; what decorators say for print stays if `printed`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg not in _COMMAND_LINE_WORDS]
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not printed:
            for call in node.decorator_list:
                if isinstance(call, ast.Call):
                    call.keywords = [keyword for keyword in call.keywords if keyword.arg not in _PRINTED_WORDS]
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and _has_docstring(
            node
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def _has_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    first = node.body[0] if node.body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
