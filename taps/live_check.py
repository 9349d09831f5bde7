"""Checks live decoding against the recording: the same text, the same cycles, and the predicted speed.

    python -m taps.live_check --target results/laptop/target --trace results/laptop/traces/gsm8k/t0_s0.safetensors \
        --drafter math=results/laptop/drafters/eagle2/math --drafter chat=results/laptop/drafters/eagle2/chat \
        --bank math=results/laptop/banks/eagle2/math/gsm8k/t0_s0.safetensors \
        --bank chat=results/laptop/banks/eagle2/chat/gsm8k/t0_s0.safetensors \
        --draft-vocab results/laptop/draft_vocab.safetensors --num-prompts 4 --num-draft-tokens 40 \
        --strategies '[{"strategy": "single", "drafters": ["math"]},
                       {"strategy": "merged_adaptive", "drafters": ["math", "chat"]}]' \
        --output results/laptop/live/eagle2/gsm8k/t0_s0.json

Every strategy decodes the first prompts of the trace. Its text is compared with the recorded one token by token, its
cycles with those of the replay (root, accepted, emitted, drafter), up to the first different token if there is one. A
forward over a tree rounds otherwise than one over a batch of texts, so a near-tie may go either way: not seen in
float32 at temperature 0; at temperature > 0 when a draw falls among tokens whose probability is no larger than the
rounding; in bfloat16 now and then. The law of the text is the target's all the same; the rate is reported. Strategies
that need the recorded future have no live form and are listed as such.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taps.decoding.comparison import RecordedText, compare_cycles, first_difference, read_texts
from taps.decoding.cost_model import CostModel
from taps.decoding.live_models import add_model_flags, load_models, model_inputs
from taps.decoding.recording import Recording, load_recording
from taps.decoding.registry import Options
from taps.decoding.walk import Cycles, walk
from taps.plumbing.artefacts import read_json, write_json
from taps.plumbing.cli import NAMED_PATHS, run
from taps.plumbing.errors import TapsError
from taps.plumbing.progress import progress
from taps.plumbing.provenance import provenance
from taps.replay import Row, check_rows, inverse_temperatures, parse_rows

if TYPE_CHECKING:
    from taps.decoding.engine import Cycle, Decoded, Drafting
    from taps.decoding.plain import Plain
    from taps.model.target import Target

_LISTED = 20  # different cycles written out per row; all are counted


def build_parser() -> argparse.ArgumentParser:
    """Returns the command line of this stage."""
    parser = argparse.ArgumentParser(
        prog="python -m taps.live_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_model_flags(parser, with_trees=False)
    parser.add_argument("--trace", type=Path, required=True, help="recorded text")
    parser.add_argument(
        "--bank", **NAMED_PATHS, required=True, metavar="DRAFTER=PATH", help="draft bank along it; once per --drafter"
    )
    parser.add_argument("--strategies", required=True, help="JSON list, as taps.replay takes it")
    parser.add_argument("--calibration", type=Path, help="inverse temperatures for the _calibrated strategies")
    parser.add_argument(
        "--num-prompts", type=int, default=4, help="first prompts, with all turns (default: %(default)s)"
    )
    parser.add_argument("--cost", type=Path, help="times of taps.cost; adds the predicted speed")
    parser.add_argument("--output", type=Path, required=True, help="report to write (.json)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the stage."""
    args = build_parser().parse_args(argv)
    banks = dict(args.bank)
    recording = load_recording(args.trace, banks)
    rows = parse_rows(args.strategies, banks, args.num_draft_tokens)
    factors = read_json(args.calibration, kind="calibration")["drafters"] if args.calibration else {}
    check_rows(rows, recording, factors)
    cost = CostModel.from_json(read_json(args.cost, kind="cost")) if args.cost else None
    texts = read_texts(args.trace, args.num_prompts)

    args.depth, args.top_k = recording.drafting["depth"], recording.drafting["top_k"]
    target, drafters = load_models(args)
    check_drafters(args, recording, drafters)
    live_rows = [row for row in rows if not row.strategy.needs_future]
    reports = []
    with progress(total=(len(live_rows) + 1) * len(texts), what="live decoding", unit="text") as bar:
        plain = [decode_text_plainly(target, text, bar) for text in texts]
        for row in live_rows:
            options = Options(
                num_draft_tokens=row.num_draft_tokens,
                seed=recording.trace_meta["seed"],
                inverse_temperatures=inverse_temperatures(row, factors),
            )
            chosen = [drafters[name] for name in row.drafters]
            decoded = [decode_text(target, chosen, row, options, text, bar) for text in texts]
            replayed = replay_of(row, recording, options)
            reports.append(report_row(row, texts, decoded, replayed, cost))
    content = {
        "sampling": recording.trace_meta["sampling"],
        "seed": recording.trace_meta["seed"],
        "trace_dtype": recording.trace_meta["dtype"],
        "dtype": args.dtype,
        "device": args.device,
        "num_prompts": len({text.id for text in texts}),
        "plain": report_plain(texts, plain, cost),
        "rows": reports,
        "replay_only": [str(row) for row in rows if row.strategy.needs_future],
    }
    inputs = model_inputs(args) | {"trace": args.trace, **{f"bank.{name}": path for name, path in banks.items()}}
    inputs |= {name: getattr(args, name) for name in ("calibration", "cost") if getattr(args, name)}
    made_from = provenance(stage="taps.live_check", inputs=inputs, device=args.device)
    write_json(args.output, content, kind="live_check", provenance=made_from)
    print(f"{args.output}: {summary(content)}")


# --- what is decoded -------------------------------------------------------------------------------------------------


def check_drafters(args: argparse.Namespace, recording: Recording, drafters: dict[str, Any]) -> None:
    """Raises TapsError unless there is a drafter for each bank, over the banks' draft vocabulary."""
    if set(drafters) != set(recording.banks):
        raise TapsError("--drafter", "not those of --bank", expected=sorted(recording.banks), found=sorted(drafters))
    token_ids = next(iter(drafters.values())).head.token_ids
    size, banks_size = None if token_ids is None else len(token_ids), recording.drafting["draft_vocab_size"]
    if size != banks_size:
        expected, found = (f"{n} tokens" if n else "the whole vocabulary" for n in (banks_size, size))
        raise TapsError(f"--draft-vocab {args.draft_vocab}", "not that of the banks", expected=expected, found=found)


def decode_text(
    target: Target, drafters: Sequence[Drafting], row: Row, options: Options, text: RecordedText, bar: Any
) -> Decoded:
    """Returns the live answer to a text's prompt."""
    from taps.decoding.engine import decode

    decoded = decode(
        target,
        drafters,
        text.prompt,
        strategy=row.strategy,
        options=options,
        max_new_tokens=text.max_new_tokens,
        sampling=text.sampling,
        uniforms=text.uniforms,
        sequence=text.index,
    )
    bar.update()
    return decoded


def decode_text_plainly(target: Target, text: RecordedText, bar: Any) -> Plain:
    """Returns the same by plain decoding at batch size 1."""
    from taps.decoding.plain import decode_plainly

    plain = decode_plainly(
        target,
        text.prompt,
        max_new_tokens=text.max_new_tokens,
        sampling=text.sampling,
        uniforms=text.uniforms,
    )
    bar.update()
    return plain


def replay_of(row: Row, recording: Recording, options: Options) -> Cycles:
    """Returns the cycles that the replay takes over all answers."""
    return walk(row.strategy, [recording.banks[name] for name in row.drafters], recording.text, options)


# --- what is reported ------------------------------------------------------------------------------------------------


def report_row(
    row: Row, texts: Sequence[RecordedText], decoded: Sequence[Decoded], replayed: Cycles, cost: CostModel | None
) -> dict[str, Any]:
    """Returns counts of equal and different texts and cycles, tau and speed of one strategy."""
    compared, different = 0, []
    for text, answer in zip(texts, decoded, strict=True):
        num_cycles, unequal = compare_cycles(text, answer.tokens, answer.cycles, replayed)
        compared += num_cycles
        different += unequal
    cycles = [cycle for answer in decoded for cycle in answer.cycles]
    seconds = [answer.seconds for answer in decoded]
    total = sum(seconds[1:], seconds[0])
    num_tokens = sum(cycle.emitted for cycle in cycles)
    report = {
        "strategy": row.strategy.name,
        "drafters": "+".join(row.drafters),
        "num_draft_tokens": row.num_draft_tokens,
        **report_texts(texts, [answer.tokens for answer in decoded]),
        "num_tokens": num_tokens,
        "num_cycles": len(cycles),
        "tau": num_tokens / len(cycles) if cycles else None,
        "num_compared_cycles": compared,
        "num_different_cycles": len(different),
        "different_cycles": different[:_LISTED],
        "seconds": asdict(total),
        "outside_share": total.outside_share,
        "tokens_per_s": num_tokens / total.decoding if cycles else None,
    }
    if cost and cycles:
        columns = {name: _column(cycles, name) for name in ("emitted", "num_nodes", "num_drafted")}
        report["predicted_tokens_per_s"] = cost.tokens_per_s(row.strategy.name, row.num_draft_tokens, **columns)
    return report


def report_plain(texts: Sequence[RecordedText], plain: Sequence[Plain], cost: CostModel | None) -> dict[str, Any]:
    """Returns the same of plain decoding, as far as it applies."""
    num_tokens = sum(len(answer.tokens) - 1 for answer in plain)
    seconds = sum(answer.decoding_s for answer in plain)
    report = {
        **report_texts(texts, [answer.tokens for answer in plain]),
        "num_tokens": num_tokens,
        "tokens_per_s": num_tokens / seconds if num_tokens else None,
    }
    return report | ({"predicted_tokens_per_s": cost.plain_tokens_per_s} if cost else {})


def report_texts(texts: Sequence[RecordedText], answers: Sequence[np.ndarray]) -> dict[str, Any]:
    """Returns how many answers are those recorded, and where the others leave them."""
    found = [first_difference(tokens, text.answer) for tokens, text in zip(answers, texts, strict=True)]
    divergences = [
        {"id": text.id, "turn": text.turn, "token": place}
        for text, place in zip(texts, found, strict=True)
        if place is not None
    ]
    return {"num_texts": len(texts), "num_equal_texts": found.count(None), "divergences": divergences}


def summary(content: dict[str, Any]) -> str:
    """Returns one line of totals."""
    rows = content["rows"]
    num_texts, num_equal = (sum(row[name] for row in rows) for name in ("num_texts", "num_equal_texts"))
    compared, different = (sum(row[name] for row in rows) for name in ("num_compared_cycles", "num_different_cycles"))
    outside = max((row["outside_share"] for row in rows), default=0.0)
    return (
        f"{num_equal} of {num_texts} texts as recorded, {compared - different} of {compared} cycles as replayed, "
        f"{len(rows)} strategies, at most {outside:.0%} of the time outside the models"
    )


def _column(cycles: Sequence[Cycle], name: str) -> np.ndarray:
    return np.array([getattr(cycle, name) for cycle in cycles])


if __name__ == "__main__":
    run(main)
