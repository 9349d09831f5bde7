"""A tiny draft model and naive ways to run it, shared by the tests of drafting, alignment, losses and training."""

from __future__ import annotations

import torch

from taps.model.drafter import DrafterConfig, DraftModel
from taps.model.target_head import TargetHead

CONFIG = DrafterConfig(
    hidden_size=32,
    intermediate_size=48,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    vocab_size=300,
    max_position_embeddings=128,
    rms_norm_eps=1e-5,
    rope={"rope_type": "default", "rope_theta": 10000.0},
)


def tiny_drafter(seed: int = 0) -> tuple[DraftModel, TargetHead]:
    """Returns a random draft model and the ends of a random target, head sliced to 256 of 300 tokens."""
    torch.manual_seed(seed)
    model = DraftModel(CONFIG).eval()
    embedding = torch.randn(300, 32)
    token_ids = torch.randperm(300)[:256].sort().values
    return model, TargetHead(embedding=embedding, head=embedding[token_ids], token_ids=token_ids, config={})


def naive_output(model, head, tokens, features, path):
    """Returns the draft model's output [h] after `path`, by one dense causal pass over the prefix and the path.

    Args:
        tokens: int64 [L] prefix, its last token being the root.
        features: [>= L - 1, h] the target's.
        path: Tokens drafted after the root.
    """
    embeddings, states = head.embed(tokens[1:]), features[: len(tokens) - 1]
    for token in path:
        hidden = model(embeddings, states, [len(states)])[0][-1]
        embeddings = torch.cat((embeddings, head.embed(torch.tensor([token]))))
        states = torch.cat((states, hidden[None]))
    return model(embeddings, states, [len(states)])[0][-1]
