"""Joins the parts of a corpus's features, computed by several jobs, into one store.

    python -m taps.join_features --shard results/paper/feature_shards/math/0 \\
        --shard results/paper/feature_shards/math/1 --output results/paper/features/math

Files are linked, not copied; the parts stay where they are. The store is the one a single job would have written.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import ArtefactError
from taps.plumbing.folders import atomic_folder, link
from taps.plumbing.provenance import provenance
from taps.plumbing.remedies import rebuild_command

if TYPE_CHECKING:
    from taps.model.feature_store import Manifest


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.join_features", __doc__)
    parser.add_argument(
        "--shard", type=Path, action="append", required=True, help="folder written by taps.features; repeat"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder of the store to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    from taps.model.feature_store import MANIFEST_KIND, PART_KIND, check_shard, read_manifest, write_manifest

    parts = {folder: read_manifest(folder, kind=PART_KIND) for folder in args.shard}
    joined = join(parts)
    for source, part in parts.items():
        for shard in part.shards:  # a broken one is named where it can be made again, and not passed on
            check_shard(source, shard)
    with atomic_folder(args.output) as folder:
        for source, part in parts.items():
            for shard in part.shards:
                link(source / shard.file, folder / shard.file)
        inputs = {name: getattr(joined, name) for name in ("target", "tokens")}
        made_from = provenance(stage="taps.join_features", inputs=inputs)
        write_manifest(folder, joined, kind=MANIFEST_KIND, provenance=made_from)
    print(f"{args.output}: {joined.num_tokens} tokens in {len(joined.shards)} shards from {len(parts)} parts")


def join(parts: dict[Path, Manifest]) -> Manifest:
    """Returns the manifest of all shards of all parts.

    Raises:
        ArtefactError: the parts belong to different features, or their shards do not cover every row once.
    """
    first = next(iter(parts.values()))
    for folder, part in parts.items():
        if replace(part, shards=()) != replace(first, shards=()):
            raise ArtefactError(
                folder,
                "a part of other features",
                expected=f"those of {next(iter(parts))}",
                remedy=rebuild_command(folder),
            )
    shards = sorted((shard for part in parts.values() for shard in part.shards), key=lambda shard: shard.first_row)
    covered = [row for shard in shards for row in shard.row_range]
    if covered != list(range(first.num_rows)):
        missing = len(set(range(first.num_rows)) - set(covered))
        raise ArtefactError(
            "--shard",
            "the parts are not those of one run with --num-shards",
            expected=f"{first.num_rows} rows, each once",
            found=f"{len(covered)} rows, {missing} of the {first.num_rows} missing",
        )
    return replace(first, shards=tuple(shards))


if __name__ == "__main__":
    run(main)
