"""Reads a trace and the draft banks made along it, and refuses what does not belong together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from taps.decoding.trees import Trees
from taps.decoding.walk import Bank, Text, read_text
from taps.plumbing.artefacts import read_envelope, read_tensors
from taps.plumbing.errors import ArtefactError
from taps.plumbing.provenance import digest_of, rebuild_command

_SAME_DRAFTING = ("depth", "top_k", "num_nodes", "draft_vocab_size")  # what banks must share to be compared


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A recorded text and what each drafter would have drafted along it.

    Attributes:
        text: The answers.
        banks: Drafter name -> its bank.
        trace_meta: `meta` of the trace: ids, turns, sampling, seed ...
        drafting: Options that all banks were drafted with: depth, top_k, num_nodes, draft_vocab_size.
    """

    text: Text
    banks: dict[str, Bank]
    trace_meta: dict[str, Any]
    drafting: dict[str, Any]


def load_recording(trace: Path, banks: Mapping[str, Path], *, with_prompts: bool = False) -> Recording:
    """Returns the trace and its banks (drafter name -> file, at least one).

    Args:
        trace: Recorded text.
        banks: Drafter -> bank along it.
        with_prompts: Whether to read the prompts' features, too, for strategies that use them.

    Raises:
        ArtefactError: a file is broken, a bank was drafted along another text or under another sampling than the
            trace, or two banks were drafted with different options.
    """
    facts = {name: read_envelope(path, kind="bank")["meta"] for name, path in banks.items()}
    first = next(iter(banks))
    drafting = {key: facts[first].get(key) for key in _SAME_DRAFTING}
    digest = digest_of(trace)
    for name, path in banks.items():
        if facts[name]["trace"] != digest:
            raise ArtefactError(path, f"drafted along another text than {trace}", remedy=rebuild_command(path))
        other = {key: facts[name].get(key) for key in _SAME_DRAFTING}
        if other != drafting:
            raise ArtefactError(
                path,
                "drafted with other options",
                expected=f"those of {banks[first]}: {drafting}",
                found=other,
                remedy=rebuild_command(path),
            )
    names = ("tokens", "offsets", "prompt_lengths")
    tensors, meta = read_tensors(trace, kind="trace", names=names, framework="np")
    text = read_text(tensors["tokens"], tensors["offsets"], tensors["prompt_lengths"], drafting["depth"] + 1)
    if with_prompts:
        text = replace(text, prompt_features=prompt_features(trace, tensors["offsets"], tensors["prompt_lengths"]))
    for name, path in banks.items():
        if facts[name].get("sampling", meta["sampling"]) != meta["sampling"]:
            raise ArtefactError(
                path, "drafted for another sampling", expected=meta["sampling"], found=facts[name]["sampling"]
            )
    loaded = {name: _load_bank(name, path, text) for name, path in banks.items()}
    return Recording(text=text, banks=loaded, trace_meta=meta, drafting=drafting)


def prompt_features(trace: Path, offsets: np.ndarray, prompt_lengths: np.ndarray) -> np.ndarray:
    """Returns float32 [S, h]: the target's feature of the last token of each prompt; reads these rows alone.

    Args:
        trace: Verified before.
        offsets: int [S + 1] first token of each sequence.
        prompt_lengths: int [S].
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(trace, framework="pt") as file:  # numpy has no bfloat16
            features = file.get_slice("features")
            last = (offsets[:-1] + prompt_lengths - 1).tolist()
            rows = [features[place : place + 1].float().numpy() for place in last]
    except SafetensorError as error:
        raise ArtefactError(trace, f"has no readable features ({error})", remedy=rebuild_command(trace)) from None
    width = features.get_shape()[1]
    return np.concatenate([np.zeros((0, width), np.float32), *rows])


def _load_bank(name: str, path: Path, text: Text) -> Bank:
    tensors, _ = read_tensors(path, kind="bank", framework="np")
    offsets = tensors.pop("offsets")
    if not np.array_equal(offsets, text.offsets):
        raise ArtefactError(
            path,
            "holds other positions than its trace",
            expected=f"{text.offsets[-1]} positions of {len(text.offsets) - 1} answers",
            found=f"{offsets[-1]} of {len(offsets) - 1}",
            remedy=rebuild_command(path),
        )
    return Bank.of(name, Trees(**tensors), text)
