"""The models that live decoding needs, and the flags that name them; shared by the stages decode, cost and live_check.

Imports torch and transformers only when the models are loaded.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from taps.plumbing.cli import NAMED_PATHS, by_name
from taps.plumbing.lineage import check_made_from

if TYPE_CHECKING:
    from taps.decoding.live_drafter import LiveDrafter
    from taps.model.target import Target


def add_model_flags(parser: argparse.ArgumentParser, *, with_trees: bool = True) -> None:
    """Adds --target, --drafter and what shapes and places them.

    Args:
        with_trees: Whether to add --depth and --top-k; else the caller sets these arguments before `load_models`.
    """
    parser.add_argument("--target", type=Path, required=True, help="folder of the target model")
    parser.add_argument(
        "--drafter", **NAMED_PATHS, required=True, metavar="NAME=DIR", help="folder of a draft model; once per drafter"
    )
    parser.add_argument("--draft-vocab", type=Path, help="draft over these tokens only")
    parser.add_argument(
        "--num-draft-tokens", type="nodes", default=40, help="nodes of one drafter's tree (default: %(default)s)"
    )
    if with_trees:
        parser.add_argument(
            "--depth", type="depth", default=5, help="expansions after the tree's first level (default: %(default)s)"
        )
        parser.add_argument(
            "--top-k",
            type="number",
            default=8,
            help="children per node, and nodes expanded per level (default: %(default)s)",
        )
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="compute dtype")
    parser.add_argument("--device", default="cpu", help="torch device (default: %(default)s)")
    parser.add_argument("--trust-remote-code", action="store_true", help="run code shipped with the target")


def load_models(args: argparse.Namespace) -> tuple[Target, dict[str, LiveDrafter]]:
    """Returns the target and the drafters by name, from the flags of `add_model_flags`.

    Raises:
        TapsError: a name is given twice, a folder is not what it should be, or something is of another target.
    """
    import torch

    from taps.decoding.live_drafter import LiveDrafter
    from taps.model.checkpoint import load_drafter
    from taps.model.family import features_read_by
    from taps.model.hidden_states import recorded
    from taps.model.packing import pack_for_decoding, pack_head
    from taps.model.target import load_target
    from taps.model.target_head import load_target_head

    folders = by_name(args.drafter, "--drafter")
    parts = [(folder, "drafter") for folder in folders.values()]
    for path, kind in [*parts, *([(args.draft_vocab, "draft_vocab")] if args.draft_vocab else [])]:
        check_made_from(path, {"target": args.target}, kind=kind)
    place = {"dtype": getattr(torch, args.dtype), "device": args.device}
    head = load_target_head(args.target, draft_vocab=args.draft_vocab, **place)
    models = {name: load_drafter(path, target_config=head.config, **place) for name, path in folders.items()}
    for model in models.values():
        pack_for_decoding(model)
    head = pack_head(head)
    target = load_target(
        args.target,
        trust_remote_code=args.trust_remote_code,
        for_decoding=True,
        hidden_states=recorded(features_read_by(model.config) for model in models.values()),
        **place,
    )
    return target, {
        name: LiveDrafter(model, head, depth=args.depth, top_k=args.top_k, told=target.hidden_states)
        for name, model in models.items()
    }


def model_inputs(args: argparse.Namespace) -> dict[str, Path]:
    """Returns what the flags of `add_model_flags` read, for `provenance`."""
    drafters = {f"drafter.{name}": folder for name, folder in args.drafter}
    return {"target": args.target, **drafters, **({"draft_vocab": args.draft_vocab} if args.draft_vocab else {})}
