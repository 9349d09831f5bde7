"""Live decoding beside the recording: where texts part, which cycles differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taps.decoding.walk import Cycles
from taps.model.sampling import Draws, Sampling
from taps.plumbing.artefacts import read_tensors

if TYPE_CHECKING:
    from taps.decoding.engine import Cycle

_COMPARED = ("start", "accepted", "emitted", "chosen")


@dataclass(frozen=True, kw_only=True)
class RecordedText:
    """One sequence of a trace and what it takes to decode it again.

    Attributes:
        id: Id of the prompt.
        turn: Which turn of the dialogue it answers, from 0.
        index: Place in the trace.
        prompt: Tokens before the answer.
        answer: int32 [n] recorded tokens.
        max_new_tokens: Most tokens it might have had.
        sampling: How they were picked.
        draws: The random numbers that picked them.
    """

    id: str
    turn: int
    index: int
    prompt: list[int]
    answer: np.ndarray
    max_new_tokens: int
    sampling: Sampling
    draws: Draws


def read_texts(trace: Path, num_prompts: int) -> list[RecordedText]:
    """Returns the sequences of a trace's first prompts, all turns of each."""
    tensors, meta = read_tensors(trace, kind="trace", names=("tokens", "offsets", "prompt_lengths"), framework="np")
    wanted = set(list(dict.fromkeys(meta["ids"]))[:num_prompts])
    texts = []
    for index, (name, turn) in enumerate(zip(meta["ids"], meta["turns"], strict=True)):
        if name in wanted:
            tokens = tensors["tokens"][tensors["offsets"][index] : tensors["offsets"][index + 1]]
            prompt_length = int(tensors["prompt_lengths"][index])
            texts.append(
                RecordedText(
                    id=name,
                    turn=turn,
                    index=index,
                    prompt=tokens[:prompt_length].tolist(),
                    answer=tokens[prompt_length:],
                    max_new_tokens=meta["max_new_tokens"],
                    sampling=Sampling(**meta["sampling"]),
                    draws=Draws(meta["seed"], name, turn),
                )
            )
    return texts


def first_difference(tokens: np.ndarray, recorded: np.ndarray) -> int | None:
    """Returns the index of the first token that differs or that only one of the two has; None if all are equal."""
    shared = min(len(tokens), len(recorded))
    different = np.flatnonzero(tokens[:shared] != recorded[:shared])
    if len(different):
        return int(different[0])
    return None if len(tokens) == len(recorded) else shared


def compare_cycles(
    text: RecordedText, tokens: np.ndarray, cycles: Sequence[Cycle], replayed: Cycles
) -> tuple[int, list[dict[str, Any]]]:
    """Returns (number of cycles compared, the different ones), in root, accepted, emitted and drafter.

    Cycles of a live answer count up to the first that emits a token other than recorded.

    Args:
        text: The sequence as it was recorded.
        tokens: int [n] of the live answer.
        cycles: Of the live answer.
        replayed: Of a walk over the whole trace.
    """
    rows = np.flatnonzero(replayed.sequence == text.index)
    expected = [{name: int(getattr(replayed, name)[row]) for name in _COMPARED} for row in rows]
    live = [{name: getattr(cycle, name) for name in _COMPARED} for cycle in cycles]
    divergence = first_difference(tokens, text.answer)
    if divergence is not None:
        live = [cycle for cycle in live if cycle["start"] + cycle["emitted"] < divergence]
        expected = expected[: len(live)]
    count = max(len(live), len(expected))
    different = [
        {"id": text.id, "turn": text.turn, "cycle": n + 1, "live": one, "replay": other}
        for n, (one, other) in enumerate(zip(_filled(live, count), _filled(expected, count), strict=True))
        if one != other
    ]
    return count, different


def _filled(cycles: list[dict[str, int]], count: int) -> list[dict[str, int] | None]:
    return [*cycles, *[None] * (count - len(cycles))]
