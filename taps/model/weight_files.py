"""The files that hold a model's weights: found in a folder, checked to be whole, and read without running code."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps.plumbing.errors import TapsError
from taps.plumbing.strangers import read_object, stranger_at

if TYPE_CHECKING:
    import torch

SAFETENSORS, PICKLES = "safetensors", "bin"
WHOLE = "model.safetensors"
PATTERNS = ("model*.safetensors", "model.safetensors.index.json", "pytorch_model*.bin", "pytorch_model.bin.index.json")
"""What to fetch of a repository whose weights are wanted."""

_STEMS = {SAFETENSORS: "model", PICKLES: "pytorch_model"}
_AGAIN = "fetch the model again"
_PLAIN = ("F64", "F32", "F16", "BF16", "float64", "float32", "float16", "bfloat16")


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
    weight_map = read_object(path, remedy=_AGAIN).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise TapsError(path, "not an index of weights", expected='"weight_map": {weight: file}', remedy=_AGAIN)
    for file in weight_map.values():
        if not isinstance(file, str) or not re.fullmatch(rf"[A-Za-z0-9_][\w.-]*{re.escape(suffix)}", file, re.ASCII):
            raise TapsError(path, "names a file that is none", expected=f"a plain name *{suffix}", found=repr(file))
    return weight_map


def _header(path: Path) -> dict[str, tuple[str, list[int]]]:
    """Returns name -> (dtype, e.g. `BF16`, and shape) of the tensors in a safetensors file.

    Raises:
        TapsError: not a whole safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    if path.suffix == ".bin":
        remedy = "make a target of the folder with: python -m taps.prepare_target --source FOLDER"
        raise TapsError(path, "pickled weights", expected="safetensors", remedy=remedy)
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
            return {name: (piece.get_dtype(), piece.get_shape()) for name, piece in slices.items()}
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, _line(error)) from None


def index_of(files: Sequence[Path]) -> dict[str, str]:
    """Returns weight -> file name over all safetensors `files`.

    Raises:
        TapsError: a file is broken, two of them hold one weight, or as `check_plain`.
    """
    found: dict[str, str] = {}
    for path in files:
        for name, (dtype, _) in _header(path).items():
            if name in found:
                raise TapsError(path, f"holds {name} too", expected=f"that of {found[name]} alone", remedy=_AGAIN)
            _check_plain(path, name, dtype)
            found[name] = path.name
    return found


def num_parameters(files: Sequence[Path]) -> int:
    """Returns the numbers that safetensors `files` hold, from their headers alone.

    Raises:
        TapsError: one is no safetensors file, or as `check_plain`.
    """
    from math import prod

    total = 0
    for path in files:
        for name, (dtype, shape) in _header(path).items():
            _check_plain(path, name, dtype)
            total += prod(shape)
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
        raise _unreadable(path, problem, remedy="ask its authors for safetensors") from None
    except (SafetensorError, RuntimeError, EOFError, OSError) as error:
        raise _unreadable(path, _line(error)) from None
    if not isinstance(tensors, Mapping) or not all(isinstance(value, torch.Tensor) for value in tensors.values()):
        raise TapsError(path, "not a flat table of tensors", expected="name -> tensor", found=type(tensors).__name__)
    return dict(tensors)


def check_plain(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Checks that weights are in a floating-point format of their own, with no scale that lies elsewhere.

    Raises:
        TapsError: one is a whole number or of eight bits: the library would take it as it is.
    """
    for name, tensor in tensors.items():
        _check_plain(path, name, str(tensor.dtype).removeprefix("torch."))


def _check_plain(path: Path, name: str, dtype: str) -> None:
    if dtype not in _PLAIN:
        remedy = "take the release in float32, bfloat16 or float16"
        raise TapsError(path, f"{name} is quantised", expected="plain weights", found=dtype, remedy=remedy)


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


def _unreadable(path: Path, problem: str, *, remedy: str = _AGAIN) -> TapsError:
    """Returns the error for a file of weights that is none; torch's own are zip archives or pickles."""
    found = stranger_at(path) if path.is_file() else None
    if found is None or (path.suffix == ".bin" and ("zip" in found[0] or "pickle" in found[0])):
        return TapsError(path, problem, remedy=remedy)
    return TapsError(path, found[0], expected="weights", remedy=found[1])


def _line(error: Exception) -> str:
    text = str(error).strip()
    return f"cannot be read ({text.splitlines()[0] if text else type(error).__name__})"
