"""What EAGLE's own code, vLLM and SGLang each expect of a draft model's folder, and a validator of those rules.

|                    | eagle            | vllm             | sglang                |
|--------------------|------------------|------------------|-----------------------|
| architectures      | LlamaForCausalLM | LlamaForCausalLM | LlamaForCausalLMEagle |
| fc.bias            | as trained       | never            | always, else zeros    |
| "bias"             | of fc            | false            | false: of attention   |
| embed_tokens       | included         | left out         | included              |
| lm_head            | never            | never            | never                 |
| position           | the target's; no null anywhere                                           |
| RoPE               | the draft model's own, of whole heads; rope_theta and rope_parameters    |

SGLang's fc always has a bias, and its Llama layers read `"bias": true` as biases of the attention's projections, which
no EAGLE head has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from taps.model.checkpoint import check_tensors, head_config
from taps.model.drafter import DrafterConfig
from taps.model.rope import PARTIAL, rope_parameters
from taps.plumbing.errors import TapsError

EMBEDDING = "embed_tokens.weight"
_COPIED = ("bos_token_id", "eos_token_id", "pad_token_id")  # of the target's config.json, where it has them


@dataclass(frozen=True, kw_only=True)
class Flavour:
    """Rules of one reader.

    Attributes:
        architecture: The one entry of `architectures`.
        bias: Whether fc.bias must be there (True), must not (False), or is as trained (None).
        tells_bias: Whether `"bias"` says if fc.bias is there; else it is false, whatever is there.
        embedding: Whether the target's embedding is included.
    """

    architecture: str
    bias: bool | None
    tells_bias: bool = True
    embedding: bool


FLAVOURS = {
    "eagle": Flavour(architecture="LlamaForCausalLM", bias=None, embedding=True),
    "vllm": Flavour(architecture="LlamaForCausalLM", bias=False, embedding=False),
    "sglang": Flavour(architecture="LlamaForCausalLMEagle", bias=True, tells_bias=False, embedding=True),
}


def convert(
    tensors: Mapping[str, torch.Tensor],
    config: DrafterConfig,
    *,
    flavour: str,
    embedding: torch.Tensor,
    target_config: Mapping[str, Any],
    dtype: torch.dtype | None = None,
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Returns (tensors, content of config.json) of a draft model in a flavour.

    Args:
        tensors: Weights of the draft model, by name.
        config: Shape of the draft model.
        flavour: Key of `FLAVOURS`.
        embedding: [V, h] that of the target.
        target_config: The target's config.json.
        dtype: Of the written tensors; the draft model's own by default.

    Raises:
        TapsError: this flavour cannot express the draft model.
    """
    rules = FLAVOURS[flavour]
    if config.attention_bias:
        raise TapsError(f"--flavour {flavour}", "reads Llama heads only", expected="no biases in q, k and v")
    if PARTIAL in config.rope:
        raise TapsError(
            f"--flavour {flavour}", "rotates whole heads only", expected=f"no {PARTIAL}", found=config.rope[PARTIAL]
        )
    if config.bias and rules.bias is False:
        remedy = "train it with bias: false, or export it as eagle or sglang"
        raise TapsError(f"--flavour {flavour}", "cannot read fc.bias", expected="a head without it", remedy=remedy)
    written = dict(tensors)
    if rules.bias and not config.bias:
        written["fc.bias"] = torch.zeros_like(tensors["fc.weight"][:, 0])
    if rules.embedding:
        written[EMBEDDING] = embedding
    dtype = dtype or tensors["fc.weight"].dtype
    written = {name: tensor.to(dtype).contiguous() for name, tensor in written.items()}
    positions = target_config["max_position_embeddings"]
    tells_bias = rules.tells_bias and "fc.bias" in written
    content = replace(config, bias=tells_bias, max_position_embeddings=positions).to_json()
    content |= {"architectures": [rules.architecture], "tie_word_embeddings": False}
    content |= {"torch_dtype": str(dtype).removeprefix("torch.")}
    content |= {name: target_config[name] for name in _COPIED if target_config.get(name) is not None}
    if config.rope["rope_type"] != "default":  # readers older than rope_parameters
        content["rope_scaling"] = {name: value for name, value in config.rope.items() if name != "rope_theta"}
    return written, content


def validate(
    where: Path,
    tensors: Mapping[str, torch.Tensor],
    content: Mapping[str, Any],
    *,
    flavour: str,
    target_config: Mapping[str, Any],
) -> None:
    """Checks a folder's tensors and config.json against the rules of a flavour.

    Raises:
        TapsError: names the first broken rule.
    """
    rules = FLAVOURS[flavour]

    def rule(name: str, expected: object, found: object) -> None:
        if found != expected:
            raise TapsError(where, f"breaks the {flavour} rule for {name}", expected=expected, found=found)

    rule("null values", "none", next(_nulls(content, "config.json"), "none"))
    rule("architectures", [rules.architecture], content.get("architectures", "nothing"))
    rule("lm_head", "none", next((name for name in tensors if "lm_head" in name), "none"))
    rule(EMBEDDING, rules.embedding, EMBEDDING in tensors)
    if rules.embedding:
        shape = (target_config["vocab_size"], target_config["hidden_size"])
        rule(f"the shape of {EMBEDDING}", shape, tuple(tensors[EMBEDDING].shape))
    if rules.bias is not None:
        rule("fc.bias", rules.bias, "fc.bias" in tensors)
    has_bias = "fc.bias" in tensors
    rule('"bias"', rules.tells_bias and has_bias, content.get("bias", "nothing"))
    positions = target_config["max_position_embeddings"]
    rule("max_position_embeddings", positions, content.get("max_position_embeddings", "nothing"))
    rope = content.get("rope_parameters", "nothing")
    rule("rope_parameters", rope_parameters(content, where=where), rope)
    rule("rope_theta", rope["rope_theta"], content.get("rope_theta", "nothing"))
    head = {name: tensor for name, tensor in tensors.items() if name != EMBEDDING}
    check_tensors(where, head, head_config(where, {**content, "bias": has_bias}))


def settle_bias(
    tensors: Mapping[str, torch.Tensor], config: DrafterConfig, architectures: object
) -> tuple[dict[str, torch.Tensor], DrafterConfig]:
    """Returns (tensors, shape) of a head whose fc.bias may lie in a folder that says nothing of it; no zeros are kept.

    Args:
        tensors: The folder's.
        config: What its config.json says.
        architectures: Of the config.json; elsewhere than in a flavour that does not tell, nothing changes.
    """
    silent = [[rules.architecture] for rules in FLAVOURS.values() if not rules.tells_bias]
    if config.bias or "fc.bias" not in tensors or architectures not in silent:
        return dict(tensors), config
    if tensors["fc.bias"].any():
        return dict(tensors), replace(config, bias=True)
    return {name: tensor for name, tensor in tensors.items() if name != "fc.bias"}, config


def _nulls(value: Any, path: str) -> Iterator[str]:
    """Yields the path of every null within a JSON value."""
    if value is None:
        yield path
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _nulls(item, f"{path}: {name}" if path == "config.json" else f"{path}.{name}")
    elif isinstance(value, list):
        for item in value:
            yield from _nulls(item, path)
