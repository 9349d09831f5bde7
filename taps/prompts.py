"""Chooses a benchmark's prompts: normalised, audited, and in an order that grows with their number.

    python -m taps.prompts --reader gsm8k --input resources/gsm8k/test.jsonl --num-prompts 60 --seed 0 \\
        --output results/laptop/prompts/gsm8k.jsonl --audit results/laptop/prompts/gsm8k.audit.json

A subset is the first `--num-prompts` in the order of sha256("seed:id"): a larger number extends a smaller one, so that
more prompts never change the results of those already there. 0 takes all, in the file's own order.

Output (JSON lines, kind `prompts`): {"id": unique text, "category": text or null, "turns": [text, ...],
"reference": [text, ...] or null}.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from taps.data.audit import Audit
from taps.data.benchmarks import READERS, Prompt, read_prompts
from taps.data.conversations import UniqueIds
from taps.data.generated import stream_generated
from taps.data.mixtures import seeded_order
from taps.data.records import stream_records
from taps.plumbing.artefacts import write_json, write_jsonl
from taps.plumbing.cli import add_source_flags, run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.provenance import provenance


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.prompts", __doc__)
    parser.add_argument("--reader", choices=sorted(READERS), required=True, help="the benchmark's own format")
    add_source_flags(parser)
    parser.add_argument("--num-prompts", type=int, default=0, help="size of the subset; 0 takes all")
    parser.add_argument("--seed", type=int, default=0, help="seed of the subset; reasoning_gym: of the problems")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    options = build_parser().parse_args(argv)
    if options.num_prompts < 0:
        raise TapsError(f"--num-prompts {options.num_prompts}", "negative", expected="0 for all, or a number")
    prompts, audit = generate(options) if options.reader == "reasoning_gym" else read(options)
    if not prompts:
        raise TapsError(audit.source, "no usable prompt", found=audit, remedy="check --reader and the file")
    if options.reader != "reasoning_gym":
        prompts = subset(prompts, options.num_prompts, options.seed, audit)
    origin = provenance(
        stage="taps.prompts",
        inputs={f"input_{number}": path for number, path in enumerate(options.input)},
        reader=options.reader,
        task=options.task,
        num_prompts=options.num_prompts,
        seed=options.seed,
    )
    note_repeats(prompts, audit)
    write_jsonl(options.output, prompts, kind="prompts", provenance=origin)
    write_json(options.audit, audit.content(), kind="audit", provenance=origin)
    print(f"{audit}; {len(prompts)} chosen")


def read(options: argparse.Namespace) -> tuple[list[Prompt], Audit]:
    """Returns all prompts of the input files, and what became of their records."""
    if not options.input:
        raise TapsError(f"--reader {options.reader}", "needs --input")
    audit = Audit(source=", ".join(path.name for path in options.input))
    prompts: list[Prompt] = []
    ids = UniqueIds()
    for path in options.input:
        prefix = f"{path.stem}-" if len(options.input) > 1 else ""
        prompts += read_prompts(stream_records(path), audit, ids, reader=options.reader, prefix=prefix)
    return prompts, audit


def generate(options: argparse.Namespace) -> tuple[list[Prompt], Audit]:
    """Returns as many generated prompts as asked for; the generator's own seed makes them grow by extension."""
    if not options.task or not options.num_prompts:
        raise TapsError("--reader reasoning_gym", "needs --task and --num-prompts")
    audit = Audit(source=f"reasoning_gym {options.task}, seed {options.seed}")
    records = stream_generated(options.task, rows=options.num_prompts, seed=options.seed)
    return list(read_prompts(records, audit, UniqueIds(), reader=options.reader)), audit


def subset(prompts: list[Prompt], num_prompts: int, seed: int, audit: Audit) -> list[Prompt]:
    """Returns the first `num_prompts` prompts in seeded order; all, in their own order, for 0.

    Raises:
        TapsError: there are not that many.
    """
    if num_prompts == 0:
        return prompts
    if num_prompts > len(prompts):
        raise TapsError(
            f"--num-prompts {num_prompts}", "more than there are", found=f"{len(prompts)} in {audit.source}"
        )
    audit.notes.append(f"{num_prompts} of the {len(prompts)} kept were chosen, seed {seed}")
    order = seeded_order([prompt["id"] for prompt in prompts], seed)
    return [prompts[i] for i in order[:num_prompts]]


def note_repeats(prompts: Sequence[Prompt], audit: Audit) -> None:
    """Notes how many prompts are word for word the same as an earlier one."""
    repeats = len(prompts) - len({tuple(prompt["turns"]) for prompt in prompts})
    if repeats:
        audit.notes.append(f"{repeats} of the chosen repeat an earlier one word for word")


if __name__ == "__main__":
    run(main)
