"""Live decoding of recorded prompts beside the recording: texts, cycles and speed of every variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from taps.decoding.comparison import RecordedText, compare_cycles, first_difference
from taps.decoding.cost_model import CostModel
from taps.decoding.engine import Cycle, Decoded, Decoding, Drafting
from taps.decoding.live_drafter import LiveDrafter
from taps.decoding.plain import Plain, PlainDecoding
from taps.decoding.recording import Recording
from taps.decoding.replaying import banks_of
from taps.decoding.strategy import Options
from taps.decoding.variants import Variant
from taps.decoding.walk import Cycles, walk
from taps.model.target import Target
from taps.plumbing.errors import TapsError
from taps.plumbing.progress import progress

_LISTED = 20  # different cycles written out per variant; all are counted


def check_live(
    target: Target,
    drafters: Mapping[str, LiveDrafter],
    recording: Recording,
    variants: Sequence[Variant],
    texts: Sequence[RecordedText],
    *,
    factors: Mapping[str, float],
    cost: CostModel | None = None,
    router: Mapping[str, Sequence[float]] | None = None,
) -> dict[str, Any]:
    """Returns {"plain", "rows", "replay_only"}: counts, tau and speeds of plain decoding and of every variant.

    All variants and plain decoding take turns on each text, cycle by cycle: the next step is that of the one that has
    come least far. So a busy moment of the machine falls on all of them.

    Args:
        target: As it will decode.
        drafters: By name, one for each bank of the recording.
        recording: Whose replay the live cycles are compared with.
        variants: What to decode with; those that need the future are only listed.
        texts: Of the recording's trace, to decode again.
        factors: Drafter -> inverse temperature, for calibrated strategies.
        cost: Adds the predicted speed, and what costed strategies need.
        router: Drafter -> bias and weights, for strategies that read the prompt.
    """
    live = [variant for variant in variants if not variant.strategy.needs_future]
    depth = recording.drafting["depth"]
    options = [
        variant.options(factors, cost=cost, bank_depth=depth, router=router, seed=recording.trace_meta["seed"])
        for variant in live
    ]
    chosen = [
        [drafters[name].of_depth(depth if variant.depth is None else variant.depth) for name in variant.drafters]
        for variant in live
    ]
    plain: list[Plain] = []
    decoded: list[list[Decoded]] = [[] for _ in live]
    for text in progress(texts, what="live decoding", unit="text"):
        plainly = decoding_plainly(target, text)
        decodings = [
            decoding_of(target, own, variant, settings, text)
            for variant, own, settings in zip(live, chosen, options, strict=True)
        ]
        take_turns([plainly, *decodings])
        plain.append(plainly.result())
        for answers, decoding in zip(decoded, decodings, strict=True):
            answers.append(decoding.result())
    beside = report_plain(texts, plain, cost)
    rows = []
    for answers, variant, settings in zip(decoded, live, options, strict=True):
        replayed = walk(variant.strategy, banks_of(variant, recording), recording.text, settings)
        rows.append(with_speedups(report_variant(variant, texts, answers, replayed, cost), beside))
    return {
        "plain": beside,
        "rows": rows,
        "replay_only": [str(variant) for variant in variants if variant.strategy.needs_future],
    }


# --- what is decoded -------------------------------------------------------------------------------------------------


def check_drafters(recording: Recording, drafters: Mapping[str, LiveDrafter], *, draft_vocab: Path | None) -> None:
    """Checks that there is a drafter for each bank, over the banks' draft vocabulary.

    Raises:
        TapsError: there is none, or one too many, or another vocabulary (`draft_vocab` is its file, for the message).
    """
    if set(drafters) != set(recording.banks):
        raise TapsError("--drafter", "not those of --bank", expected=sorted(recording.banks), found=sorted(drafters))
    token_ids = next(iter(drafters.values())).head.token_ids
    size, banks_size = None if token_ids is None else len(token_ids), recording.drafting["draft_vocab_size"]
    if size != banks_size:
        expected, found = (f"{n} tokens" if n else "the whole vocabulary" for n in (banks_size, size))
        raise TapsError(f"--draft-vocab {draft_vocab}", "not that of the banks", expected=expected, found=found)


def decoding_of(
    target: Target, drafters: Sequence[Drafting], variant: Variant, options: Options, text: RecordedText
) -> Decoding:
    """Returns the live answer to a text's prompt, in the making."""
    return Decoding(
        target,
        drafters,
        text.prompt,
        strategy=variant.strategy,
        options=options,
        max_new_tokens=text.max_new_tokens,
        sampling=text.sampling,
        draws=text.draws,
        sequence=text.index,
    )


def decoding_plainly(target: Target, text: RecordedText) -> PlainDecoding:
    """Returns the same by plain decoding at batch size 1."""
    return PlainDecoding(
        target, text.prompt, max_new_tokens=text.max_new_tokens, sampling=text.sampling, draws=text.draws
    )


def take_turns(decodings: Sequence[Decoding | PlainDecoding]) -> None:
    """Takes all answers to their ends, always one step of the one with the fewest tokens."""
    while going := [decoding for decoding in decodings if not decoding.is_complete()]:
        min(going, key=lambda decoding: len(decoding.tokens)).step()


# --- what is reported ------------------------------------------------------------------------------------------------


def report_variant(
    variant: Variant,
    texts: Sequence[RecordedText],
    decoded: Sequence[Decoded],
    replayed: Cycles,
    cost: CostModel | None,
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
        "strategy": variant.strategy.name,
        "drafters": "+".join(variant.drafters),
        "num_draft_tokens": variant.num_draft_tokens,
        "depth": variant.depth,
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
        "per_text": [
            _timed(text, sum(cycle.emitted for cycle in answer.cycles), answer.seconds.decoding)
            for text, answer in zip(texts, decoded, strict=True)
        ],
    }
    if cost and cycles:
        columns = {name: _column(cycles, name) for name in ("emitted", "num_nodes", "num_drafted", "num_levels")}
        report["predicted_tokens_per_s"] = cost.tokens_per_s(
            variant.strategy, variant.num_draft_tokens, depth=variant.depth, **columns
        )
    return report


def _timed(text: RecordedText, num_tokens: int, seconds: float) -> dict[str, Any]:
    return {"id": text.id, "turn": text.turn, "num_tokens": num_tokens, "seconds": seconds}


def report_plain(texts: Sequence[RecordedText], plain: Sequence[Plain], cost: CostModel | None) -> dict[str, Any]:
    """Returns the same of plain decoding, as far as it applies."""
    num_tokens = sum(len(answer.tokens) - 1 for answer in plain)
    seconds = sum(answer.decoding_s for answer in plain)
    report = {
        **report_texts(texts, [answer.tokens for answer in plain]),
        "num_tokens": num_tokens,
        "tokens_per_s": num_tokens / seconds if num_tokens else None,
        "per_text": [
            _timed(text, len(answer.tokens) - 1, answer.decoding_s) for text, answer in zip(texts, plain, strict=True)
        ],
    }
    return report | ({"predicted_tokens_per_s": cost.plain_tokens_per_s} if cost else {})


def with_speedups(row: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a variant's report with `speedup` and `predicted_speedup`: its speeds as multiples of plain decoding's.

    Both were measured, or timed by `taps.cost`, in turns: how busy the machine was falls out of these.
    """
    found = dict(row)
    for name in ("", "predicted_"):
        speed, other = (report.get(f"{name}tokens_per_s") for report in (row, plain))
        found |= {f"{name}speedup": speed / other} if speed and other else {}
    return found


def report_texts(texts: Sequence[RecordedText], answers: Sequence[np.ndarray]) -> dict[str, Any]:
    """Returns how many answers are those recorded, and where the others leave them."""
    found = [first_difference(tokens, text.answer) for tokens, text in zip(answers, texts, strict=True)]
    divergences = [
        {"id": text.id, "turn": text.turn, "token": place}
        for text, place in zip(texts, found, strict=True)
        if place is not None
    ]
    return {"num_texts": len(texts), "num_equal_texts": found.count(None), "divergences": divergences}


def _column(cycles: Sequence[Cycle], name: str) -> np.ndarray:
    return np.array([getattr(cycle, name) for cycle in cycles])
