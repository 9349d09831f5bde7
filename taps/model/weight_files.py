"""The files that hold a model's weights: found in a folder, checked to be whole, and read without running code."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps.plumbing.errors import TapsError

if TYPE_CHECKING:
    import torch

SAFETENSORS, PICKLES = "safetensors", "bin"
WHOLE = "model.safetensors"
PATTERNS = ("model*.safetensors", "model.safetensors.index.json", "pytorch_model*.bin", "pytorch_model.bin.index.json")
"""What to fetch of a repository whose weights are wanted."""

_STEMS = {SAFETENSORS: "model", PICKLES: "pytorch_model"}
_AGAIN = "fetch the model again"


@dataclass(frozen=True, kw_only=True)
class WeightFiles:
    """Where a model's weights are.

    Attributes:
        kind: Their format, SAFETENSORS or PICKLES.
        files: One, or all shards in the order of their names.
    """

    kind: str
    files: tuple[Path, ...]


def find_weights(folder: Path) -> WeightFiles:
    """Returns the weight files of a folder: safetensors before pickles; one file, or shards with an index or without.

    Raises:
        TapsError: there are none, a shard is missing, or an index is broken or names files outside the folder.
    """
    for kind, stem in _STEMS.items():
        index, whole = folder / f"{stem}.{kind}.index.json", folder / f"{stem}.{kind}"
        if index.exists():
            names = sorted(set(read_index(index, suffix=f".{kind}").values()))
        elif whole.exists():
            names = [whole.name]
        else:
            names = _shards_without_index(folder, stem, kind)
        if missing := [name for name in names if not (folder / name).is_file()]:
            raise TapsError(folder, "weights missing", found=", ".join(missing), remedy=_AGAIN)
        if names:
            return WeightFiles(kind=kind, files=tuple(folder / name for name in names))
    expected = "model*.safetensors or pytorch_model*.bin"
    if (folder / "adapter_config.json").exists():
        remedy = "merge the adapter into its base model first"
        raise TapsError(folder, "an adapter, not a model", expected=expected, remedy=remedy)
    raise TapsError(folder, "no weights", expected=expected)


def _shards_without_index(folder: Path, stem: str, kind: str) -> list[str]:
    """Returns the names that a set of shards has, whether all are there or not; none if there is not one."""
    found = [re.fullmatch(rf"{stem}-(\d+)-of-(\d+)\.{kind}", path.name) for path in sorted(folder.iterdir())]
    counts = {match[2]: len(match[1]) for match in found if match}
    if len(counts) > 1:
        raise TapsError(folder, "shards of several sets", found=", ".join(sorted(counts)), remedy=_AGAIN)
    return [
        f"{stem}-{number:0{width}d}-of-{total}.{kind}"
        for total, width in counts.items()
        for number in range(1, int(total) + 1)
    ]


def read_index(path: Path, *, suffix: str = ".safetensors") -> dict[str, str]:
    """Returns weight -> file of an index; files are plain names, so that nothing outside the folder is meant.

    Raises:
        TapsError: not an index, or a name that is a path, hidden, or of another kind of file.
    """
    try:
        weight_map = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
    except (ValueError, KeyError, TypeError):
        weight_map = None
    if not isinstance(weight_map, dict) or not weight_map:
        raise TapsError(path, "not an index of weights", expected='"weight_map": {weight: file}', remedy=_AGAIN)
    for file in weight_map.values():
        if not isinstance(file, str) or not re.fullmatch(rf"[A-Za-z0-9_][\w.-]*{re.escape(suffix)}", file, re.ASCII):
            raise TapsError(path, "names a file that is none", expected=f"a plain name *{suffix}", found=repr(file))
    return weight_map


def tensor_names(path: Path) -> list[str]:
    """Returns the names in a safetensors file, from its header alone.

    Raises:
        TapsError: not a whole safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return list(file.keys())
    except (SafetensorError, OSError) as error:
        raise TapsError(path, f"cannot be read ({_first_line(error)})", remedy=_AGAIN) from None


def index_of(files: Sequence[Path]) -> dict[str, str]:
    """Returns weight -> file name over all safetensors `files`.

    Raises:
        TapsError: a file is broken, or two of them hold one weight.
    """
    found: dict[str, str] = {}
    for path in files:
        for name in tensor_names(path):
            if name in found:
                raise TapsError(path, f"holds {name} too", expected=f"that of {found[name]} alone", remedy=_AGAIN)
            found[name] = path.name
    return found


def num_parameters(files: Sequence[Path]) -> int:
    """Returns the numbers that safetensors `files` hold, from their headers alone."""
    from math import prod

    from safetensors import safe_open

    total = 0
    for path in files:
        with safe_open(path, framework="pt") as file:
            total += sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 (no mapping)
    return total


def read_weights(weights: WeightFiles) -> dict[str, torch.Tensor]:
    """Returns all tensors of a model.

    Raises:
        TapsError: as `read_tensor_file`, or two files hold one weight.
    """
    found: dict[str, torch.Tensor] = {}
    for path, tensors in read_each(weights):
        if twice := sorted(found.keys() & tensors.keys()):
            raise TapsError(path, f"holds {twice[0]}, as another file does", remedy=_AGAIN)
        found |= tensors
    return found


def read_each(weights: WeightFiles) -> Iterator[tuple[Path, dict[str, torch.Tensor]]]:
    """Yields (file, its tensors), one file in memory at a time."""
    for path in weights.files:
        yield path, read_tensor_file(path)


def read_tensor_file(path: Path) -> dict[str, torch.Tensor]:
    """Returns the tensors of a safetensors file or of a pickle; never runs code from it.

    Raises:
        TapsError: the file is truncated, holds anything but tensors by name, or is a pickle that asks for code.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        tensors: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except pickle.UnpicklingError:
        problem = "a pickle that is broken or holds more than tensors, so that code could run; it was not loaded"
        raise TapsError(path, problem, remedy="ask its authors for safetensors") from None
    except (SafetensorError, RuntimeError, EOFError, OSError) as error:
        raise TapsError(path, f"cannot be read ({_first_line(error)})", remedy="download it again") from None
    if not isinstance(tensors, Mapping) or not all(isinstance(value, torch.Tensor) for value in tensors.values()):
        raise TapsError(path, "not a flat table of tensors", expected="name -> tensor", found=type(tensors).__name__)
    return dict(tensors)


def check_finite(where: object, tensors: Mapping[str, torch.Tensor], *, remedy: str) -> None:
    """Checks that no weight is NaN or infinite.

    Raises:
        TapsError: names those that are.
    """
    if broken := [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]:
        raise TapsError(where, f"{few(broken)} is not finite", remedy=remedy)


def few(names: Sequence[str]) -> str:
    """Returns the first names of a list and how many follow: `a, b, c and 7 more`."""
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _is_zip(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"PK"


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
