"""Decodes speculatively and streams the text: any target, any drafters, any strategy.

    python -m taps.decode --target results/laptop/target \
        --drafter math=results/laptop/drafters/eagle2/seed0/math \
        --drafter chat=results/laptop/drafters/eagle2/seed0/chat \
        --draft-vocab results/laptop/draft_vocab.safetensors --strategy merged_adaptive \
        --prompt "Tom has 3 apples and buys 5 more. How many has he?" --compare

Behind each answer: tau, cycles, tokens/s and where the time went; with --compare also the speed of plain decoding and
whether the texts agree. Several --prompt are the turns of one conversation. --prompts decodes a benchmark's file; its
texts are those that taps.trace records with the same sampling and seed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps.data.dialogue import Asked, Dialogue, Reply, converse, from_prompt
from taps.decoding.calibration import read_factors
from taps.decoding.cost_model import CostModel
from taps.decoding.live_models import add_model_flags, load_models, model_inputs
from taps.decoding.router import read_router
from taps.decoding.strategy import Strategy, find
from taps.decoding.tuning import read_tuned, tuned_variant
from taps.decoding.variants import Variant
from taps.plumbing.artefacts import read_json, read_jsonl, write_json
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.lineage import check_made_from
from taps.plumbing.provenance import digest_of, provenance

if TYPE_CHECKING:
    from taps.decoding.engine import Decoded
    from taps.model.sampling import Draws, Sampling
    from taps.model.target import Target


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.decode", __doc__)
    add_model_flags(parser)
    parser.add_argument("--strategy", help="default: single for one drafter, else merged_adaptive")
    parser.add_argument("--calibration", type=Path, help="inverse temperatures for the _calibrated strategies")
    parser.add_argument("--cost", type=Path, help="times of taps.cost, for the _costed strategies")
    parser.add_argument("--router", type=Path, help="weights of taps.fit_router, for routed_prompt")
    parser.add_argument(
        "--tree",
        choices=("default", "tuned"),
        default="default",
        help="tuned: depth and nodes that taps.tune chose for this machine (default: %(default)s)",
    )
    parser.add_argument("--tuned", type=Path, help="choices of taps.tune, for --tree tuned")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prompt", action="append", help="what the user says; repeat it for further turns")
    source.add_argument("--prompts", type=Path, help="JSON lines written by taps.prompts")
    parser.add_argument("--system", help="what the system turn says, with --prompt")
    parser.add_argument("--num-prompts", type="number", help="first prompts of --prompts only")
    parser.add_argument(
        "--max-new-tokens", type="number", default=256, help="most tokens per turn (default: %(default)s)"
    )
    parser.add_argument("--temperature", type="temperature", default=0.0, help="0 = greedy (default: %(default)s)")
    parser.add_argument("--top-p", type="share", default=1.0, help="nucleus mass (default: %(default)s)")
    parser.add_argument(
        "--sampling-top-k", type="count", default=0, help="most likely tokens kept when sampling, 0 = all"
    )
    parser.add_argument("--seed", type="seed", default=0, help="decides the draws at temperature > 0")
    parser.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="one more token that ends an answer"
    )
    parser.add_argument("--compare", action="store_true", help="decode plainly, too, and compare text and speed")
    parser.add_argument("--output", type=Path, help="write answers, cycles and times (.json)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    from taps.decoding.engine import decode
    from taps.model.sampling import Draws, Sampling

    names = [name for name, _ in args.drafter]
    strategy = find(args.strategy or ("single" if len(names) == 1 else "merged_adaptive"), live=True)
    variant = _variant(args, strategy, tuple(names))
    options = variant.options(
        dict(zip(names, _factors(args.calibration, dict(args.drafter)), strict=True)) if strategy.calibrated else {},
        cost=_cost(args.cost, args.target) if strategy.costed else None,
        bank_depth=args.depth,
        router=_router(args.router, dict(args.drafter)) if strategy.uses_prompt else None,
        seed=args.seed,
    )
    sampling = Sampling(temperature=args.temperature, top_p=args.top_p, top_k=args.sampling_top_k)
    dialogues = _dialogues(args)
    args.depth = args.depth if variant.depth is None else variant.depth
    target, drafters = load_models(args)
    stop_ids = target.eos_ids | {_only_token(target, text) for text in args.stop}
    answers: list[dict[str, Any]] = []

    def reply(batch: Sequence[Asked]) -> list[Reply]:
        (asked,) = batch
        draws = Draws(args.seed, asked.dialogue.id, asked.turn)
        if args.prompts or len(asked.dialogue.questions) > 1:
            print(f"--- {asked.dialogue.id}, turn {asked.turn}")
        printer = _Printer(target)
        decoded = decode(
            target,
            list(drafters.values()),
            asked.tokens,
            strategy=strategy,
            options=options,
            max_new_tokens=args.max_new_tokens,
            sampling=sampling,
            draws=draws,
            stop_ids=stop_ids,
            on_tokens=printer,
        )
        printer.finish()
        print(_summary(decoded))
        if args.compare:
            print(_comparison(target, asked.tokens, decoded, sampling, draws, args.max_new_tokens))
        text = target.text_of(decoded.tokens)
        answers.append({"id": asked.dialogue.id, "turn": asked.turn, "text": text, **_record(decoded)})
        return [Reply.of(text)]

    for dialogue in dialogues:
        converse([dialogue], encode=target.render, reply=reply, max_length=target.max_length, batch_size=1)
        if (ended := dialogue.ended) is not None:
            note = f"{ended.num_tokens} tokens leave no room in a context of {target.max_length}"
            note = ended.reason if ended.num_tokens is None else note
            print(f"{dialogue.id}, turn {ended.turn}: skipped, {note}", file=sys.stderr)
    if args.output:
        content = {
            "strategy": strategy.name,
            "drafters": names,
            "sampling": sampling.to_json(),
            "seed": args.seed,
            "answers": answers,
        }
        made_from = provenance(stage="taps.decode", inputs=model_inputs(args), device=args.device, dtype=args.dtype)
        write_json(args.output, content, kind="decoded", provenance=made_from)


# --- what is asked ---------------------------------------------------------------------------------------------------


def _dialogues(args: argparse.Namespace) -> list[Dialogue]:
    if args.prompt:
        return [from_prompt({"id": "prompt", "turns": args.prompt, "system": args.system})]
    if args.system:
        raise TapsError("--system", "goes with --prompt", remedy="the prompts of a file have their own")
    return [from_prompt(row) for row in read_jsonl(args.prompts, kind="prompts")[: args.num_prompts]]


def _only_token(target: Target, text: str) -> int:
    tokens = target.tokenizer(text, add_special_tokens=False).input_ids
    if len(tokens) != 1:
        raise TapsError("--stop", f"{text!r} is not one token of the target", found=f"{len(tokens)} tokens")
    return int(tokens[0])


def _factors(calibration: Path | None, drafters: Mapping[str, Path]) -> tuple[float, ...]:
    if calibration is None:
        raise TapsError("--strategy", "needs inverse temperatures", remedy="give --calibration")
    known = read_factors(calibration, _digests(drafters))
    if missing := [name for name in drafters if name not in known]:
        raise TapsError(calibration, f"no inverse temperature of {', '.join(missing)}", expected=", ".join(known))
    return tuple(known[name] for name in drafters)


def _variant(args: argparse.Namespace, strategy: Strategy, names: tuple[str, ...]) -> Variant:
    """Returns the strategy with the tree that was asked for; says so where plain decoding was found faster."""
    default = Variant(strategy=strategy, drafters=names, num_draft_tokens=args.num_draft_tokens)
    if args.tree == "default":
        return default
    if args.tuned is None:
        raise TapsError("--tree tuned", "needs the choices", remedy="give --tuned FILE of taps.tune")
    rows = read_tuned(args.tuned, _digests(dict(args.drafter)))
    for row in rows:
        if (row["strategy"], tuple(row["drafters"])) == (strategy.name, names):
            tuned = tuned_variant(row)
            if tuned is None:
                print("plain decoding was found faster than any tree here: default tree", file=sys.stderr)
            return tuned or default
    known = "; ".join(f"{row['strategy']} of {'+'.join(row['drafters'])}" for row in rows)
    raise TapsError(args.tuned, f"no {strategy.name} of {'+'.join(names)}", expected=f"one of: {known}")


def _digests(drafters: Mapping[str, Path]) -> dict[str, str]:
    return {name: digest_of(folder) for name, folder in drafters.items()}


def _cost(path: Path | None, target: Path) -> CostModel:
    if path is None:
        raise TapsError("--strategy", "needs measured costs", remedy="give --cost FILE of taps.cost")
    check_made_from(path, {"target": target}, kind="cost")
    return CostModel.from_json(read_json(path, kind="cost"))


def _router(path: Path | None, drafters: Mapping[str, Path]) -> dict[str, list[float]]:
    if path is None:
        raise TapsError("--strategy", "needs a router", remedy="give --router FILE of taps.fit_router")
    known = read_router(path, _digests(drafters))
    if missing := [name for name in drafters if name not in known]:
        raise TapsError(path, f"does not know {', '.join(missing)}", expected=", ".join(known))
    return known


# --- what comes out --------------------------------------------------------------------------------------------------


class _Printer:
    """Prints text as tokens come; a character of several tokens waits for its last one."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.tokens: list[int] = []
        self.printed = 0

    def __call__(self, tokens: list[int]) -> None:
        self.tokens += tokens
        if not self._text().endswith("\N{REPLACEMENT CHARACTER}"):
            self._print_rest()

    def finish(self) -> None:
        """Prints what was held back, and ends the line."""
        self._print_rest()
        print()

    def _text(self) -> str:
        return self.target.text_of(self.tokens)

    def _print_rest(self) -> None:
        text = self._text()
        print(text[self.printed :], end="", flush=True)
        self.printed = len(text)


def _record(decoded: Decoded) -> dict[str, Any]:
    return {
        "tokens": decoded.tokens.tolist(),
        "finish": decoded.finish,
        "tau": decoded.tau if decoded.cycles else None,
        "cycles": [
            asdict(cycle) | {"score": None if cycle.score != cycle.score else cycle.score} for cycle in decoded.cycles
        ],
        "seconds": asdict(decoded.seconds),
    }


def _summary(decoded: Decoded) -> str:
    seconds, num_drafts = decoded.seconds, sum(cycle.num_drafted for cycle in decoded.cycles)
    if not decoded.cycles:
        return f"[{len(decoded.tokens)} tokens from prefill, no cycle, finish: {decoded.finish}]"
    shares = ", ".join(
        f"{name} {value / seconds.decoding:.0%}"
        for name, value in (("target", seconds.target), ("drafting", seconds.drafting), ("outside", seconds.outside))
    )
    num_tokens = len(decoded.tokens) - 1  # behind prefill
    return (
        f"[tau {decoded.tau:.2f}: {num_tokens} tokens in {len(decoded.cycles)} cycles, {num_drafts} drafts, "
        f"finish: {decoded.finish}; {num_tokens / seconds.decoding:.1f} tokens/s ({shares})]"
    )


def _comparison(
    target: Target, prompt: list[int], decoded: Decoded, sampling: Sampling, draws: Draws, max_new_tokens: int
) -> str:
    from taps.decoding.plain import decode_plainly

    plain = decode_plainly(target, prompt, max_new_tokens=max_new_tokens, sampling=sampling, draws=draws)
    num_tokens = min(len(plain.tokens), len(decoded.tokens))  # --stop ends only the speculative answer
    differs = plain.tokens[:num_tokens] != decoded.tokens[:num_tokens]
    verdict = f"texts differ from token {int(differs.argmax())} on" if differs.any() else "same text"
    if num_tokens < 2:
        return f"[plain decoding: {verdict}]"
    plain_rate = (len(plain.tokens) - 1) / plain.decoding_s
    ratio = (len(decoded.tokens) - 1) / decoded.seconds.decoding / plain_rate
    return f"[plain decoding: {plain_rate:.1f} tokens/s, speed-up {ratio:.2f}; {verdict}]"


if __name__ == "__main__":
    run(main)
