"""Reports how much of the benchmarks' prompts stands in the training corpora: word for word, and by 13-grams.

    python -m taps.overlap --corpus math=results/laptop/corpora/math.jsonl \\
        --prompts gsm8k=results/laptop/prompts/gsm8k.jsonl --output results/laptop/overlap.json

A draft model that was trained on the benchmark's own questions would look better than it is. Texts are compared as
lower case words without punctuation, turn by turn. A prompt is
- exact: one of its turns is word for word a training turn;
- shared: it has at least one run of 13 words in common with a training turn;
- covered to the share of its 13-grams that stand in the corpus (mean over the prompts that have any).

Output (JSON, kind `overlap`): one entry for each pair: corpus, benchmark, num_prompts, num_too_short (no turn of 13
words: only exact can find them), num_exact, num_shared, mean_coverage, examples (ids of up to five prompts, exact ones
first, then the most covered). Memory holds the corpus and the prompts' grams.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taps.plumbing.artefacts import read_jsonl, write_json
from taps.plumbing.cli import NAMED_PATHS, by_name, run, stage_parser
from taps.plumbing.provenance import provenance

GRAM = 13
"""Words in a row that hardly two texts share by chance. Source: the contamination studies of GPT-3 and after."""

Words = tuple[str, ...]


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.overlap", __doc__)
    parser.add_argument("--corpus", **NAMED_PATHS, required=True, metavar="NAME=FILE", help="JSONL of taps.corpus")
    parser.add_argument("--prompts", **NAMED_PATHS, required=True, metavar="NAME=FILE", help="JSONL of taps.prompts")
    parser.add_argument("--output", type=Path, required=True, help="JSON to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    options = build_parser().parse_args(argv)
    corpora, benchmarks = by_name(options.corpus, "--corpus"), by_name(options.prompts, "--prompts")
    indices = {name: index_prompts(read_jsonl(path, kind="prompts")) for name, path in benchmarks.items()}
    entries = []
    for corpus, path in corpora.items():
        turns = [turn["text"] for row in read_jsonl(path, kind="corpus") for turn in row["turns"]]
        for benchmark, entry in zip(indices, overlaps(turns, indices.values()), strict=True):
            entries.append({"corpus": corpus, "benchmark": benchmark, **entry})
            counts = "{num_exact} exact, {num_shared} shared of {num_prompts}".format_map(entry)
            print(f"{corpus} / {benchmark}: {counts}")
    inputs = {f"corpus_{name}": path for name, path in corpora.items()}
    inputs |= {f"prompts_{name}": path for name, path in benchmarks.items()}
    write_json(options.output, entries, kind="overlap", provenance=provenance(stage="taps.overlap", inputs=inputs))


# --- words and grams -------------------------------------------------------------------------------------------------


def words(text: str) -> Words:
    """Returns the words of a text in lower case, without punctuation."""
    return tuple(re.findall(r"\w+", text.lower()))


def grams(text: Words) -> Iterator[Words]:
    """Yields all runs of `GRAM` words; nothing for a shorter text."""
    return (text[i : i + GRAM] for i in range(len(text) - GRAM + 1))


@dataclass(kw_only=True)
class PromptIndex:
    """The prompts of one benchmark, ready to be found in running text."""

    ids: list[str] = field(default_factory=list)
    """Of the prompts, in order."""
    num_grams: list[int] = field(default_factory=list)
    """Distinct grams of each prompt; 0 for one whose turns are all too short."""
    by_turn: dict[Words, list[int]] = field(default_factory=dict)
    """Words of a turn -> the prompts that have it."""
    by_gram: dict[Words, list[int]] = field(default_factory=dict)
    """Gram -> the prompts that contain it."""


def index_prompts(prompts: Iterable[Mapping[str, Any]]) -> PromptIndex:
    """Returns the index of a benchmark's prompts {"id", "turns"}."""
    index = PromptIndex()
    for number, prompt in enumerate(prompts):
        turns = {words(turn) for turn in prompt["turns"]} - {()}
        own = {gram for turn in turns for gram in grams(turn)}
        index.ids.append(prompt["id"])
        index.num_grams.append(len(own))
        for turn in turns:
            index.by_turn.setdefault(turn, []).append(number)
        for gram in own:
            index.by_gram.setdefault(gram, []).append(number)
    return index


# --- search ----------------------------------------------------------------------------------------------------------


def overlaps(texts: Iterable[str], indices: Iterable[PromptIndex]) -> list[dict[str, Any]]:
    """Returns the overlap of running texts with each index.

    Args:
        texts: Turns of a training corpus, read once.
        indices: Of the benchmarks.
    """
    indices = list(indices)
    wanted_turns = {turn for index in indices for turn in index.by_turn}
    wanted_grams = {gram for index in indices for gram in index.by_gram}
    found_turns: set[Words] = set()
    found_grams: set[Words] = set()
    for text in map(words, texts):
        if text in wanted_turns:
            found_turns.add(text)
        found_grams.update(wanted_grams.intersection(grams(text)))
    return [summary(index, found_turns, found_grams) for index in indices]


def summary(index: PromptIndex, found_turns: set[Words], found_grams: set[Words]) -> dict[str, Any]:
    """Returns counts, mean coverage and examples of one benchmark, given what was found of all of them."""
    exact = {number for turn in found_turns for number in index.by_turn.get(turn, ())}
    hits = [0] * len(index.ids)
    for gram in found_grams:
        for number in index.by_gram.get(gram, ()):
            hits[number] += 1
    coverage = {i: hits[i] / total for i, total in enumerate(index.num_grams) if total}
    ranked = sorted(range(len(hits)), key=lambda i: (i not in exact, -coverage.get(i, 0.0), i))
    return {
        "num_prompts": len(index.ids),
        "num_too_short": len(index.ids) - len(coverage),
        "num_exact": len(exact),
        "num_shared": sum(hit > 0 for hit in hits),
        "mean_coverage": round(sum(coverage.values()) / max(1, len(coverage)), 6),
        "examples": [index.ids[i] for i in ranked[:5] if i in exact or hits[i]],
    }


if __name__ == "__main__":
    run(main)
