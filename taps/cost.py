"""Measures on this machine what a cycle costs: target forwards by tree size, drafting, plain decoding, the overhead.

    python -m taps.cost --target results/laptop/target --drafter math=results/laptop/drafters/eagle2/seed0/math \
        --draft-vocab results/laptop/draft_vocab.safetensors --depth 5 --top-k 8 --num-draft-tokens 40 \
        --output results/laptop/cost.json

All drafters of a study have one shape, so the first one given stands for all. Target forwards at 1 to 120 tokens, trees
of 1 level up to all, a step of plain decoding: each is timed once per round, in an order drawn anew, until --limit-s is
up (loading the models is not counted). --trace gives recorded answers to work on, every round at another place of them;
drafting along random tokens takes longer, as no continuation stands out.

The output states the load that it saw and, per measurement, median, quartiles, how many there were, and `decides`:
whether the quartiles lie close enough for the time to decide anything. Cost file: `target` [{num_tokens, median_s,
low_s, high_s, num_measured, decides}], `draft` [{num_levels, num_nodes, ...}], `plain`, `overhead` {one, many}
[{num_nodes, ...}], `load`, and the medians `plain_s`, `overhead_one_s`, `overhead_many_s`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps.decoding.live_models import add_model_flags, load_models, model_inputs
from taps.plumbing.artefacts import read_tensors, write_json
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.lineage import check_made_from
from taps.plumbing.provenance import digests_of, provenance

if TYPE_CHECKING:
    from taps.measuring.costs import Answer
    from taps.model.target import Target


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.cost", __doc__)
    add_model_flags(parser)
    parser.add_argument(
        "--nodes",
        type="count",
        nargs="+",
        default=[0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 60, 80, 119],
        help="tree sizes at which the target is timed (default: %(default)s)",
    )
    parser.add_argument("--trace", type=Path, help="recorded answers to work on (default: random tokens)")
    parser.add_argument(
        "--prefix-length", type="number", default=160, help="random tokens read before (default: %(default)s)"
    )
    parser.add_argument("--limit-s", type="weight", default=30.0, help="time for all of it (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="times to write (.json)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    inputs = digests_of(model_inputs(args) | ({"trace": args.trace} if args.trace else {}))
    if args.trace:
        check_made_from(args.trace, {"target": args.target}, kind="trace")
    import torch

    from taps.measuring.costs import measure_costs

    target, drafters = load_models(args)
    nodes = sorted({0, *args.nodes})
    answers = answers_for(target, args, most=max(nodes))
    levels = range(1, args.depth + 2)
    sizes = sorted({min(4, args.num_draft_tokens), args.num_draft_tokens, 2 * args.num_draft_tokens})
    content = {
        "device": torch.cuda.get_device_name(target.device) if target.device.type == "cuda" else "cpu",
        "num_threads": torch.get_num_threads(),
        "dtype": args.dtype,
        "mean_prompt_length": sum(answer.prompt_length for answer in answers) / len(answers),
        "depth": args.depth,
        "top_k": args.top_k,
        "limit_s": args.limit_s,
    }
    content |= measure_costs(
        target,
        next(iter(drafters.values())),
        answers,
        nodes=nodes,
        draft_shapes=[(level, size) for level in levels for size in sizes],
        num_draft_tokens=args.num_draft_tokens,
        limit_s=args.limit_s,
    )
    write_json(
        args.output, content, kind="cost", provenance=provenance(stage="taps.cost", inputs=inputs, device=args.device)
    )
    print("\n".join(lines(content)))


def answers_for(target: Target, args: argparse.Namespace, *, most: int) -> list[Answer]:
    """Returns the answers of the trace, cut where the context must leave room for a tree, or one of random tokens.

    Raises:
        TapsError: the trace has no such answer.
    """
    import torch

    from taps.measuring.costs import FEWEST_TOKENS, Answer

    room = max(target.max_length - most - 2, FEWEST_TOKENS)
    if not args.trace:
        generator = torch.Generator().manual_seed(0)
        size = max(min(room, 2 * args.prefix_length), FEWEST_TOKENS)
        tokens = torch.randint(target.config["vocab_size"], (size,), generator=generator).tolist()
        return [Answer.cut(tokens, args.prefix_length, room)]
    trace = read_tensors(args.trace, kind="trace", names=("tokens", "offsets", "prompt_lengths"))[0]
    texts = [part.tolist() for part in trace["tokens"].tensor_split(trace["offsets"][1:-1])]
    lengths = trace["prompt_lengths"].tolist()
    answers = [
        Answer.cut(tokens, length, room)
        for tokens, length in zip(texts, lengths, strict=True)
        if len(tokens) >= FEWEST_TOKENS
    ]
    if not answers:
        expected = f"one text of {FEWEST_TOKENS} tokens"
        raise TapsError(args.trace, "too short to time anything on", expected=expected, remedy="leave out --trace")
    return answers


def lines(content: dict[str, Any]) -> list[str]:
    """Returns what was measured, for people."""

    def timed(what: str, row: dict[str, Any]) -> str:
        doubt = "" if row["decides"] else f"   {row['num_measured']} times, too far apart to decide anything"
        return f"{what:38s} {1000 * row['median_s']:8.1f} ms{doubt}"

    load = content["load"]
    busy = f"load {load['average_before'][0]:.1f} to {load['average_after'][0]:.1f} on {load['num_cores']} cores"
    return [
        *(timed(f"target forward of {row['num_tokens']} tokens", row) for row in content["target"]),
        *(
            timed(f"draft tree of {row['num_levels']} levels, {row['num_nodes']} nodes", row)
            for row in content["draft"]
        ),
        timed("plain decoding, per token", content["plain"]),
        *(
            timed(f"outside the models, {words}, {row['num_nodes']} nodes", row)
            for name, words in (("one", "one drafter"), ("many", "two drafters"))
            for row in content["overhead"][name]
        ),
        f"{content['seconds']:.0f} s; {busy}, {load['own_cpu_share']:.0%} of our threads' time was ours",
    ]


if __name__ == "__main__":
    run(main)
