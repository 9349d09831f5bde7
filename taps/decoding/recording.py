"""Reads a trace and the draft banks made along it, and refuses what does not belong together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from taps.decoding.trees import Trees
from taps.decoding.walk import Bank, Text, read_text
from taps.model.hidden_states import FINAL, select
from taps.plumbing.artefacts import read_envelope, read_tensors, verify_tensors
from taps.plumbing.errors import ArtefactError
from taps.plumbing.lineage import check_label, common_cause
from taps.plumbing.provenance import digest_of
from taps.plumbing.remedies import rebuild_command

_SAME_DRAFTING = ("depth", "top_k", "num_nodes", "draft_vocab_size")  # what banks must share to be compared


class Banks(Mapping[str, Bank]):
    """Drafter name -> its bank, read when it is first asked for; those of a large study do not fit into memory at once.

    Args:
        paths: Drafter -> file, verified before.
        text: Along which they were drafted.
    """

    def __init__(self, paths: Mapping[str, Path], text: Text) -> None:
        self._paths, self._text = dict(paths), text
        self._read: dict[str, Bank] = {}

    def __getitem__(self, name: str) -> Bank:
        if name not in self._read:
            self._read[name] = _load_bank(name, self._paths[name], self._text)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def keep_only(self, names: Iterable[str]) -> None:
        """Forgets all other banks until they are asked for again."""
        kept = set(names)
        self._read = {name: bank for name, bank in self._read.items() if name in kept}


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A recorded text and what each drafter would have drafted along it.

    Attributes:
        text: The target's answers, ready to be walked.
        banks: Drafter name -> its bank.
        trace_meta: `meta` of the trace: ids, turns, sampling, seed ...
        drafting: Options that all banks were drafted with: depth, top_k, num_nodes, draft_vocab_size.
    """

    text: Text
    banks: Mapping[str, Bank]
    trace_meta: dict[str, Any]
    drafting: dict[str, Any]

    def keep_only(self, names: Iterable[str]) -> None:
        """Forgets the other banks until they are asked for again, where they came from files."""
        if isinstance(self.banks, Banks):
            self.banks.keep_only(names)


def load_recording(trace: Path, banks: Mapping[str, Path], *, with_prompts: bool = False) -> Recording:
    """Returns the trace and its banks (drafter name -> file, at least one).

    Args:
        trace: File of the recorded text.
        banks: Drafter -> bank along it.
        with_prompts: Whether to read the prompts' features, too, for strategies that use them.

    Raises:
        ArtefactError: a file is broken, a bank is another drafter's or was drafted along another text, for another
            target or under another sampling than the trace, or two banks were drafted with different options.
    """
    facts = {name: verify_tensors(path, kind="bank")["meta"] for name, path in banks.items()}
    check_drafters(banks, facts)
    first = next(iter(banks))
    drafting = {key: facts[first].get(key) for key in _SAME_DRAFTING}
    digest = digest_of(trace)
    for name, path in banks.items():
        if facts[name]["trace"] != digest:
            raise ArtefactError(path, f"drafted along another text than {trace}", remedy=rebuild_command(path, "bank"))
        other = {key: facts[name].get(key) for key in _SAME_DRAFTING}
        if other != drafting:
            raise ArtefactError(
                path,
                "drafted with other options",
                expected=f"those of {banks[first]}: {drafting}",
                found=other,
                remedy=rebuild_command(path, "bank"),
            )
    for cause in ("target", "draft_vocab"):
        common_cause([(trace, "trace"), *((path, "bank") for path in banks.values())], cause)
    names = ("tokens", "offsets", "prompt_lengths")
    tensors, meta = read_tensors(trace, kind="trace", names=names, framework="np")
    text = read_text(tensors["tokens"], tensors["offsets"], tensors["prompt_lengths"], drafting["depth"] + 1)
    if with_prompts:
        held = meta.get("hidden_states", (FINAL,))  # older traces do not say
        features = prompt_features(trace, tensors["offsets"], tensors["prompt_lengths"], held)
        text = replace(text, prompt_features=features)
    for name, path in banks.items():
        if facts[name].get("sampling", meta["sampling"]) != meta["sampling"]:
            raise ArtefactError(
                path, "drafted for another sampling", expected=meta["sampling"], found=facts[name]["sampling"]
            )
    return Recording(text=text, banks=Banks(banks, text), trace_meta=meta, drafting=drafting)


def prompt_features(
    trace: Path, offsets: np.ndarray, prompt_lengths: np.ndarray, hidden_states: Sequence[str]
) -> np.ndarray:
    """Returns float32 [S, h]: the target's final state of the last token of each prompt; reads these rows alone.

    Args:
        trace: File, which was verified before.
        offsets: int [S + 1] first token of each sequence.
        prompt_lengths: int [S] tokens of each prompt.
        hidden_states: What the trace's features hold.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(trace, framework="pt") as file:  # numpy has no bfloat16
            features = file.get_slice("features")
            last = (offsets[:-1] + prompt_lengths - 1).tolist()
            rows = [select(features[place : place + 1], hidden_states, (FINAL,)).float().numpy() for place in last]
    except SafetensorError as error:
        raise ArtefactError(trace, f"has no readable features ({error})", remedy=rebuild_command(trace)) from None
    hidden = features.get_shape()[1] // len(hidden_states)
    return np.concatenate([np.zeros((0, hidden), np.float32), *rows])


def check_drafters(banks: Mapping[str, Path], facts: Mapping[str, Mapping[str, Any]]) -> None:
    """Checks that every bank is of the drafter that its flag names.

    Args:
        banks: Drafter -> bank, as the flags say.
        facts: Drafter -> `meta` of that bank.

    Raises:
        ArtefactError: a bank says that it is another drafter's.
    """
    for name, path in banks.items():
        check_label(path, "drafter", facts[name].get("drafter"), name, flag=f"--bank {name}=")


def _load_bank(name: str, path: Path, text: Text) -> Bank:
    tensors, _ = read_tensors(path, kind="bank", framework="np")
    offsets = tensors.pop("offsets")
    if not np.array_equal(offsets, text.offsets):
        raise ArtefactError(
            path,
            "holds other positions than its trace",
            expected=f"{text.offsets[-1]} positions of {len(text.offsets) - 1} answers",
            found=f"{offsets[-1]} of {len(offsets) - 1}",
            remedy=rebuild_command(path, "bank"),
        )
    return Bank.of(name, Trees(**tensors), text)


def drafters_of_banks(banks: Sequence[Path]) -> dict[str, str]:
    """Returns {"drafter.<name>": digest} of the draft models behind the banks, as far as these name them.

    Raises:
        ArtefactError: two banks of one name are of different draft models.
    """
    by_name: dict[str, list[Path]] = defaultdict(list)
    for path in banks:
        by_name[read_envelope(path, kind="bank")["meta"]["drafter"]].append(path)
    found = {name: common_cause([(path, "bank") for path in paths], "drafter") for name, paths in by_name.items()}
    return {f"drafter.{name}": cause["drafter"] for name, cause in found.items() if cause}
