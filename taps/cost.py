"""Measures on this machine what a cycle costs: target forwards by tree size, drafting, plain decoding, the overhead.

    python -m taps.cost --target results/laptop/target --drafter math=results/laptop/drafters/eagle2/math \
        --draft-vocab results/laptop/draft_vocab.safetensors --depth 5 --top-k 8 --num-draft-tokens 40 \
        --output results/laptop/cost.json

All drafters of a study have one shape, so the first one given stands for all. Sizes take turns, so that a busy moment
of the machine falls on all of them; medians are reported, beside the quartiles.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps.decoding.live_models import add_model_flags, load_models, model_inputs
from taps.plumbing.artefacts import write_json
from taps.plumbing.cli import run
from taps.plumbing.provenance import provenance

if TYPE_CHECKING:
    import torch

    from taps.decoding.live_drafter import LiveDrafter
    from taps.model.target import Target

_DECODED = 12  # tokens decoded to time plain decoding and the overhead


def build_parser() -> argparse.ArgumentParser:
    """Returns the command line of this stage."""
    parser = argparse.ArgumentParser(
        prog="python -m taps.cost", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_model_flags(parser)
    parser.add_argument(
        "--nodes",
        type=int,
        nargs="+",
        default=[0, 5, 10, 20, 40, 60, 80, 119],
        help="tree sizes at which the target is timed (default: %(default)s)",
    )
    parser.add_argument("--prefix-length", type=int, default=192, help="tokens read before (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=9, help="timings per size (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="times to write (.json)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the stage."""
    args = build_parser().parse_args(argv)
    import torch

    target, drafters = load_models(args)
    drafter = next(iter(drafters.values()))
    longest = max(target.max_length - _DECODED - args.repeats * len(args.nodes) - max(args.nodes), 2)
    prefix = torch.randint(
        target.config["vocab_size"], (min(args.prefix_length, longest),), generator=torch.Generator().manual_seed(0)
    ).tolist()
    draft_nodes = sorted({max(args.num_draft_tokens * share // 4, 1) for share in (1, 2, 4, 8)})
    plain, one, many = decoding_times(target, drafter, prefix, args)
    content = {
        "device": torch.cuda.get_device_name(target.device) if target.device.type == "cuda" else "cpu",
        "num_threads": torch.get_num_threads(),
        "dtype": args.dtype,
        "prefix_length": len(prefix),
        "repeats": args.repeats,
        "depth": args.depth,
        "top_k": args.top_k,
        "target": target_times(target, prefix, sorted({0, *args.nodes}), args.repeats),
        "draft": draft_times(target, drafter, prefix, draft_nodes, args.repeats),
        "plain_s": plain,
        "overhead_one_s": one,
        "overhead_many_s": many,
    }
    made_from = provenance(stage="taps.cost", inputs=model_inputs(args), device=args.device)
    write_json(args.output, content, kind="cost", provenance=made_from)
    for row in content["target"]:
        print(f"target forward of {row['num_tokens']:4d} tokens  {1000 * row['median_s']:8.1f} ms")
    for row in content["draft"]:
        print(f"draft tree of     {row['num_nodes']:4d} nodes   {1000 * row['median_s']:8.1f} ms")
    print(f"plain decoding, per token         {1000 * plain:8.1f} ms")
    print(f"outside the models, per cycle     {1000 * one:8.1f} ms with one drafter, {1000 * many:.1f} ms with two")


def target_times(target: Target, prefix: Sequence[int], nodes: Sequence[int], repeats: int) -> list[dict[str, Any]]:
    """Returns the time of a target forward, head included, over a root and each number of nodes."""
    import numpy as np
    import torch

    from taps.decoding.trees import ROOT
    from taps.decoding.verification import TargetText, Tree

    text = TargetText(target)
    with torch.inference_mode():
        text.read(prefix)

    @torch.inference_mode()
    def verify(num_nodes: int) -> None:
        ones = np.ones(num_nodes, dtype=np.int64)
        text.verify(prefix[0], Tree(tokens=ones * prefix[0], parents=ones * ROOT, depths=ones))

    def settle() -> None:
        text.keep([])

    times = _take_turns({n: _call(verify, n) for n in nodes}, repeats, target.device, settle)
    return [{"num_tokens": n + 1, **_spread(seconds)} for n, seconds in times.items()]


def draft_times(
    target: Target, drafter: LiveDrafter, prefix: Sequence[int], nodes: Sequence[int], repeats: int
) -> list[dict[str, Any]]:
    """Returns the time to read two more tokens and draft a tree of each number of nodes."""
    import torch

    from taps.decoding.verification import TargetText

    with torch.inference_mode():
        features = TargetText(target).read(prefix)
    tokens = torch.tensor(list(prefix), device=target.device)
    drafter.begin()
    drafter.read(tokens, features)

    def draft(num_nodes: int) -> None:
        drafter.read(tokens[:2], features[:2])
        drafter.draft(num_nodes)

    times = _take_turns({n: _call(draft, n) for n in nodes}, repeats, target.device, lambda: None)
    return [{"num_nodes": n, **_spread(seconds)} for n, seconds in times.items()]


def decoding_times(
    target: Target, drafter: LiveDrafter, prefix: Sequence[int], args: argparse.Namespace
) -> tuple[float, float, float]:
    """Returns seconds (per token of plain decoding, per cycle outside the models with one drafter, with two)."""
    from taps.decoding.engine import decode
    from taps.decoding.live_drafter import LiveDrafter
    from taps.decoding.plain import decode_plainly
    from taps.decoding.registry import Options
    from taps.decoding.strategies import find

    endless = replace(target, eos_ids=frozenset())
    twin = LiveDrafter(drafter.model, drafter.head, depth=drafter.depth, top_k=drafter.top_k)
    plain, overheads = [], []
    for _ in range(3):
        answer = decode_plainly(endless, prefix, max_new_tokens=_DECODED)
        plain.append(answer.decoding_s / (len(answer.tokens) - 1))
        row = []
        for name, drafters in (("single", [drafter]), ("merged_adaptive", [drafter, twin])):
            decoded = decode(
                endless,
                drafters,
                prefix,
                strategy=find(name),
                options=Options(num_draft_tokens=args.num_draft_tokens),
                max_new_tokens=_DECODED,
            )
            row.append(decoded.seconds.outside / len(decoded.cycles))
        overheads.append(row)
    one, many = (statistics.median(column) for column in zip(*overheads, strict=True))
    return statistics.median(plain), one, many


def _call(work: Callable[[int], None], size: int) -> Callable[[], None]:
    return lambda: work(size)


def _take_turns(
    works: Mapping[int, Callable[[], None]], repeats: int, device: torch.device, settle: Callable[[], None]
) -> dict[int, list[float]]:
    """Returns the times of each work, all done once per round; a first round warms up and is not counted."""
    from taps.decoding.timing import now

    times: dict[int, list[float]] = {size: [] for size in works}
    for turn in range(repeats + 1):
        for size, work in works.items():
            start = now(device)
            work()
            if turn:
                times[size].append(now(device) - start)
            settle()
    return times


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else [*seconds] * 3
    return {"median_s": median, "low_s": low, "high_s": high}


if __name__ == "__main__":
    run(main)
