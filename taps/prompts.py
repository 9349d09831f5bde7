"""Chooses a benchmark's prompts: normalised, audited, and in an order that grows with their number.

    python -m taps.prompts --reader gsm8k --input resources/gsm8k/test.jsonl --num-prompts 60 --seed 0 \\
        --output results/laptop/prompts/gsm8k.jsonl --audit results/laptop/prompts/gsm8k.audit.json

A subset is the first `--num-prompts` in the order of sha256("seed:id"): a larger number extends a smaller one, so that
more prompts never change the results of those already there. 0 takes all, in the file's own order. With
`--exclude-overlap`, prompts that a training conversation has, be it with other numbers and names, are left out first.

Output (JSON lines, kind `prompts`): {"id": unique text, "category": text or null, "turns": [text, ...],
"reference": [text, ...] or null}.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from taps.data.audit import Audit
from taps.data.generated import TEMPLATES_OF, known_templates
from taps.data.mixtures import seeded_order
from taps.data.overlap import find_twins
from taps.data.prompt_reader import PROMPT_READERS, PromptReader, read_prompts
from taps.data.record_ids import UniqueIds
from taps.data.records import stream_records
from taps.data.seen_templates import seen_templates
from taps.data.sources import add_source_flags, settle_source
from taps.plumbing.artefacts import read_jsonl, write_json, write_jsonl
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.provenance import provenance

TWIN_IN_TRAINING = "twin_in_training"
"""Reason code of prompts that a training conversation repeats, be it with other numbers and names."""

_MOST_GENERATED = 20  # problems made for each one wanted, before templates that training knows are given up on

Prompt = dict[str, Any]
Found = tuple[Prompt, tuple[str, ...]]  # a prompt, and what was done to its record


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.prompts", __doc__)
    readers = list(PROMPT_READERS)
    parser.add_argument("--reader", choices=readers, required=True, help="the benchmark's own format")
    add_source_flags(parser)
    parser.add_argument("--benchmark", help="what the study calls it; replays compare their label")
    parser.add_argument("--num-prompts", type="count", default=0, help="size of the subset; 0 takes all")
    parser.add_argument("--seed", type="seed", default=0, help="seed of the subset; reasoning_gym: of the problems")
    parser.add_argument(
        "--exclude-overlap",
        type=Path,
        action="append",
        default=[],
        metavar="CORPUS",
        help="JSONL of taps.corpus, repeatable: prompts that it has, be it with other numbers, are left out",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    options = build_parser().parse_args(argv)
    if options.num_prompts < 0:
        raise TapsError(f"--num-prompts {options.num_prompts}", "negative", expected="0 for all, or a number")
    facts, reader = settle_source(options), PROMPT_READERS.find(options.reader)
    corpora = [read_jsonl(path, kind="corpus") for path in options.exclude_overlap]
    training = [row for corpus in corpora for row in corpus]
    prompts, audit = (generate if reader.generate else read)(reader, options, training)
    if not prompts:
        raise audit.nothing_usable("prompt")
    if not reader.generate:
        prompts = subset(prompts, options.num_prompts, options.seed, audit)
    inputs = {f"input_{number}": path for number, path in enumerate(options.input)}
    inputs |= {f"excluded_{number}": path for number, path in enumerate(options.exclude_overlap)}
    origin = provenance(
        stage="taps.prompts",
        inputs=inputs,
        **facts,
        num_prompts=options.num_prompts,
        seed=options.seed,
        **({"benchmark": options.benchmark} if options.benchmark else {}),
    )
    note_repeats(prompts, audit)
    write_jsonl(options.output, prompts, kind="prompts", provenance=origin)
    write_json(options.audit, audit.content(), kind="audit", provenance=origin)
    print(f"{audit}; {len(prompts)} chosen")


def read(
    reader: PromptReader, options: argparse.Namespace, training: Sequence[Mapping[str, Any]]
) -> tuple[list[Prompt], Audit]:
    """Returns all prompts of the input files that training does not have, and what became of their records."""
    if not options.input:
        raise TapsError(f"--reader {options.reader}", "needs --input")
    audit = Audit(source=", ".join(path.name for path in options.input))
    found: list[Found] = []
    ids = UniqueIds()
    for path in options.input:
        prefix = f"{path.stem}-" if len(options.input) > 1 else ""
        records = stream_records(path)
        found += read_prompts(records, audit, ids, reader=reader, prefix=prefix, part=options.part)
    return kept(found, training, audit), audit


def generate(
    reader: PromptReader, options: argparse.Namespace, training: Sequence[Mapping[str, Any]]
) -> tuple[list[Prompt], Audit]:
    """Returns as many generated prompts as asked for; the generator's own seed makes them grow by extension.

    Templates that training knows are left out. A problem that it has in spite of that is replaced by a further one;
    they are made and looked at in lots of the wanted size.
    """
    assert reader.generate, "a reader that makes its records itself"
    wanted = options.num_prompts
    if not options.task or not wanted:
        raise TapsError(f"--reader {options.reader}", "needs --task and --num-prompts")
    audit = Audit(source=f"{options.reader} {options.task}, seed {options.seed}")
    if training and options.task == TEMPLATES_OF:
        options.templates = unseen_templates(options.templates, training, audit)
    rows = wanted * (_MOST_GENERATED if training or options.part else 1)
    records = reader.generate(options.task, rows=rows, seed=options.seed, templates=options.templates)
    found = read_prompts(records, audit, UniqueIds(), reader=reader, part=options.part)
    prompts: list[Prompt] = []
    while len(prompts) < wanted and (lot := list(islice(found, wanted - len(prompts)))):
        prompts += kept(lot, training, audit)
    if len(prompts) < wanted and (training or options.part):
        remedy = "choose other --templates, or another --task"
        raise TapsError(audit.source, "too few prompts that can be used", expected=wanted, found=audit, remedy=remedy)
    return prompts, audit


def unseen_templates(
    templates: Collection[int] | None, training: Sequence[Mapping[str, Any]], audit: Audit
) -> Collection[int] | None:
    """Returns the templates without those that training knows, which are noted.

    Raises:
        TapsError: it knows all of them.
    """
    seen = seen_templates(training, templates)
    if not seen:
        return templates
    left = (known_templates() if templates is None else set(templates)) - set(seen)
    audit.notes.append(f"templates left out, as training has problems like theirs: {', '.join(map(str, seen))}")
    if not left:
        remedy = "choose other --templates, or another --task"
        raise TapsError("--exclude-overlap", "training knows every template", found=audit.notes[-1], remedy=remedy)
    return left


def kept(found: Sequence[Found], training: Sequence[Mapping[str, Any]], audit: Audit) -> list[Prompt]:
    """Returns the prompts that no training conversation repeats; all are counted, those left out are listed."""
    (pairs,) = find_twins([[prompt for prompt, _ in found]], training)
    twins = {pair.prompt: pair for pair in pairs}
    for prompt, notes in found:
        if (twin := twins.get(prompt["id"])) is None:
            audit.keep(notes)
            continue
        where = f"{twin.share:.0%} of it in training conversation {twin.conversation}"
        audit.drop(TWIN_IN_TRAINING, twin.prompt, because=where)
    return [prompt for prompt, _ in found if prompt["id"] not in twins]


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
