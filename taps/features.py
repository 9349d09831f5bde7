"""Computes the target's features of a corpus, once: the hidden states of every token that draft models read.

    python -m taps.features --target results/laptop/target --tokens results/laptop/tokens/math.safetensors \\
        --dtype float32 --output results/laptop/features/math

Without --hidden-state that is the last one, after the final norm. Features are bfloat16 on disk, about 2 x hidden bytes
per token and hidden state; the need is printed first and refused if the disk has less. Finished shards gather in a
hidden folder beside the output, so a run that was killed goes on where it was. `--shard I --num-shards N` computes the
I-th of N parts; `python -m taps.join_features` makes one store of them, whose bytes are those of a single job: neither
shards nor batches depend on N.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps.model.hidden_states import add_flag, held
from taps.plumbing.artefacts import read_tensors
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.lineage import check_made_from
from taps.plumbing.progress import progress
from taps.plumbing.provenance import digests_of, provenance
from taps.plumbing.shards import add_shard_flags, own_part

if TYPE_CHECKING:
    import torch

    from taps.model.feature_store import Manifest, Shard
    from taps.model.target import Target
    from taps.model.target_head import TargetHead


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.features", __doc__)
    parser.add_argument("--target", type=Path, required=True, help="folder of the target model")
    parser.add_argument("--tokens", type=Path, required=True, help="tokens written by taps.tokenise")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="compute dtype")
    parser.add_argument("--device", default="cpu", help="torch device (default: %(default)s)")
    parser.add_argument(
        "--batch-tokens", type="number", help="tokens per forward pass (default: 512 on a CPU, else 16384)"
    )
    parser.add_argument("--shard-tokens", type="number", default=32768, help="tokens per file (default: %(default)s)")
    add_flag(parser)
    parser.add_argument("--check-rows", type="count", default=2, help="rows per file whose logits are compared")
    add_shard_flags(parser, of="the corpus")
    parser.add_argument("--trust-remote-code", action="store_true", help="run code shipped with the model")
    parser.add_argument("--output", type=Path, required=True, help="folder to write: a store, or one part of it")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    args.batch_tokens = args.batch_tokens or (512 if args.device == "cpu" else 16384)  # of the cache, of the device
    from taps.model.feature_store import MANIFEST_KIND, PART_KIND, finished_shard, plan_shards, write_manifest

    rows, manifest, where = read_rows(args)
    planned = plan_shards([len(row) for row in rows], args.shard_tokens)
    mine = own_part(planned, args)
    partial = reopen(args.output)
    done = {shard.file: finished_shard(partial, shard, manifest=manifest) for shard in mine}
    missing = [shard for shard in mine if done[shard.file] is None]
    check_disk(args.output, replace(manifest, shards=tuple(missing)), num_finished=len(mine) - len(missing))
    start = time.perf_counter()
    for shard in compute_shards(args, partial, missing, rows, manifest, where):
        done[shard.file] = shard
    seconds = time.perf_counter() - start
    finished = replace(manifest, shards=tuple(shard for shard in done.values() if shard is not None))
    kind = MANIFEST_KIND if args.num_shards == 1 else PART_KIND
    write_manifest(partial, finished, kind=kind, provenance=where)
    publish(partial, args.output)
    report(args.output, finished, num_new=sum(shard.num_tokens for shard in missing), seconds=seconds)


def read_rows(args: argparse.Namespace) -> tuple[Sequence[torch.Tensor], Manifest, dict[str, Any]]:
    """Returns (rows of int tokens, manifest without shards, provenance).

    Raises:
        TapsError: the tokens do not fit the target's vocabulary or context.
    """
    from taps.model.feature_store import Manifest
    from taps.model.target_head import read_config

    check_made_from(args.tokens, {"target": args.target}, kind="tokens")
    config = read_config(args.target)
    tensors, meta = read_tensors(args.tokens, kind="tokens", names=["tokens", "offsets"])
    rows = tensors["tokens"].tensor_split(tensors["offsets"][1:-1])
    for what, limit, found in (
        ("token id", config["vocab_size"] - 1, int(tensors["tokens"].max())),
        ("row length", config["max_position_embeddings"], max(map(len, rows))),
    ):
        if found > limit:
            raise TapsError(args.tokens, f"tokens of another target: {what}", expected=f"at most {limit}", found=found)
    inputs = digests_of({"target": args.target, "tokens": args.tokens})
    manifest = Manifest(
        target=inputs["target"],
        template=meta["template_digest"],
        tokens=inputs["tokens"],
        dtype=args.dtype,
        batch_tokens=args.batch_tokens,
        hidden_size=config["hidden_size"],
        num_rows=len(rows),
        num_tokens=len(tensors["tokens"]),
        hidden_states=held(args),
    )
    return rows, manifest, provenance(stage="taps.features", inputs=inputs, device=args.device)


def reopen(output: Path) -> Path:
    """Returns the folder beside `output` in which its shards gather; an output made before becomes that folder."""
    partial = output.with_name(f".{output.name}.partial")
    if output.exists() and not partial.exists():
        os.replace(output, partial)
    partial.mkdir(parents=True, exist_ok=True)
    return partial


def check_disk(output: Path, missing: Manifest, *, num_finished: int) -> None:
    """Prints what the missing shards need on disk.

    Raises:
        TapsError: the disk has less.
    """
    need, free = missing.num_bytes, shutil.disk_usage(output.parent).free
    print(
        f"{output}: {len(missing.shards)} shards to compute, {num_finished} finished before; "
        f"{need / 1e6:,.1f} MB needed, {free / 1e6:,.1f} MB free",
        flush=True,
    )
    if need > free:
        raise TapsError(
            output,
            "disk too small",
            expected=f"{need / 1e6:,.1f} MB free",
            found=f"{free / 1e6:,.1f} MB",
            remedy="free some space, or set features: online in the study",
        )


def compute_shards(
    args: argparse.Namespace,
    folder: Path,
    missing: Sequence[Shard],
    rows: Sequence[torch.Tensor],
    manifest: Manifest,
    where: dict[str, Any],
) -> Iterator[Shard]:
    """Yields each missing shard once it is checked and on disk; loads the target only if there is any."""
    if not missing:
        return
    import torch

    from taps.model.feature_store import write_shard
    from taps.model.features import compute_features
    from taps.model.target import load_target
    from taps.model.target_head import load_target_head

    place = {"dtype": getattr(torch, args.dtype), "device": args.device}
    target = load_target(
        args.target, trust_remote_code=args.trust_remote_code, hidden_states=manifest.hidden_states, **place
    )
    head = load_target_head(args.target, **place)
    with (
        ThreadPoolExecutor(max_workers=1) as writer,  # hashes and writes one shard while the next is computed
        progress(total=sum(shard.num_tokens for shard in missing), what="features", unit="tok") as bar,
    ):
        pending = None
        for shard in missing:
            tokens = [rows[i] for i in shard.row_range]
            features = compute_features(target, tokens, batch_tokens=args.batch_tokens, on_tokens=bar.update)
            checked = check_logits(target, head, shard, tokens, features, num_rows=args.check_rows)
            on_host = torch.cat(features).cpu().split([len(row) for row in features])
            before = pending
            pending = writer.submit(write_shard, folder, checked, on_host, manifest=manifest, provenance=where)
            if before is not None:
                yield before.result()
        if pending is not None:
            yield pending.result()


def check_logits(
    target: Target,
    head: TargetHead,
    shard: Shard,
    tokens: Sequence[torch.Tensor],
    features: Sequence[torch.Tensor],
    *,
    num_rows: int,
) -> Shard:
    """Returns the shard with what a comparison of logits found on `num_rows` of its rows, evenly spaced.

    Raises:
        TapsError: as `taps.model.features.head_agreement`.
    """
    from taps.model.features import head_agreement

    num_rows = min(num_rows, len(tokens))
    sample = [len(tokens) * i // num_rows for i in range(num_rows)]
    found = [head_agreement(target, head, tokens[i], features[i]) for i in sample]
    equal, positions = sum(row.num_equal_argmax for row in found), sum(row.num_positions for row in found)
    return replace(
        shard,
        num_positions_checked=positions,
        num_equal_argmax=equal,
        max_logit_difference=max((row.max_difference for row in found), default=0.0),
    )


def publish(partial: Path, output: Path) -> None:
    """Makes the finished folder the output."""
    if output.exists():  # a second run of the same job came first
        shutil.rmtree(output)
    os.replace(partial, output)


def report(output: Path, manifest: Manifest, *, num_new: int, seconds: float) -> None:
    """Prints what was done."""
    num_tokens = sum(shard.num_tokens for shard in manifest.shards)
    positions = sum(shard.num_positions_checked for shard in manifest.shards)
    equal = sum(shard.num_equal_argmax for shard in manifest.shards)
    difference = max((shard.max_logit_difference for shard in manifest.shards), default=0.0)
    print(
        f"{output}: {num_tokens} tokens in {len(manifest.shards)} shards, {num_new / seconds:.0f} tok/s\n"
        f"lm_head(feature) against the target's logits at {positions} positions: largest difference {difference:.3g}, "
        f"same most likely token at {equal}"
    )


if __name__ == "__main__":
    run(main)
