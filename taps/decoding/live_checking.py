"""Live decoding of recorded prompts beside the recording: texts, cycles and speed of every variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from taps.decoding.comparison import RecordedText, compare_cycles, first_difference
from taps.decoding.cost_model import CostModel
from taps.decoding.engine import Cycle, Decoded, Drafting, decode
from taps.decoding.live_drafter import LiveDrafter
from taps.decoding.plain import Plain, decode_plainly
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

    All variants and plain decoding take turns on each text, so that a busy moment of the machine falls on all.

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
    with progress(total=(len(live) + 1) * len(texts), what="live decoding", unit="text") as bar:
        for text in texts:
            plain.append(decode_text_plainly(target, text, bar))
            for answers, variant, own, settings in zip(decoded, live, chosen, options, strict=True):
                answers.append(decode_text(target, own, variant, settings, text, bar))
    rows = []
    for answers, variant, settings in zip(decoded, live, options, strict=True):
        replayed = walk(variant.strategy, banks_of(variant, recording), recording.text, settings)
        rows.append(report_variant(variant, texts, answers, replayed, cost))
    return {
        "plain": report_plain(texts, plain, cost),
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


def decode_text(
    target: Target, drafters: Sequence[Drafting], variant: Variant, options: Options, text: RecordedText, bar: Any
) -> Decoded:
    """Returns the live answer to a text's prompt."""
    decoded = decode(
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
    bar.update()
    return decoded


def decode_text_plainly(target: Target, text: RecordedText, bar: Any) -> Plain:
    """Returns the same by plain decoding at batch size 1."""
    plain = decode_plainly(
        target,
        text.prompt,
        max_new_tokens=text.max_new_tokens,
        sampling=text.sampling,
        draws=text.draws,
    )
    bar.update()
    return plain


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
