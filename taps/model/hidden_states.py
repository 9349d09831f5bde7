"""Which hidden states of the target make up a feature: names for them, and how several lie side by side.

    final      the last one, after the final norm, from which the head makes logits
    3, -3      the one that decoder layer 3 reads, counted from the first layer (0: the embeddings) or behind the last
    middle     the one that layer n // 2 of n reads

A draft family names those that it reads (`taps.model.family`). What is recorded holds `final` first, since logits and
losses come from it, then what families of the study read beside it; so a feature is [h] times the number of names.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from taps.plumbing.errors import TapsError

if TYPE_CHECKING:
    import torch

FINAL, MIDDLE = "final", "middle"


def recorded(reads: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Returns what is recorded for draft models that read these: each name once, `final` first."""
    return tuple(dict.fromkeys([FINAL, *(name for names in reads for name in names)]))


def add_flag(parser: argparse.ArgumentParser) -> None:
    """Adds --hidden-state, which names what a stage records beside the final state."""
    parser.add_argument(
        "--hidden-state",
        action="append",
        default=[],
        metavar="NAME",
        help="recorded beside the final one: middle, or a layer's number; repeat",
    )


def held(args: argparse.Namespace) -> tuple[str, ...]:
    """Returns what a stage with this flag records."""
    return recorded([args.hidden_state])


def layer_of(name: str, num_layers: int) -> int:
    """Returns the decoder layer that reads a hidden state other than `final`, counted from 0.

    Raises:
        TapsError: no such name, or the target has no such layer.
    """
    if name != MIDDLE and not re.fullmatch(r"-?\d+", name):
        raise TapsError(f"hidden state {name!r}", "unknown", expected=f"{FINAL}, {MIDDLE}, or the number of a layer")
    layer = num_layers // 2 if name == MIDDLE else int(name)
    if not -num_layers <= layer < num_layers:
        raise TapsError(f"hidden state {name}", "the target has no such layer", expected=f"one of {num_layers}")
    return layer % num_layers


def select(features: torch.Tensor, have: Sequence[str], wanted: Sequence[str]) -> torch.Tensor:
    """Returns [..., h * len(wanted)]: the columns of some hidden states; `features` itself where it is those already.

    Args:
        features: [..., h * len(have)] as recorded.
        have: What they hold, in order.
        wanted: What to take, in order.

    Raises:
        TapsError: they do not hold one of these.
    """
    if tuple(have) == tuple(wanted):
        return features
    check_hold("features", have, wanted)
    parts = features.chunk(len(have), dim=-1)
    found = [parts[list(have).index(name)] for name in wanted]
    if len(found) == 1:
        return found[0]
    import torch

    return torch.cat(found, dim=-1)


def check_hold(where: object, have: Sequence[str], wanted: Sequence[str]) -> None:
    """Checks that recorded features hold what a draft model reads.

    Raises:
        TapsError: they lack some of it.
    """
    if missing := [name for name in wanted if name not in have]:
        raise TapsError(
            where,
            f"lack hidden states that the draft model reads: {', '.join(missing)}",
            expected=", ".join(wanted),
            found=", ".join(have),
            remedy="record them with --hidden-state, once for each",
        )
