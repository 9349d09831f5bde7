"""Builds and trains a tiny target in seconds, for studies that must need no download.

    python -m taps.tiny_target --corpus results/smoke/corpora/math.jsonl --corpus results/smoke/corpora/chat.jsonl \\
        --seed 0 --output results/smoke/target

A two-layer Llama with grouped-query attention, a byte-level tokenizer and a ChatML-like template, trained on the given
corpora until its text has words and most answers end. Equal corpora and seed give equal weights: one thread trains.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps.model.target_folder import finish_target, save_model
from taps.plumbing.artefacts import read_jsonl
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.folders import atomic_folder
from taps.plumbing.progress import progress
from taps.plumbing.provenance import digest_of

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MAX_POSITIONS = 2048
VOCAB_SIZE = 512


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.tiny_target", __doc__)
    parser.add_argument("--corpus", type=Path, action="append", required=True, help="JSONL of taps.corpus, repeatable")
    parser.add_argument("--seed", type="seed", default=0, help="seed of weights and batches")
    parser.add_argument("--steps", type="number", default=240, help="optimiser steps")
    parser.add_argument("--batch-size", type="number", default=4, help="windows per step")
    parser.add_argument("--window", type="number", default=256, help="tokens per window")
    parser.add_argument("--learning-rate", type="rate", default=1e-2, help="peak learning rate of AdamW")
    parser.add_argument("--output", type=Path, required=True, help="the target folder to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    import torch

    options = build_parser().parse_args(argv)
    torch.set_num_threads(1)  # sums in a fixed order, whatever the machine
    torch.manual_seed(options.seed)
    rows = [row for path in options.corpus for row in read_jsonl(path, kind="corpus")]
    tokenizer = byte_tokenizer(turn["text"] for row in rows for turn in row["turns"])
    tokens = corpus_tokens(tokenizer, rows)
    if len(tokens) <= options.window:
        raise TapsError("--corpus", "too little text", expected=f"more than {options.window} tokens", found=len(tokens))
    model = tiny_llama(len(tokenizer))
    loss = train(model, tokens, options)
    with atomic_folder(options.output) as folder:
        save_model(model, tokenizer, folder)
        facts = {
            "corpora": [digest_of(path) for path in options.corpus],
            "seed": options.seed,
            "steps": options.steps,
            "loss": round(loss, 4),
        }
        finish_target(folder, stage="taps.tiny_target", facts=facts)
    print(f"{options.output}: {model.num_parameters():,} parameters, final loss {loss:.3f} nats per token")


def byte_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Returns a byte-level BPE tokenizer of `VOCAB_SIZE` tokens learnt from `texts`, with its chat template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        model_max_length=MAX_POSITIONS,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def tiny_llama(vocab_size: int) -> LlamaForCausalLM:
    """Returns an untrained two-layer Llama, hidden size 64, four heads over two key/value heads, float32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=MAX_POSITIONS,
        bos_token_id=None,
        eos_token_id=SPECIAL_TOKENS.index("<|im_end|>"),
        pad_token_id=SPECIAL_TOKENS.index("<|endoftext|>"),
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config)


def corpus_tokens(tokenizer: PreTrainedTokenizerFast, rows: Iterable[dict[str, Any]]) -> torch.Tensor:
    """Returns int64 [T], all conversations in the chat template one after another."""
    import torch

    ids: list[int] = []
    for row in rows:
        messages = [{"role": turn["role"], "content": turn["text"]} for turn in row["turns"]]
        text = str(tokenizer.apply_chat_template(messages, tokenize=False))
        ids += tokenizer(text, add_special_tokens=False).input_ids
    return torch.tensor(ids)


def train(model: LlamaForCausalLM, tokens: torch.Tensor, options: argparse.Namespace) -> float:
    """Returns the mean loss of the last tenth of the steps, nats per token.

    Args:
        model: Trained in place, left in evaluation mode.
        tokens: int64 [T]; windows are cut out of it at random places.
        options: steps, batch_size, window, learning_rate, seed.
    """
    import torch

    generator = torch.Generator().manual_seed(options.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, options.learning_rate, total_steps=options.steps, pct_start=0.1
    )
    losses = []
    model.train()
    for _ in progress(range(options.steps), what="tiny target", unit="step"):
        starts = torch.randint(len(tokens) - options.window, (options.batch_size,), generator=generator)
        batch = tokens[starts[:, None] + torch.arange(options.window)]  # [batch_size, window]
        loss = model(input_ids=batch, labels=batch, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    model.eval()
    last = losses[-max(1, options.steps // 10) :]
    return sum(last) / len(last)


if __name__ == "__main__":
    run(main)
