"""Folders for other servers: one of our draft models in a flavour of `taps.model.flavours`, read back and checked."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from taps.model.checkpoint import check_fits_target, read_drafter_config, read_drafter_tensors
from taps.model.family import FAMILIES
from taps.model.flavours import convert, validate
from taps.model.target_head import load_target_head, read_config
from taps.plumbing.artefacts import read_tensors
from taps.plumbing.errors import TapsError
from taps.plumbing.lineage import check_made_from

TOKEN_MAP = "token_map.pt"


def export(drafter: Path, target: Path, folder: Path, *, flavour: str, dtype: str | None = None) -> None:
    """Writes model.safetensors and config.json to a folder that is there, and checks what it wrote.

    Args:
        drafter: Folder of the draft model.
        target: Folder of its target.
        folder: Where to write.
        flavour: Key of `taps.model.flavours.FLAVOURS`.
        dtype: Name of a torch dtype; the draft model's own by default.

    Raises:
        TapsError: the draft model is not for this target, or the flavour cannot express it.
    """
    check_made_from(drafter, {"target": target}, kind="drafter")
    config, tensors = read_drafter_config(drafter), read_drafter_tensors(drafter)
    if flavour not in (readable := FAMILIES.find(config.family).flavours):
        remedy = f"expected one of {', '.join(readable)}" if readable else "no server reads this family"
        raise TapsError(f"--flavour {flavour}", f"cannot express the family {config.family}", remedy=remedy)
    ends = load_target_head(target, dtype=tensors["fc.weight"].dtype)
    check_fits_target(drafter, config, ends.config)
    written, content = convert(
        tensors,
        config,
        flavour=flavour,
        embedding=ends.embedding,
        target_config=ends.config,
        dtype=getattr(torch, dtype) if dtype else None,
    )
    save_file(written, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    check(folder, target, flavour=flavour)


def check(folder: Path, target: Path, *, flavour: str) -> None:
    """Checks an exported folder against the rules of a flavour.

    Raises:
        TapsError: a file is missing or broken, or names the first broken rule.
    """
    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "model.safetensors")
    except FileNotFoundError as error:
        raise TapsError(folder, "incomplete", expected="config.json and model.safetensors", found=error) from None
    except (ValueError, SafetensorError) as error:
        raise TapsError(folder, f"cannot be read ({error})") from None
    validate(folder, tensors, content, flavour=flavour, target_config=read_config(target))


def write_token_map(draft_vocab: Path, drafter: Path, target: Path, folder: Path) -> int:
    """Writes the tokens of a draft vocabulary as SGLang's `--speculative-token-map` reads them; returns how many.

    The server takes these rows of the target's head, in this order, as we do.

    Raises:
        TapsError: the draft vocabulary is of another target, or the draft model was trained with another one.
    """
    check_made_from(draft_vocab, {"target": target}, kind="draft_vocab")
    check_made_from(drafter, {"draft_vocab": draft_vocab}, kind="drafter")
    tensors, meta = read_tensors(draft_vocab, kind="draft_vocab")
    if meta["vocab_size"] != (wanted := read_config(target)["vocab_size"]):
        raise TapsError(draft_vocab, "of another target", expected=f"of {wanted} tokens", found=meta["vocab_size"])
    torch.save(tensors["token_ids"], folder / TOKEN_MAP)  # a plain tensor: SGLang reads it with `weights_only`
    return len(tensors["token_ids"])
