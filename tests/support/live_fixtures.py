"""Tiny random targets and drafters for tests of live decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from taps.decoding.engine import Decoded, decode
from taps.decoding.live_drafter import LiveDrafter
from taps.decoding.strategy import STRATEGIES, Options, find
from taps.decoding.trees import PAD_TOKEN, ROOT, Trees
from taps.model.checkpoint import save_drafter
from taps.model.drafter import DrafterConfig, DraftModel
from taps.model.target import Target
from taps.model.target_head import TargetHead, read_config
from taps.tiny_target import byte_tokenizer

LIVE_STRATEGIES = [name for name, strategy in STRATEGIES.items() if not strategy.needs_future]
OPTIONS = Options(
    num_draft_tokens=8,
    inverse_temperatures=(0.7, 1.4),
    target_s=tuple(1.0 + 0.05 * nodes for nodes in range(9)),
    draft_s=(0.1, 0.15, 0.2, 0.25),
    overhead_s=0.05,
    router=((0.1, *(0.3 for _ in range(32))), (0.0, *(-0.2 for _ in range(32)))),
)
DEPTH, TOP_K = 3, 3

WORDS = ["<end>", *"abcdefghijk"]

_SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,  # sharper than the library's default: texts neither uniform nor stuck in a loop
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "LlamaConfig": {},
    "Qwen2Config": {"use_sliding_window": False, "sliding_window": None},
    "Qwen3Config": {"use_sliding_window": False, "sliding_window": None, "head_dim": 8},
    "MistralConfig": {"sliding_window": None},
}


def tiny_model(
    family: str = "LlamaConfig",
    *,
    vocab: int = 12,
    positions: int = 128,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
) -> Any:
    """Returns a random two-layer model of a family of the library, float32; `sizes` by their names in its config."""
    torch.manual_seed(seed)
    shape = {**_SHAPE, **FAMILIES.get(family, {}), **(sizes or {})}
    if family == "GPT2Config":  # learned positions, other names
        shape = {"n_embd": 32, "n_layer": 2, "n_head": 4, "bos_token_id": None, "eos_token_id": None}
    config = getattr(transformers, family)(vocab_size=vocab, max_position_embeddings=positions, **shape)
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval().requires_grad_(False)


def tiny_target(family: str = "LlamaConfig", *, eos_ids: Sequence[int] = (), **options: Any) -> Target:
    """Returns a random target without a tokenizer; options as in `tiny_model`."""
    model = tiny_model(family, **options)
    return Target(
        model=model,
        tokenizer=None,  # type: ignore[arg-type]
        eos_ids=frozenset(eos_ids),
        max_length=model.config.max_position_embeddings,
        config=model.config.to_dict(),
    )


def save_tiny_target(folder: Path, *, positions: int = 512, seed: int = 0) -> Path:
    """Writes a random target with a byte-level tokenizer and a chat template; returns `folder`."""
    tokenizer = byte_tokenizer(["Tom has 3 apples. He buys 2 more. How many are there?"])
    model = tiny_model(vocab=len(tokenizer), positions=positions, seed=seed)
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_word_target(
    folder: Path, *, positions: int = 128, seed: int = 0, sizes: Mapping[str, int] | None = None
) -> Path:
    """Writes a random target whose vocabulary is a few words, so that random drafters are right now and then."""
    backend = Tokenizer(models.WordLevel({word: token for token, word in enumerate(WORDS)}, unk_token="a"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<end>",
        chat_template="{% for message in messages %}{{ message.content + ' <end> ' }}{% endfor %}",
    )
    model = tiny_model(vocab=len(WORDS), positions=positions, seed=seed, sizes=sizes)
    model.config.eos_token_id = model.generation_config.eos_token_id = WORDS.index("<end>")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_drafters(folder: Path, target: Path, names: Sequence[str]) -> list[str]:
    """Writes random draft models that fit a saved target; returns the flags that name them."""
    config = DrafterConfig.from_json(read_config(target))
    flags = []
    for seed, name in enumerate(names):
        torch.manual_seed(seed)
        save_drafter(folder / name, DraftModel(config).state_dict(), config, provenance={})
        flags += ["--drafter", f"{name}={folder / name}"]
    return flags


def head_of(target: Target) -> TargetHead:
    """Returns embedding and head of a target in memory."""
    model = target.model
    return TargetHead(
        embedding=model.get_input_embeddings().weight,
        head=model.get_output_embeddings().weight,
        token_ids=None,
        config=target.config,
    )


def draft_model(target: Target, seed: int) -> DraftModel:
    """Returns a random draft model that fits a target; in a small vocabulary it is right now and then."""
    torch.manual_seed(seed)
    return DraftModel(DrafterConfig.from_json(target.config)).eval().requires_grad_(False)


def drafters_of(target: Target, count: int = 2) -> list[LiveDrafter]:
    """Returns live drafters over random draft models."""
    head = head_of(target)
    return [LiveDrafter(draft_model(target, seed), head, depth=DEPTH, top_k=TOP_K) for seed in range(count)]


class StubDrafter:
    """A drafter whose trees are made by hand.

    Args:
        make: (index of the root in prompt and answer, number of nodes) -> one tree.
    """

    def __init__(self, make: Callable[[int, int], Trees]) -> None:
        self.make = make
        self.num_drafts = 0
        self.num_read = 0

    def begin(self) -> None:
        self.num_read = 0

    def read(self, tokens: torch.Tensor, features: torch.Tensor) -> None:
        assert len(tokens) == len(features)
        self.num_read += len(tokens)

    def catch_up(self) -> None:
        pass

    def draft(self, num_nodes: int, goes_on: Callable[[Trees, int], bool] | None = None) -> Trees:
        self.num_drafts += 1
        return self.make(self.num_read, num_nodes)


def tree_of_paths(paths: Sequence[tuple[int, ...]], num_nodes: int | None = None) -> Trees:
    """Returns one tree whose nodes are these paths (token by token from the root), the likelier the earlier."""
    size = len(paths) if num_nodes is None else num_nodes
    place = {path: node for node, path in enumerate(paths)}
    trees = Trees(
        tokens=np.full((1, size), PAD_TOKEN, dtype=np.int32),
        parents=np.full((1, size), ROOT, dtype=np.int16),
        scores=np.full((1, size), -np.inf, dtype=np.float32),
        entropies=np.zeros((1, size), dtype=np.float32),
    )
    for node, path in enumerate(paths):
        trees.tokens[0, node] = path[-1]
        trees.parents[0, node] = place[path[:-1]] if len(path) > 1 else ROOT
        trees.scores[0, node] = -0.5 * (node + 1)
        trees.entropies[0, node] = 1.0
    return trees


def chain(tokens: Sequence[int], num_nodes: int) -> Trees:
    """Returns one tree without branches that holds at most `num_nodes` of the tokens."""
    return tree_of_paths([tuple(tokens[: end + 1]) for end in range(min(len(tokens), num_nodes))], num_nodes)


def greedy(target: Target, prompt: Sequence[int], max_new_tokens: int) -> list[int]:
    """Returns the library's own greedy continuation."""
    ends = sorted(target.eos_ids) or None
    output = target.model.generate(
        torch.tensor([list(prompt)]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.int64),
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=ends,
        pad_token_id=0,
    )
    return output[0, len(prompt) :].tolist()


def run(target: Target, drafters: Sequence[Any], prompt: Sequence[int], name: str, **options: Any) -> Decoded:
    """Returns `decode` of a strategy by name, over as many of the drafters as it takes."""
    strategy = find(name, live=True)
    chosen = drafters[:1] if strategy.one_drafter else drafters
    own = replace(OPTIONS, inverse_temperatures=OPTIONS.inverse_temperatures[: len(chosen)])
    return decode(target, chosen, prompt, **{"strategy": strategy, "options": own, "max_new_tokens": 24, **options})
