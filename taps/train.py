"""Trains a draft model of any family of `taps.model.families` (EAGLE-2, HASS), through DeepSpeed.

    python -m taps.train --target results/laptop/target --mixture results/laptop/mixtures/math.json \
        --tokens math=results/laptop/tokens/math.safetensors --features math=results/laptop/features/math \
        --draft-vocab results/laptop/draft_vocab.safetensors --epochs 6 --learning-rate 1e-3 --batch-size 8 \
        --state results/laptop/state/eagle2/seed0/math --output results/laptop/drafters/eagle2/seed0/math

Several processes: `torchrun --standalone --nproc-per-node 4 -m taps.train ...` (multi-node arguments of torchrun pass
through). Killed at any moment and started again, it continues from its last state, bit for bit in float32.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from taps.model.family import FAMILIES, new_drafter
from taps.model.hidden_states import recorded
from taps.plumbing.artefacts import read_json, write_json, write_jsonl
from taps.plumbing.cli import NAMED_PATHS, by_name, run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.lineage import check_made_from
from taps.plumbing.provenance import digests_of, provenance

_ONLINE = Path("online")


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.train", __doc__)
    data = parser.add_argument_group("data")
    data.add_argument("--target", type=Path, required=True, help="folder of the target model")
    data.add_argument("--mixture", type=Path, required=True, help="mixture to train on")
    each = {**NAMED_PATHS, "required": True}
    data.add_argument("--tokens", **each, metavar="CORPUS=FILE", help="tokens of each corpus")
    data.add_argument("--features", **each, metavar="CORPUS=DIR", help=f"their features, or CORPUS={_ONLINE}")
    data.add_argument("--draft-vocab", type=Path, help="train over these tokens only")
    data.add_argument("--heldout-trace", type=Path, action="append", default=[], help="for tau on held-out prompts")
    data.add_argument("--init-from", type=Path, help="draft model to start from")
    data.add_argument("--method", help="what the study calls this way of training: a label, which replays compare")
    size = parser.add_argument_group("length of the run (one of them)").add_mutually_exclusive_group(required=True)
    size.add_argument("--epochs", type="rate", help="passes over the mixture's training rows")
    size.add_argument("--match-cost", type=Path, metavar="DRAFTER", help="train until as many FLOPs are spent as on it")
    recipe = parser.add_argument_group("recipe")
    recipe.add_argument(
        "--family", choices=list(FAMILIES), default="eagle2", help="draft family (default: %(default)s)"
    )
    recipe.add_argument("--learning-rate", type="rate", default=3e-5, help="peak (default: %(default)s)")
    recipe.add_argument("--warmup-share", type="share0", default=0.01, help="of all steps (default: %(default)s)")
    recipe.add_argument(
        "--batch-size", type="number", default=32, help="rows per step, all processes (default: %(default)s)"
    )
    recipe.add_argument(
        "--accumulation", type="number", default=1, help="backward passes per step (default: %(default)s)"
    )
    recipe.add_argument("--betas", type="beta", nargs=2, default=(0.9, 0.95), help="AdamW's (default: %(default)s)")
    recipe.add_argument("--weight-decay", type="weight", default=0.01, help="AdamW's (default: %(default)s)")
    recipe.add_argument("--clip-norm", type="weight", default=0.5, help="0 = none (default: %(default)s)")
    recipe.add_argument(
        "--clip-value", type="weight", default=0.0, help="published clipping, replaces --clip-norm; 0 = none"
    )
    recipe.add_argument("--noise", type="weight", default=0.2, help="uniform feature noise (default: %(default)s)")
    recipe.add_argument("--published-noise", action="store_true", help="scale the noise by 512 / length")
    recipe.add_argument("--value-weight", type="weight", default=1.0, help="of the feature loss (default: %(default)s)")
    recipe.add_argument("--probability-weight", type="weight", default=0.1, help="default: %(default)s")
    recipe.add_argument("--top-k-weight", type="weight", default=0.0, help="HASS: 1 (default: %(default)s)")
    recipe.add_argument("--top-k", type="number", default=10, help="K of the top-K loss (default: %(default)s)")
    recipe.add_argument("--alignment-passes", type="number", default=1, help="HASS: 3 (default: %(default)s)")
    recipe.add_argument("--attention", choices=("causal", "published"), default="causal", help="of aligned passes")
    recipe.add_argument("--seed", type="seed", default=0, help="of weights, order and noise (default: %(default)s)")
    trees = parser.add_argument_group("trees of the validation's tau")
    trees.add_argument("--depth", type="depth", default=5, help="default: %(default)s")
    trees.add_argument("--draft-top-k", type="number", default=8, help="default: %(default)s")
    trees.add_argument("--num-draft-tokens", type="nodes", default=40, help="default: %(default)s")
    machine = parser.add_argument_group("machine")
    machine.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="default: %(default)s")
    machine.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    machine.add_argument(
        "--zero-stage", type="count", choices=(0, 1, 2), default=0, help="ZeRO 0, 1 or 2 (default: %(default)s)"
    )
    machine.add_argument(
        "--checkpoint-every", type="weight", default=300, metavar="SECONDS", help="default: %(default)s"
    )
    machine.add_argument("--trust-remote-code", action="store_true", help="run code shipped with the target (online)")
    machine.add_argument(
        "--tensorboard", type=Path, metavar="DIR", help="event files to look at it by, through the package tensorboard"
    )
    machine.add_argument("--state", type=Path, required=True, help="folder for states to resume from")
    parser.add_argument("--output", type=Path, required=True, help="folder of the draft model to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    parser = build_parser()
    parser.set_defaults(**FAMILIES[parser.parse_args(argv).family].training)
    args = parser.parse_args(argv)
    if args.clip_value and (args.zero_stage or args.dtype != "float32"):
        raise TapsError("--clip-value", "needs --zero-stage 0 and --dtype float32", remedy="use --clip-norm instead")
    inputs = _inputs(args)
    import torch

    from taps.decoding.drafting import DraftOptions
    from taps.decoding.validation import read_held_out, validate
    from taps.model.batches import Conversations, Plan, read_mixture
    from taps.model.distributed import make_engine, start_processes
    from taps.model.features import online_notice
    from taps.model.losses import LossWeights
    from taps.model.noise import Noise
    from taps.model.target_head import load_target_head
    from taps.model.training import DraftTraining, Recipe, train

    rank, world, device = start_processes(args.device)
    if args.batch_size % (world * args.accumulation):
        raise TapsError(
            "--batch-size",
            "must divide evenly",
            expected=f"a multiple of {world * args.accumulation}",
            found=args.batch_size,
        )
    dtype = getattr(torch, args.dtype)
    tokens = dict(args.tokens)
    features = _open_features(args, tokens, device, rank=rank, world=world)
    head = load_target_head(args.target, draft_vocab=args.draft_vocab, dtype=dtype, device=device)
    reads = FAMILIES[args.family].features
    conversations = Conversations(tokens, features, reads=reads)
    train_rows, validation_rows = read_mixture(args.mixture, corpora=tokens)
    plan = Plan(conversations.usable(train_rows), args.batch_size, args.seed)
    if not plan.rows:
        raise TapsError(args.mixture, "no row has a supervised token", remedy="look at the audits of its tokens")
    if rank == 0 and (online := [row for row in plan.rows if dict(args.features)[row.corpus] == _ONLINE]):
        print(online_notice([(features[row.corpus], row.row) for row in online]), file=sys.stderr)
    model, inherited = _initial_model(args, head)
    recipe = Recipe(
        num_steps=_num_steps(args, plan, conversations, model, head, inherited),
        learning_rate=args.learning_rate,
        warmup_share=args.warmup_share,
        accumulation=args.accumulation,
        loss_weights=LossWeights(
            value=args.value_weight, probability=args.probability_weight, top_k=args.top_k_weight, k=args.top_k
        ),
        num_passes=args.alignment_passes,
        attention=args.attention,
        noise=Noise(amplitude=args.noise, published=args.published_noise, seed=args.seed),
        clip_value=args.clip_value,
        fingerprint=_fingerprint(args, inputs, world),
    )
    engine = make_engine(
        DraftTraining(model.to(device=device, dtype=dtype), head, recipe, FAMILIES[args.family]),
        betas=tuple(args.betas),
        weight_decay=args.weight_decay,
        clip_norm=0.0 if args.clip_value else args.clip_norm,
        zero_stage=args.zero_stage,
        dtype=dtype,
        micro_batch_size=args.batch_size // (world * args.accumulation),
        accumulation=args.accumulation,
    )
    options = DraftOptions(depth=args.depth, top_k=args.draft_top_k, num_nodes=args.num_draft_tokens)
    held_out = read_held_out(conversations.usable(validation_rows), args.heldout_trace, options, reads=reads)
    outcome = train(
        engine,
        conversations,
        plan,
        recipe,
        state=args.state,
        checkpoint_every_s=args.checkpoint_every,
        validate=lambda: validate(engine.module.drafter, head, conversations, held_out, recipe.loss_weights),
        head_columns=len(head.head),
        event_folder=args.tensorboard,
    )
    if rank == 0:
        _write(args, engine.module.drafter, outcome, inherited, inputs, recipe, world)


def _open_features(
    args: argparse.Namespace, tokens: dict[str, Path], device: Any, *, rank: int, world: int
) -> dict[str, Any]:
    from taps.model.feature_store import FeatureStore

    given = dict(args.features)
    if set(given) != set(tokens):
        raise TapsError("--features", "other corpora than --tokens", expected=sorted(tokens), found=sorted(given))
    sources: dict[str, Any] = {}
    for corpus, place in given.items():
        if place != _ONLINE:
            sources[corpus] = FeatureStore(place)
            sources[corpus].check_matches(tokens=tokens[corpus], target=args.target)
            sources[corpus].verify(part=rank, num_parts=world)
    if online := [corpus for corpus in given if corpus not in sources]:
        sources |= _online(args, {corpus: tokens[corpus] for corpus in online}, device)
    return sources


def _online(args: argparse.Namespace, tokens: dict[str, Path], device: Any) -> dict[str, Any]:
    """Returns sources that run the target when features are asked for; one target serves all corpora."""
    import torch

    from taps.model.features import OnlineFeatures
    from taps.model.target import load_target

    target = load_target(
        args.target,
        dtype=getattr(torch, args.dtype),
        device=device,
        trust_remote_code=args.trust_remote_code,
        hidden_states=recorded([FAMILIES[args.family].features]),
    )
    return {corpus: OnlineFeatures(target, path) for corpus, path in tokens.items()}


def _initial_model(args: argparse.Namespace, head: Any) -> tuple[Any, dict[str, float]]:
    """Returns the model to train and the cost already in it."""
    import torch

    from taps.model.checkpoint import check_tensors, load_drafter
    from taps.model.drafter import DrafterConfig

    nothing = {"num_tokens": 0, "flops": 0.0, "seconds": 0.0}
    torch.manual_seed(args.seed)
    if args.init_from is None:
        return new_drafter(replace(DrafterConfig.from_json(head.config), family=args.family)), nothing
    start = load_drafter(args.init_from, target_config=head.config)
    model = new_drafter(replace(start.config, family=args.family))
    check_tensors(args.init_from, start.state_dict(), model.config)
    model.load_state_dict(start.state_dict())
    record = args.init_from / "training.json"
    if not record.exists():  # an imported draft model: its cost is not known to us
        return model, nothing
    total = read_json(record, kind="training")["total"]
    return model, {name: total[name] for name in ("num_tokens", "flops", "seconds")}


def _num_steps(
    args: argparse.Namespace, plan: Any, conversations: Any, model: Any, head: Any, inherited: dict[str, float]
) -> int:
    """Returns the optimizer steps of `--epochs`, or those that spend what `--match-cost` spent in total."""
    if args.epochs is not None:
        return plan.num_steps(args.epochs)
    from taps.model.flops import num_steps_within

    budget = read_json(args.match_cost / "training.json", kind="training")["total"]["flops"] - inherited["flops"]
    if budget <= 0:
        raise TapsError(args.match_cost, "already spent by --init-from", remedy="match a costlier draft model")
    family = FAMILIES[args.family]
    cost = family.training_cost(model.config, head_columns=len(head.head), num_passes=args.alignment_passes)
    steps = (cost.flops(*conversations.size(plan.rows_of(step))) for step in itertools.count())
    return num_steps_within(budget, steps)


def _inputs(args: argparse.Namespace) -> dict[str, str]:
    """Returns name -> digest of what decides the weights, once all of it belongs together.

    Raises:
        ArtefactError: something is of another target, or the mixture of other tokens.
    """
    tokens = {f"tokens.{name}": path for name, path in by_name(args.tokens, "--tokens").items()}
    inputs = {
        "target": args.target,
        "mixture": args.mixture,
        **tokens,
        **{f"features.{name}": path for name, path in by_name(args.features, "--features").items() if path != _ONLINE},
    }
    check_made_from(args.mixture, tokens, kind="mixture")
    of_target = [(path, "tokens") for path in tokens.values()] + [(path, "trace") for path in args.heldout_trace]
    if args.draft_vocab is not None:
        inputs["draft_vocab"] = args.draft_vocab
        of_target.append((args.draft_vocab, "draft_vocab"))
    if args.match_cost is not None:
        inputs["match_cost"] = args.match_cost / "training.json"
        of_target.append((inputs["match_cost"], "training"))
    if args.init_from is not None:
        inputs["init_from"] = args.init_from
        of_target.append((args.init_from, "drafter"))
    for path, kind in of_target:
        check_made_from(path, {"target": args.target}, kind=kind)
    return digests_of(inputs)


def _fingerprint(args: argparse.Namespace, inputs: dict[str, str], world: int) -> str:
    """Returns a digest of all that decides the weights, so that a state of another run is never resumed from."""
    neutral = {"output", "state", "tensorboard", "checkpoint_every", "method", "heldout_trace"}
    seen_as_digests = {"tokens", "features", *inputs}
    settings = {key: str(value) for key, value in vars(args).items() if key not in neutral | seen_as_digests}
    return hashlib.sha256(json.dumps([settings, inputs, world], sort_keys=True).encode()).hexdigest()


def _write(
    args: argparse.Namespace,
    model: Any,
    outcome: Any,
    inherited: dict[str, float],
    inputs: dict[str, str],
    recipe: Any,
    world: int,
) -> None:
    from taps.model.checkpoint import save_drafter
    from taps.model.training_state import remove_states

    own = {"num_tokens": outcome.num_tokens, "flops": outcome.flops, "seconds": round(outcome.seconds, 3)}
    record = {
        "num_steps": recipe.num_steps,
        "num_supervised": outcome.num_supervised,
        "alignment_passes": recipe.num_passes,
        "own": own,
        "total": {name: own[name] + inherited[name] for name in own},
    }
    settings = {name: str(getattr(args, name)) for name in ("dtype", "device", "seed", "zero_stage")}
    labels = {"training_seed": args.seed} | ({"method": args.method} if args.method else {})
    made_from = provenance(stage="taps.train", inputs=inputs, world_size=world, **settings, **labels)
    write_jsonl(args.output / "metrics.jsonl", outcome.metrics, kind="metrics", provenance=made_from)
    write_json(args.output / "training.json", record, kind="training", provenance=made_from)
    save_drafter(args.output, model.float().state_dict(), model.config, provenance=made_from)
    remove_states(args.state)
    print(
        f"{args.output}: {recipe.num_steps} steps, {outcome.num_tokens} tokens, "
        f"{outcome.num_tokens / max(outcome.seconds, 1e-9):.0f} tokens/s",
        file=sys.stderr,
    )


if __name__ == "__main__":
    run(main)
