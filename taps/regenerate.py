"""Corpus -> the same questions answered by the target itself, to train a draft model on the target's own words.

    python -m taps.regenerate --target results/laptop/target --corpus results/laptop/corpora/chat.jsonl \\
        --temperature 0.7 --seed 0 --max-new-tokens 256 --max-tokens 60000 \\
        --output results/laptop/regenerated/chat.jsonl --audit results/laptop/regenerated/chat.audit.json

The user turns are kept, each is answered after the target's own previous answers. Conversations are taken in the order
of `taps.tokenise`, so with the same seed and size both take the same ones. Sampling is seeded per (conversation, turn).

A conversation ends early where a turn cannot be answered (template, context, empty answer) and where an answer reaches
`--max-new-tokens`; that last turn says `"cut": true`, and no end of turn is taught after it. A conversation without any
answer is dropped with its reason. What is finished is kept in `<output>.journal`: a killed run goes on from there.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps.data.audit import Audit
from taps.data.chat import ChatTokenizer, TokenRow
from taps.data.dialogue import Asked, Reply, batches, converse, from_conversation
from taps.data.mixtures import BEYOND_SIZE, seeded_order
from taps.data.template_losses import add_template_drop_flag, check_template_losses
from taps.plumbing.artefacts import read_jsonl, write_json, write_jsonl
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.journal import Journal
from taps.plumbing.progress import progress
from taps.plumbing.provenance import digests_of, provenance

if TYPE_CHECKING:
    from taps.model.sampling import Sampling
    from taps.model.target import Target

EMPTY_ANSWER, CUT = "empty_answer", "answer_cut"
_CHUNK = 4  # batches between two entries of the journal; within a chunk, prompts of like length share a batch


@dataclass(frozen=True, kw_only=True)
class Answering:
    """How answers are made.

    Attributes:
        sampling: How tokens are picked.
        seed: Decides the draws at temperature > 0.
        max_new_tokens: Most tokens per answer.
        batch_size: Most prompts that are decoded together.
    """

    sampling: Sampling
    seed: int
    max_new_tokens: int
    batch_size: int


def answer(
    target: Target,
    chat: ChatTokenizer,
    conversations: Sequence[Mapping[str, Any]],
    options: Answering,
) -> list[tuple[list[dict[str, Any]], str | None]]:
    """Returns (turns, reason) of each conversation: what was said, and why it ended early, if it did.

    Args:
        target: Answers the user's turns.
        chat: Renders conversations for that target.
        conversations: {"id", "turns"} each; assistant turns are left out.
        options: How answers are made.
    """
    dialogues = [from_conversation(row) for row in conversations]
    converse(
        dialogues,
        encode=chat.encode_prompts,
        reply=partial(_replies, target, options),
        max_length=target.max_length,
        batch_size=options.batch_size,
    )
    return [(dialogue.said, None if dialogue.ended is None else dialogue.ended.reason) for dialogue in dialogues]


def _replies(target: Target, options: Answering, batch: Sequence[Asked]) -> list[Reply]:
    from taps.model.fitting import continue_texts
    from taps.model.sampling import Draws

    draws = [Draws(options.seed, asked.dialogue.id, asked.turn) for asked in batch]
    answers = continue_texts(
        target,
        [asked.tokens for asked in batch],
        sampling=options.sampling,
        draws=draws if options.sampling.temperature > 0 else None,
        max_new_tokens=options.max_new_tokens,
    )
    return [_reply(target.text_of(answer.tokens), whole=answer.finish == "eos") for answer in answers]


def _reply(text: str, *, whole: bool) -> Reply:
    """Returns the assistant's turn; one that was broken off says so and is the last."""
    text = text if whole else text.rstrip("\ufffd")  # half a character
    if not text.strip():
        return Reply(turn=None, ends=EMPTY_ANSWER)
    if whole:
        return Reply.of(text)
    return Reply(turn={"role": "assistant", "text": text, "cut": True}, ends=CUT)


def count_tokens(chat: ChatTokenizer, rows: Sequence[Mapping[str, Any]], max_length: int | None) -> int:
    """Returns the tokens that `taps.tokenise` will find in regenerated conversations."""
    encoded = chat.encode((row["turns"] for row in rows), max_length=max_length)
    return sum(len(row.tokens) for row in encoded if isinstance(row, TokenRow))


def regenerate(
    target: Target,
    chat: ChatTokenizer,
    conversations: Sequence[Mapping[str, Any]],
    journal: Journal,
    options: Answering,
    *,
    max_rows: int | None = None,
    max_tokens: int | None = None,
    max_length: int | None = None,
) -> None:
    """Fills the journal until the size is reached, one numbered entry {"rows", "endings", "num_tokens"} per chunk.

    Chunks of conversations are the same in every run: a run that was killed gives what an undisturbed one gives.

    Args:
        target: Answers the user's turns.
        chat: Renders conversations for that target.
        conversations: In the order in which they are taken.
        journal: Holds what is finished.
        options: How answers are made.
        max_rows: Conversations taken; all by default.
        max_tokens: No chunk is begun once this many tokens are reached.
        max_length: Tokens counted per conversation.
    """
    chunks = batches(conversations[:max_rows], _CHUNK * options.batch_size)
    total = 0
    with progress(total=max_tokens, what="regenerate", unit="tok") as bar:
        for number, chunk in enumerate(chunks):
            if max_tokens is not None and total >= max_tokens:
                break
            if number not in journal.entries:
                journal.write(number, _entry(target, chat, chunk, options, max_length))
            total += journal.entries[number]["num_tokens"]
            bar.update(journal.entries[number]["num_tokens"])


def _entry(
    target: Target,
    chat: ChatTokenizer,
    chunk: Sequence[Mapping[str, Any]],
    options: Answering,
    max_length: int | None,
) -> dict[str, Any]:
    outcomes = answer(target, chat, chunk, options)
    rows, endings = [], []
    for conversation, (turns, reason) in zip(chunk, outcomes, strict=True):
        answered = any(turn["role"] == "assistant" for turn in turns)
        endings.append([conversation["id"], answered, reason])
        if answered:
            rows.append({"id": conversation["id"], "turns": turns})
    return {"rows": rows, "endings": endings, "num_tokens": count_tokens(chat, rows, max_length)}


def to_audit(source: str, entries: Sequence[Mapping[str, Any]], beyond: Sequence[str]) -> Audit:
    """Returns what became of every conversation.

    Args:
        source: Name of the corpus.
        entries: The journal's, one per chunk of conversations.
        beyond: Ids of the conversations that were not reached.
    """
    audit = Audit(source=source)
    for entry in entries:
        for id_, answered, reason in entry["endings"]:
            if not answered:
                audit.drop(reason or "no_question", id_)
                continue
            audit.keep()
            if reason is not None:
                audit.changed[f"ended early, {reason}"] += 1
    for id_ in beyond:
        audit.drop(BEYOND_SIZE, id_)
    return audit


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.regenerate", __doc__)
    add = parser.add_argument
    add("--target", type=Path, required=True, help="folder of the target model")
    add("--corpus", type=Path, required=True, help="JSONL of taps.corpus")
    add("--temperature", type="temperature", default=0.0, help="0 = greedy (default: %(default)s)")
    add("--top-p", type="share", default=1.0, help="nucleus mass (default: %(default)s)")
    add("--top-k", type="count", default=0, help="most likely tokens kept, 0 = all (default: %(default)s)")
    add("--seed", type="seed", required=True, help="seed of the order (as in taps.tokenise) and of the draws")
    add("--max-new-tokens", type="number", default=512, help="most tokens per answer (default: %(default)s)")
    add("--max-rows", type="number", help="answer this many conversations; all by default")
    add("--max-tokens", type="number", help="stop once this many tokens are there to be tokenised")
    add("--max-length", type="number", help="as in taps.tokenise: tokens counted of each conversation")
    add("--batch-size", type="number", default=32, help="prompts decoded together (default: %(default)s)")
    add("--dtype", default="float32", choices=("float32", "bfloat16"), help="compute dtype")
    add("--device", default="cpu", help="torch device (default: %(default)s)")
    add("--trust-remote-code", action="store_true", help="run code shipped with the model")
    add_template_drop_flag(parser)
    add("--output", type=Path, required=True, help="JSONL to write")
    add("--audit", type=Path, required=True, help="JSON to write: read = kept + dropped, with reasons")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    import torch

    from taps.model.sampling import Sampling
    from taps.model.target import load_target

    corpus = read_jsonl(arguments.corpus, kind="corpus")
    order = [corpus[i] for i in seeded_order([row["id"] for row in corpus], arguments.seed)]
    options = Answering(
        sampling=Sampling(temperature=arguments.temperature, top_p=arguments.top_p, top_k=arguments.top_k),
        seed=arguments.seed,
        max_new_tokens=arguments.max_new_tokens,
        batch_size=arguments.batch_size,
    )
    size = {name: getattr(arguments, name) for name in ("max_rows", "max_tokens", "max_length")}
    facts = asdict(options) | size | {"dtype": arguments.dtype, "device": arguments.device}
    inputs = digests_of({"target": arguments.target, "corpus": arguments.corpus})
    settings = facts | inputs
    journal = Journal(arguments.output.with_name(arguments.output.name + ".journal"), settings)
    target = load_target(
        arguments.target,
        dtype=getattr(torch, arguments.dtype),
        device=arguments.device,
        trust_remote_code=arguments.trust_remote_code,
    )
    chat = ChatTokenizer(target.tokenizer, eos_ids=target.eos_ids, where=arguments.target)
    regenerate(target, chat, order, journal, options, **size)
    entries = [journal.entries[number] for number in sorted(journal.entries)]
    rows = [row for entry in entries for row in entry["rows"]]
    reached = sum(len(entry["endings"]) for entry in entries)
    audit = to_audit(arguments.corpus.name, entries, [row["id"] for row in order[reached:]])
    if not rows:
        raise TapsError(arguments.corpus, f"no conversation was answered ({audit})")
    check_template_losses(audit, most=arguments.max_template_drop, where=arguments.corpus)
    origin = provenance(stage="taps.regenerate", inputs=inputs, **facts)
    write_jsonl(arguments.output, rows, kind="corpus", provenance=origin)
    write_json(arguments.audit, audit.content(), kind="audit", provenance=origin)
    journal.remove()
    print(f"{audit}; {sum(entry['num_tokens'] for entry in entries)} tokens")


if __name__ == "__main__":
    run(main)
