"""The draft model of EAGLE-2 and HASS: one decoder layer of the target's family on [embedding of next token, feature].

    x_t = fc([embed(token_{t+1}), feature_t])        position t
    prediction of feature_{t+1} = layer(x_t)         no input norm, no final norm
    draft logits = lm_head(prediction)               the target's head, frozen, never stored here

The model works on *flat* tokens: sequences of a batch lie one after another in [T, ...] tensors, so nothing is padded.
Attention is left to the caller where it is special (HASS streams, draft trees): `qkv` and `finish` are the two halves
of the layer around it.

Shape letters: T flat tokens, H query heads, G key-value heads, h hidden size, d head size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import nn

from taps.model.config_keys import check_layer_sizes
from taps.model.rope import inverse_frequencies, rope_parameters, rotate


@dataclass(frozen=True, kw_only=True)
class DrafterConfig:
    """Shape of a draft model; everything but `bias` follows from the target.

    Attributes:
        hidden_size: h, also the target's.
        intermediate_size: Width of the gated MLP.
        num_attention_heads: H, heads of the queries.
        num_key_value_heads: G, heads of keys and values; divides H.
        head_dim: d, channels of a head.
        vocab_size: The target's vocabulary.
        max_position_embeddings: The target's context length, in tokens.
        rms_norm_eps: Epsilon of the one norm.
        rope: RoPE settings as `taps.model.rope.rope_parameters` returns them.
        attention_bias: Whether q, k and v have biases (Qwen2's family).
        bias: Whether fc has a bias (some published checkpoints).
        model_type: The target's family, e.g. `llama`; recorded, not interpreted.
        family: The draft family, whose network this is; `taps.model.family` finds it.
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: Mapping[str, Any]
    attention_bias: bool = False
    bias: bool = False
    model_type: str = "llama"
    family: str = "eagle2"

    @classmethod
    def from_json(cls, config: Mapping[str, Any], *, where: object = "target config") -> DrafterConfig:
        """Returns the draft model's shape from the content of a target's or a draft model's config.json.

        Args:
            config: That content.
            where: What error messages name.

        Raises:
            TapsError: as `check_layer_sizes` and `rope_parameters`.
        """
        check_layer_sizes(where, config)
        heads = config["num_attention_heads"]
        return cls(
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            num_attention_heads=heads,
            num_key_value_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            vocab_size=config["vocab_size"],
            max_position_embeddings=config["max_position_embeddings"],
            rms_norm_eps=config["rms_norm_eps"],
            rope=rope_parameters(config, where=where),
            attention_bias=bool(config.get("attention_bias", config.get("model_type") == "qwen2")),
            bias=bool(config.get("bias", False)),
            model_type=config.get("model_type", "llama"),
            family=config.get("family", "eagle2"),
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the config.json of a draft model, readable by the official EAGLE code and by `from_json`."""
        fields = asdict(self)
        rope = dict(fields.pop("rope"))
        return {
            "architectures": ["LlamaForCausalLM"],
            **fields,
            "hidden_act": "silu",
            "num_hidden_layers": 1,
            "rope_theta": rope["rope_theta"],
            "rope_parameters": rope,
        }


class Attention(nn.Module):
    """Projections of grouped-query attention; the scores are computed by whoever knows what may be seen."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        hidden, head = config.hidden_size, config.head_dim
        self.q_proj = nn.Linear(hidden, config.num_attention_heads * head, bias=config.attention_bias)
        self.k_proj = nn.Linear(hidden, config.num_key_value_heads * head, bias=config.attention_bias)
        self.v_proj = nn.Linear(hidden, config.num_key_value_heads * head, bias=config.attention_bias)
        self.o_proj = nn.Linear(config.num_attention_heads * head, hidden, bias=False)


class GatedMlp(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(states)) * self.up_proj(states))


class DraftLayer(nn.Module):
    """The decoder layer: attention with a plain residual (no input norm), then a normed MLP."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = GatedMlp(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


class DraftModel(nn.Module):
    """The draft model; parameter names are those of the official EAGLE checkpoints."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.config = config
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=config.bias)
        self.layers = nn.ModuleList([DraftLayer(config)])
        # kept out of buffers: bfloat16 engines cast buffers, and angles must stay fp32
        self._inverse_frequencies = inverse_frequencies(config.rope, config.head_dim)

    @property
    def layer(self) -> DraftLayer:
        """The only layer; the list around it is what the official tensor names ask for."""
        return cast(DraftLayer, self.layers[0])

    def inputs(self, embeddings: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Returns x [T, h] = fc([embedding of the next token, feature]).

        Args:
            embeddings: [T, h] the target's embeddings of the tokens that follow.
            features: [T, h] the target's features, or the draft model's own predictions of them.
        """
        return self.fc(torch.cat((embeddings, features), dim=-1))

    def qkv(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns rotated queries [T, H, d], rotated keys [T, G, d] and values [T, G, d].

        Args:
            x: [T, h] outputs of `inputs`.
            positions: int [T] position of each x in its own sequence.
        """
        attention, head = self.layer.self_attn, self.config.head_dim
        if self._inverse_frequencies.device != x.device:
            self._inverse_frequencies = self._inverse_frequencies.to(x.device)
        angles = positions[:, None].to(torch.float32) * self._inverse_frequencies
        queries = rotate(attention.q_proj(x).unflatten(-1, (-1, head)), angles)
        keys = rotate(attention.k_proj(x).unflatten(-1, (-1, head)), angles)
        return queries, keys, attention.v_proj(x).unflatten(-1, (-1, head))

    def finish(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Returns the predicted features [T, h] from the attention's output.

        Args:
            x: [T, h] residual stream.
            attended: [T, H, d] weighted values.
        """
        layer = self.layer
        states = x + layer.self_attn.o_proj(attended.flatten(-2))
        return states + layer.mlp(layer.post_attention_layernorm(states))

    def forward(
        self, embeddings: torch.Tensor, features: torch.Tensor, lengths: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns (predictions [T, h], keys [T, G, d], values [T, G, d]) of causal sequences laid end to end.

        Args:
            embeddings: as in `inputs`.
            features: as in `inputs`.
            lengths: Tokens of each sequence; they sum to T. No sequence sees another.
        """
        x = self.inputs(embeddings, features)
        queries, keys, values = self.qkv(x, packed_positions(lengths, x.device))
        return self.finish(x, causal_attention(queries, keys, values, lengths)), keys, values


def packed_positions(lengths: Sequence[int], device: torch.device | str) -> torch.Tensor:
    """Returns int64 [T]: 0 .. length - 1 for each sequence in turn; [3, 2] gives 0 1 2 0 1."""
    return torch.cat([torch.arange(length, device=device) for length in lengths])


def causal_attention(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, lengths: Sequence[int]
) -> torch.Tensor:
    """Returns [T, H, d]: each sequence attends causally to itself, in one kernel call per sequence.

    A block-diagonal mask over [T, T] would score every pair of sequences only to discard it.

    Args:
        queries: [T, H, d] as `qkv` returns them, likewise `keys` and `values` [T, G, d].
        lengths: Tokens of each sequence.
    """
    parts = []
    for sequence in zip(*(states.split(list(lengths)) for states in (queries, keys, values)), strict=True):
        q, k, v = (states.transpose(0, 1)[None] for states in sequence)
        parts.append(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)[0].transpose(0, 1))
    return torch.cat(parts)
