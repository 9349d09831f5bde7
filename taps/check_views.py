"""Checks that smaller trees seen in finished banks are the trees that drafting anew gives, node for node.

    python -m taps.check_views --target results/laptop/target --trace results/laptop/traces/gsm8k/t0_s0.safetensors \
        --drafter math=results/laptop/drafters/eagle2/seed0/math \
        --drafter chat=results/laptop/drafters/eagle2/seed0/chat \
        --bank math=results/laptop/banks/eagle2/seed0/math/gsm8k/t0_s0.safetensors \
        --bank chat=results/laptop/banks/eagle2/seed0/chat/gsm8k/t0_s0.safetensors \
        --draft-vocab results/laptop/draft_vocab.safetensors --output view_check.json

Per drafter and shape, and for the merged trees of all drafters: positions compared (those where the bank holds the view
exactly), `identical` (every node, in order), `near_tie` (the same but for nodes whose scores lie within rounding of
each other: products of other sizes round otherwise) and `different`, which must be 0.

Output (kind `view_check`): {"shapes": [{drafters, depth, num_nodes, positions, exact, identical, near_tie,
different}]}.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taps.decoding.merging import merge
from taps.decoding.recording import load_recording
from taps.decoding.trees import PAD_TOKEN, ROOT, Trees
from taps.decoding.views import Shape, is_exact, view
from taps.plumbing.artefacts import write_json
from taps.plumbing.cli import NAMED_PATHS, by_name, run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.lineage import check_made_from
from taps.plumbing.provenance import provenance

ROUNDING = 1e-3  # nats, of a path's score between products of different sizes


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.check_views", __doc__)
    parser.add_argument("--target", type=Path, required=True, help="folder of the target model")
    parser.add_argument("--trace", type=Path, required=True, help="trace that was drafted along")
    parser.add_argument("--drafter", **NAMED_PATHS, required=True, metavar="NAME=DIR", help="folder of a draft model")
    parser.add_argument("--bank", **NAMED_PATHS, required=True, metavar="NAME=PATH", help="its bank along the trace")
    parser.add_argument("--draft-vocab", type=Path, help="draft over these tokens only")
    parser.add_argument(
        "--shapes",
        nargs="+",
        default=["0,3", "1,4", "1,8", "2,6", "2,16", "3,12", "4,24", "5,40"],
        metavar="DEPTH,NODES",
        help="trees to compare (default: %(default)s)",
    )
    parser.add_argument("--num-positions", type="number", default=500, help="at least (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="counts to write (.json)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    from taps.decoding.banks import bank_of_trace, read_trace
    from taps.decoding.drafting import DraftOptions
    from taps.model.checkpoint import load_drafter
    from taps.model.family import features_read_by
    from taps.model.target_head import load_target_head

    paths, folders = by_name(args.bank, "--bank"), by_name(args.drafter, "--drafter")
    for name, path in paths.items():
        check_made_from(path, {"target": args.target, "drafter": folders.get(name)}, kind="bank")
    recording = load_recording(args.trace, paths)
    drafting = recording.drafting
    head = load_target_head(args.target, draft_vocab=args.draft_vocab)
    models = {
        name: load_drafter(path, target_config=head.config, dtype=head.head.dtype, device="cpu")
        for name, path in folders.items()
    }
    if set(models) != set(recording.banks):
        raise TapsError("--drafter", "not those of --bank", expected=sorted(recording.banks), found=sorted(models))
    trace = read_trace(args.trace, reads=features_read_by(next(iter(models.values())).config))
    count = 1 + int(np.searchsorted(recording.text.offsets[1:], args.num_positions))
    trace["offsets"], trace["prompt_lengths"] = trace["offsets"][: count + 1], trace["prompt_lengths"][:count]
    rows = []
    for text in args.shapes:
        depth, num_nodes = (int(part) for part in text.split(","))
        shape = Shape(depth=depth, num_nodes=num_nodes)
        options = DraftOptions(depth=depth, top_k=drafting["top_k"], num_nodes=num_nodes)
        fresh = {name: bank_of_trace(model, head, trace, options)[0] for name, model in models.items()}
        size = len(next(iter(fresh.values())))
        banks = {name: bank.trees.rows(slice(size)) for name, bank in recording.banks.items()}
        seen = {name: view(trees, depth + 1, num_nodes) for name, trees in banks.items()}
        exact = {
            name: is_exact(trees, shape, top_k=drafting["top_k"], bank_depth=drafting["depth"])
            for name, trees in banks.items()
        }
        rows += [compared([name], shape, seen[name], fresh[name], exact[name]) for name in models]
        if len(models) > 1:
            weights = np.full(len(models), 1 / len(models))
            one, other = (merge([trees[name] for name in models], weights, num_nodes) for trees in (seen, fresh))
            rows.append(compared(list(models), shape, one, other, np.logical_and.reduce(list(exact.values()))))
        for row in rows[-len(models) - 1 :]:
            print(", ".join(f"{name} {value}" for name, value in row.items()))
    inputs = {"target": args.target, "trace": args.trace, **{f"bank.{name}": path for name, path in args.bank}}
    made_from = provenance(stage="taps.check_views", inputs=inputs)
    write_json(args.output, {"shapes": rows}, kind="view_check", provenance=made_from)
    if wrong := sum(row["different"] for row in rows):
        raise TapsError(args.output, "views differ from fresh drafting", expected=0, found=wrong)


def compared(drafters: list[str], shape: Shape, seen: Trees, fresh: Trees, exact: np.ndarray) -> dict[str, Any]:
    """Returns the counts of one shape."""
    kinds = [kind_of(seen, fresh, row) for row in np.flatnonzero(exact).tolist()]
    return {
        "drafters": "+".join(drafters),
        "depth": shape.depth,
        "num_nodes": shape.num_nodes,
        "positions": len(exact),
        "exact": int(exact.sum()),
        **{name: kinds.count(name) for name in ("identical", "near_tie", "different")},
    }


def kind_of(seen: Trees, fresh: Trees, row: int) -> str:
    """Returns `identical`, `near_tie` or `different`."""
    same = all(np.array_equal(getattr(seen, name)[row], getattr(fresh, name)[row]) for name in ("tokens", "parents"))
    mine, theirs = scores_of_paths(seen, row), scores_of_paths(fresh, row)
    if any(abs(mine[path] - theirs[path]) > ROUNDING for path in mine.keys() & theirs.keys()):
        return "different"
    if same:
        return "identical"
    cut = min([*mine.values(), *theirs.values()])
    odd = [*(mine[path] for path in mine.keys() - theirs), *(theirs[path] for path in theirs.keys() - mine)]
    return "near_tie" if all(score - cut <= ROUNDING for score in odd) else "different"


def scores_of_paths(trees: Trees, row: int) -> dict[tuple[int, ...], float]:
    """Returns path (tokens from the root) -> score of every node of one tree."""
    paths: list[tuple[int, ...]] = []
    scores = {}
    for token, parent, score in zip(trees.tokens[row], trees.parents[row], trees.scores[row], strict=True):
        if token == PAD_TOKEN:
            break
        paths.append((*(paths[parent] if parent != ROOT else ()), int(token)))
        scores[paths[-1]] = float(score)
    return scores


if __name__ == "__main__":
    run(main)
