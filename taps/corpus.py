"""Reads one training source into normalised conversations and audits it: read = kept + dropped.

    python -m taps.corpus --reader sharegpt --input resources/sharegpt/ShareGPT_V3.json --max-rows 2000 \\
        --output results/laptop/corpora/chat.jsonl --audit results/laptop/corpora/chat.audit.json
    python -m taps.corpus --reader reasoning_gym --task gsm_symbolic --rows 1500 --seed 0 \\
        --output results/laptop/corpora/math.jsonl --audit results/laptop/corpora/math.audit.json

    python -m taps.corpus --reader gsm8k_solutions --part 0:0.75 --input resources/gsm8k/test.jsonl \\
        --output results/laptop/corpora/math.jsonl --audit results/laptop/corpora/math.audit.json

Files are streamed: memory does not grow with their size. No bad record stops a run; each is dropped with a reason.
`--part` takes those whose hash lies in an interval: the rest of the file can be a benchmark (`taps.prompts --part`).

Output (JSON lines, kind `corpus`): {"id": unique text, "turns": [{"role": "system|user|assistant", "text"}, ...]},
an optional system turn, then user and assistant by turns, the assistant last. An answer that its authors marked as not
to be learnt (`weight` 0, `train` false) says "taught": false.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from taps.data.audit import Audit
from taps.data.corpus_reader import CORPUS_READERS, CorpusReader, read_conversations
from taps.data.json_stream import CUT_OFF, Record
from taps.data.records import stream_records
from taps.data.sources import add_source_flags, settle_source
from taps.plumbing.artefacts import write_json, write_jsonl
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.provenance import provenance


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.corpus", __doc__)
    reads = "; ".join(f"{name}: {reader.title}" for name, reader in CORPUS_READERS.items())
    parser.add_argument("--reader", choices=list(CORPUS_READERS), required=True, help=reads)
    add_source_flags(parser)
    parser.add_argument("--max-rows", type="number", help="stop after this many kept conversations")
    parser.add_argument("--rows", type="number", help="reasoning_gym: number of problems to generate")
    parser.add_argument("--seed", type="seed", default=0, help="reasoning_gym: seed of the problems")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    options = build_parser().parse_args(argv)
    facts, reader = settle_source(options), CORPUS_READERS.find(options.reader)
    records, audit = generate(reader, options) if reader.generate else read(options)
    rows = read_conversations(noting_cuts(records, audit), audit, reader=reader, part=options.part)
    origin = provenance(
        stage="taps.corpus",
        inputs={f"input_{number}": path for number, path in enumerate(options.input)},
        **facts,
        max_rows=options.max_rows,
        rows=options.rows,
        seed=options.seed,
    )
    write_jsonl(options.output, at_most(rows, options.max_rows, audit), kind="corpus", provenance=origin)
    write_json(options.audit, audit.content(), kind="audit", provenance=origin)
    print(audit)


def read(options: argparse.Namespace) -> tuple[Iterator[Record], Audit]:
    """Returns the records of the input files, and where to count them."""
    if not options.input:
        raise TapsError(f"--reader {options.reader}", "needs --input")
    records = chain.from_iterable(stream_records(path) for path in options.input)
    return records, Audit(source=", ".join(path.name for path in options.input))


def generate(reader: CorpusReader, options: argparse.Namespace) -> tuple[Iterator[Record], Audit]:
    """Returns as many records as asked for, and where to count them."""
    assert reader.generate, "a reader that makes its records itself"
    if not options.task or not options.rows:
        raise TapsError(f"--reader {options.reader}", "needs --task and --rows")
    records = reader.generate(options.task, rows=options.rows, seed=options.seed, templates=options.templates)
    return records, Audit(source=f"{options.reader} {options.task}, seed {options.seed}")


def noting_cuts(records: Iterable[Record], audit: Audit) -> Iterator[Record]:
    """Yields the records; notes where a file ends in the middle of one."""
    for record in records:
        if record.problem == CUT_OFF:
            audit.notes.append(f"the file ends inside record {record.index}; the {record.index} before it were read")
        yield record


def at_most(rows: Iterable[dict], max_rows: int | None, audit: Audit) -> Iterator[dict]:
    """Yields up to `max_rows` rows and notes that there may be more.

    Raises:
        TapsError: there are none, so that no empty corpus is ever written.
    """
    for number, row in enumerate(rows, start=1):
        yield row
        if number == max_rows:
            audit.notes.append(f"reading stopped after {max_rows} kept conversations, as asked")
            break
    if not audit.kept:
        raise audit.nothing_usable("conversation")


if __name__ == "__main__":
    run(main)
