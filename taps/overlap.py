"""Reports how much of the benchmarks' prompts stands in the training corpora, word for word and in other numbers.

    python -m taps.overlap --corpus math=results/laptop/corpora/math.jsonl \\
        --prompts gsm8k=results/laptop/prompts/gsm8k.jsonl --output results/laptop/overlap.json

A draft model that was trained on the benchmark's own questions would look better than it is. Turn by turn, a prompt is
- exact: one of its turns is a training turn, but for case and punctuation;
- shared: it has at least one run of 13 words in common with a training turn;
- covered to the share of its 13-grams that stand in the corpus (mean over the prompts that have any);
- a twin: it has a quarter or more of the runs of 5 words of the shorter text in common with one training turn, numbers
  and names taken for equal, or its first turn is there word for word.

Output (JSON, kind `overlap`): one entry for each pair: corpus, benchmark, num_prompts, num_too_short (no turn of 13
words: only exact can find them), num_exact, num_shared, mean_coverage, examples (ids of up to five prompts, exact ones
first, then the most covered), num_twins, twins (prompt, conversation and share of each). Memory holds the corpus and
the prompts' grams. `taps.prompts --exclude-overlap` leaves exact prompts and twins out.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from taps.data.overlap import find_twins, index_prompts, overlaps
from taps.plumbing.artefacts import read_jsonl, write_json
from taps.plumbing.cli import NAMED_PATHS, by_name, run, stage_parser
from taps.plumbing.provenance import provenance


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.overlap", __doc__)
    parser.add_argument("--corpus", **NAMED_PATHS, required=True, metavar="NAME=FILE", help="JSONL of taps.corpus")
    parser.add_argument("--prompts", **NAMED_PATHS, required=True, metavar="NAME=FILE", help="JSONL of taps.prompts")
    parser.add_argument("--output", type=Path, required=True, help="JSON to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    options = build_parser().parse_args(argv)
    corpora, benchmarks = by_name(options.corpus, "--corpus"), by_name(options.prompts, "--prompts")
    prompts = {name: read_jsonl(path, kind="prompts") for name, path in benchmarks.items()}
    indices = {name: index_prompts(rows) for name, rows in prompts.items()}
    entries = []
    for corpus, path in corpora.items():
        conversations = read_jsonl(path, kind="corpus")
        found = overlaps([turn["text"] for row in conversations for turn in row["turns"]], indices.values())
        twins = find_twins(list(prompts.values()), conversations)
        for benchmark, entry, pairs in zip(indices, found, twins, strict=True):
            entry |= {"num_twins": len(pairs), "twins": [asdict(twin) for twin in pairs]}
            entries.append({"corpus": corpus, "benchmark": benchmark, **entry})
            counts = "{num_exact} exact, {num_shared} shared, {num_twins} twins of {num_prompts}".format_map(entry)
            print(f"{corpus} / {benchmark}: {counts}")
    inputs = {f"corpus_{name}": path for name, path in corpora.items()}
    inputs |= {f"prompts_{name}": path for name, path in benchmarks.items()}
    met = [entry["num_exact"] + entry["num_shared"] + entry["num_twins"] for entry in entries]
    print(f"{options.output}: {sum(map(bool, met))} of {len(met)} pairs of corpus and benchmark share prompts")
    write_json(options.output, entries, kind="overlap", provenance=provenance(stage="taps.overlap", inputs=inputs))


if __name__ == "__main__":
    run(main)
