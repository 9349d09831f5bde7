"""Draft models on disk: official EAGLE tensor names in one safetensors file beside a config.json, loaded strictly."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from taps.model.config_keys import check_head
from taps.model.drafter import DrafterConfig, DraftModel
from taps.model.family import new_drafter
from taps.model.weight_files import check_finite, check_plain
from taps.plumbing.artefacts import write_json
from taps.plumbing.atomic import atomic_path, write_text
from taps.plumbing.errors import ArtefactError, TapsError
from taps.plumbing.folder_records import check_folder
from taps.plumbing.remedies import rebuild_command

WEIGHTS, CONFIG, PROVENANCE = "model.safetensors", "config.json", "provenance.json"


def expected_shapes(config: DrafterConfig) -> dict[str, tuple[int, ...]]:
    """Returns name -> shape of every tensor that a draft model of this shape has."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in new_drafter(config).state_dict().items()}


def check_tensors(where: Path, tensors: Mapping[str, torch.Tensor], config: DrafterConfig) -> None:
    """Checks names, shapes and dtypes.

    Raises:
        TapsError: a tensor is missing, unexpected, of another shape, or quantised.
    """
    expected = expected_shapes(config)
    if missing := sorted(set(expected) - set(tensors)):
        raise TapsError(where, f"lacks {', '.join(missing)}", expected=f"{len(expected)} tensors")
    if unexpected := sorted(set(tensors) - set(expected)):
        hint = 'set "bias": true in its config.json if fc has a bias' if "fc.bias" in unexpected else None
        raise TapsError(where, f"has the unexpected tensor {', '.join(unexpected)}", remedy=hint)
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != shape:
            raise TapsError(where, f"{name} has a wrong shape", expected=shape, found=tuple(tensors[name].shape))
    check_plain(where, tensors)


def read_drafter_config(folder: Path) -> DrafterConfig:
    """Returns the shape recorded in a draft model's folder.

    Raises:
        ArtefactError: no readable config.json, or not the one that `save_drafter` wrote.
        TapsError: it asks for another model than ours, see `check_head`.
    """
    path = Path(folder) / CONFIG
    check_folder(folder, kind="drafter", names=[CONFIG])
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtefactError(path, "missing", remedy=rebuild_command(folder, "drafter")) from None
    except (ValueError, RecursionError) as error:
        raise ArtefactError(path, f"not JSON ({error})", remedy=rebuild_command(folder, "drafter")) from None
    return head_config(path, content)


def head_config(where: object, content: Any) -> DrafterConfig:
    """Returns the shape that a draft model's config.json describes.

    Raises:
        TapsError: it is no JSON object, or asks for another model than ours, see `check_head`.
    """
    if not isinstance(content, Mapping):
        raise TapsError(where, "not the config.json of a model", expected="an object", found=type(content).__name__)
    check_head(where, content)
    return DrafterConfig.from_json(content, where=where)


def read_drafter_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Returns the tensors of a draft model's folder, checked against its config.json and, if it has one, its record.

    Raises:
        TapsError: as `check_tensors`, or the file is missing, truncated, or changed since `save_drafter` wrote it.
    """
    path = Path(folder) / WEIGHTS
    check_folder(folder, kind="drafter", names=[WEIGHTS])
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except FileNotFoundError:
        raise ArtefactError(path, "missing", remedy=rebuild_command(folder, "drafter")) from None
    except SafetensorError as error:
        raise ArtefactError(path, f"cannot be read ({error})", remedy=rebuild_command(folder, "drafter")) from None
    check_tensors(path, tensors, read_drafter_config(folder))
    return tensors


def load_drafter(
    folder: Path,
    *,
    target_config: Mapping[str, Any] | None = None,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> DraftModel:
    """Returns a draft model in evaluation mode.

    Args:
        folder: Written by `save_drafter` or `taps.import_draft`.
        target_config: The target's config.json; its shape must fit.

    Raises:
        TapsError: as `read_drafter_tensors`, or the draft model belongs to another target.
    """
    config = read_drafter_config(folder)
    if target_config is not None:
        check_fits_target(Path(folder), config, target_config)
    model = new_drafter(config)
    model.load_state_dict(read_drafter_tensors(folder), strict=True)
    return model.to(device=device, dtype=dtype).eval()


def check_fits_target(where: Path, config: DrafterConfig, target_config: Mapping[str, Any]) -> None:
    """Checks that a draft model's features and vocabulary are the target's; its positions are its own affair.

    Raises:
        TapsError: hidden size or vocabulary differ.
    """
    for name in ("hidden_size", "vocab_size"):
        if getattr(config, name) != target_config.get(name):
            found = getattr(config, name)
            raise TapsError(where, f"drafts for another target: {name}", expected=target_config.get(name), found=found)


def save_drafter(
    folder: Path, tensors: Mapping[str, torch.Tensor], config: DrafterConfig, *, provenance: Mapping[str, Any]
) -> None:
    """Writes weights, config.json and provenance.json of a draft model, each atomically, the weights last.

    Raises:
        TapsError: the tensors are not those of `config`, or not finite.
    """
    folder = Path(folder)
    check_tensors(folder, tensors, config)
    check_finite(folder, tensors, remedy="lower the learning rate")
    text = json.dumps(config.to_json(), indent=1) + "\n"
    blob = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    files = {CONFIG: hashlib.sha256(text.encode()).hexdigest(), WEIGHTS: hashlib.sha256(blob).hexdigest()}
    write_text(folder / CONFIG, text)
    write_json(folder / PROVENANCE, {"files": files}, kind="drafter", provenance=provenance)
    with atomic_path(folder / WEIGHTS) as temporary:
        temporary.write_bytes(blob)
