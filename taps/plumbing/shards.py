"""Work that several jobs share: each does one of N consecutive parts of it, another stage joins them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, TypeVar

from taps.plumbing.errors import TapsError

_T = TypeVar("_T")


def add_shard_flags(parser: argparse.ArgumentParser, *, of: str) -> None:
    """Adds --shard and --num-shards; `of` says what is shared, e.g. `the corpus`."""
    parser.add_argument("--shard", type="count", default=0, help="which of --num-shards parts to compute, from 0")
    parser.add_argument("--num-shards", type="number", default=1, help=f"jobs that share {of} (default: %(default)s)")


def part_label(args: argparse.Namespace) -> dict[str, Any]:
    """Returns {"part": [which, of how many]}, for the provenance of a part; empty if it is the whole."""
    return {"part": [args.shard, args.num_shards]} if args.num_shards > 1 else {}


def own_part(items: Sequence[_T], args: argparse.Namespace) -> Sequence[_T]:
    """Returns the items of this job; parts differ by at most one item and may be empty.

    Raises:
        TapsError: no such part.
    """
    if not 0 <= args.shard < args.num_shards:
        raise TapsError(
            "--shard", "no such part", expected=f"0 to --num-shards - 1 = {args.num_shards - 1}", found=args.shard
        )
    return items[len(items) * args.shard // args.num_shards : len(items) * (args.shard + 1) // args.num_shards]
