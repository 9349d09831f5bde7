"""Records the target's own answers to a benchmark, once per temperature and seed: tokens and features.

    python -m taps.trace --target results/laptop/target --prompts results/laptop/prompts/gsm8k.jsonl \
        --temperature 0 --seed 0 --max-new-tokens 64 --output results/laptop/traces/gsm8k/t0_s0.safetensors

Every draft bank and every replay walks these texts: verification is lossless, so no drafter can change them. A prompt
of two turns gives two sequences; the second follows the recorded first answer.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taps.data.dialogue import Asked, Reply, converse, from_prompt
from taps.model.hidden_states import add_flag, held
from taps.plumbing.artefacts import read_jsonl, write_tensors
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.lineage import labels_of
from taps.plumbing.progress import progress
from taps.plumbing.provenance import digests_of, provenance
from taps.plumbing.shards import add_shard_flags, own_part, part_label


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.trace", __doc__)
    parser.add_argument("--target", type=Path, required=True, help="folder of the target model")
    parser.add_argument("--prompts", type=Path, required=True, help="JSON lines written by taps.prompts")
    parser.add_argument("--temperature", type="temperature", default=0.0, help="0 = greedy (default: %(default)s)")
    parser.add_argument("--top-p", type="share", default=1.0, help="nucleus mass (default: %(default)s)")
    parser.add_argument(
        "--top-k", type="count", default=0, help="most likely tokens kept, 0 = all (default: %(default)s)"
    )
    parser.add_argument("--seed", type="seed", default=0, help="decides the draws at temperature > 0")
    parser.add_argument("--max-new-tokens", type="number", required=True, help="most tokens per turn")
    add_flag(parser)
    add_shard_flags(parser, of="the prompts")
    parser.add_argument(
        "--batch-size", type="number", default=32, help="prompts decoded together (default: %(default)s)"
    )
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="compute dtype")
    parser.add_argument("--device", default="cpu", help="torch device (default: %(default)s)")
    parser.add_argument("--trust-remote-code", action="store_true", help="run code shipped with the model")
    parser.add_argument("--output", type=Path, required=True, help="trace to write (.safetensors)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    import torch

    from taps.model.sampling import Sampling
    from taps.model.target import load_target

    prompts = read_jsonl(args.prompts, kind="prompts")
    inputs = digests_of({"target": args.target, "prompts": args.prompts})
    if not prompts:
        raise TapsError(args.prompts, "no prompts", remedy="look at its audit file for why all were dropped")
    target = load_target(
        args.target,
        dtype=getattr(torch, args.dtype),
        device=args.device,
        trust_remote_code=args.trust_remote_code,
        for_decoding=True,
        hidden_states=held(args),
    )
    sampling = Sampling(temperature=args.temperature, top_p=args.top_p, top_k=args.top_k)
    sequences, skipped = record(
        target,
        own_part(prompts, args),
        sampling=sampling,
        seed=args.seed,
        max_new_tokens=args.max_new_tokens,
        batch_size=args.batch_size,
    )
    if not sequences and args.num_shards == 1:
        raise TapsError(args.prompts, "no prompt fits the target's context", expected=f"< {target.max_length} tokens")
    no_features = torch.zeros((0, target.width), dtype=getattr(torch, args.dtype))
    tensors, meta = pack(sequences, no_features=no_features)
    meta |= {
        "skipped": skipped,
        "sampling": sampling.to_json(),
        "seed": args.seed,
        "max_new_tokens": args.max_new_tokens,
        "eos_ids": sorted(target.eos_ids),
        "dtype": args.dtype,
        "hidden_states": list(target.hidden_states),
    }
    labels = labels_of(args.prompts, "benchmark", kind="prompts") | part_label(args)
    made_from = provenance(stage="taps.trace", inputs=inputs, seed=args.seed, device=args.device, **labels)
    write_tensors(args.output, tensors, kind="trace", provenance=made_from, meta=meta)
    print(f"{args.output}: {len(sequences)} sequences, {sum(len(s['answer'].tokens) for s in sequences)} new tokens")


def record(
    target: Any, prompts: Sequence[dict[str, Any]], *, sampling: Any, seed: int, max_new_tokens: int, batch_size: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns (sequences, skipped): one sequence per prompt and turn, ordered by prompt, then turn.

    A sequence holds `id`, `turn`, `category`, `prompt` (tokens) and `answer` (`taps.model.sampler.Answer`). A turn
    whose prompt leaves no room in the context is skipped, as are the turns after it.
    """
    from taps.model.fitting import continue_texts
    from taps.model.sampling import Draws

    rows = {prompt["id"]: (order, prompt["category"]) for order, prompt in enumerate(prompts)}
    sequences: list[dict[str, Any]] = []
    bar = progress(total=sum(len(p["turns"]) for p in prompts) * max_new_tokens, what="tracing", unit="tok")

    def reply(batch: Sequence[Asked]) -> list[Reply]:
        draws = [Draws(seed, asked.dialogue.id, asked.turn) for asked in batch]
        answers = continue_texts(
            target,
            [asked.tokens for asked in batch],
            sampling=sampling,
            draws=draws if sampling.temperature > 0 else None,
            max_new_tokens=max_new_tokens,
            on_tokens=bar.update,
        )
        for asked, answer in zip(batch, answers, strict=True):
            order, category = rows[asked.dialogue.id]
            place = {"order": order, "id": asked.dialogue.id, "turn": asked.turn, "category": category}
            sequences.append(place | {"prompt": asked.tokens, "answer": answer})
        return [Reply.of(target.text_of(answer.tokens)) for answer in answers]

    dialogues = [from_prompt(prompt) for prompt in prompts]
    converse(dialogues, encode=target.render, reply=reply, max_length=target.max_length, batch_size=batch_size)
    bar.close()
    skipped = [
        {"id": dialogue.id, "turn": dialogue.ended.turn, "prompt_tokens": dialogue.ended.num_tokens}
        for dialogue in dialogues
        if dialogue.ended is not None
    ]
    return sorted(sequences, key=lambda s: (s["order"], s["turn"])), skipped


def pack(sequences: list[dict[str, Any]], *, no_features: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the tensors and the per-sequence facts of a trace file; `no_features` is a tensor [0, width]."""
    import torch

    tokens = [torch.tensor([*s["prompt"], *s["answer"].tokens.tolist()], dtype=torch.int32) for s in sequences]
    lengths = torch.tensor([0, *map(len, tokens)])
    tensors = {
        "tokens": torch.cat([torch.zeros(0, dtype=torch.int32), *tokens]),
        "offsets": lengths.cumsum(0),
        "prompt_lengths": torch.tensor([len(s["prompt"]) for s in sequences], dtype=torch.int32),
        # in the compute dtype: live decoding drafts from these
        "features": torch.cat([no_features, *(s["answer"].features for s in sequences)]),
    }
    meta = {
        "ids": [s["id"] for s in sequences],
        "turns": [s["turn"] for s in sequences],
        "categories": [s["category"] for s in sequences],
        "finish": [s["answer"].finish for s in sequences],
    }
    return tensors, meta


if __name__ == "__main__":
    run(main)
