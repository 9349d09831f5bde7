"""A rehearsal of a target: all that later stages ask of a model, tried once on a few tokens before hours are spent.

- its weights are all there, all used and finite;
- its logits are lm_head(feature), with the embedding and head that draft models read from the folder;
- a text read in two pieces through the cache gives the features of one pass;
- a node of a draft tree sees its ancestors only: two branches side by side give the features of each alone;
- a prompt padded on the left gives the features of the prompt alone.

The last three are judged by the middle one of the positions' relative differences: rounding, and the odd position that
a mixture of experts routes elsewhere, leave it small; a cache, mask or position that is not heeded does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from taps.model.features import head_agreement
from taps.model.loading import check_weights, load_model
from taps.model.target import Target
from taps.model.target_head import TargetHead, load_target_head
from taps.model.weight_files import find_weights, num_parameters
from taps.plumbing.errors import TapsError

_LARGE = 2_000_000_000  # weights; more than these are rehearsed in bfloat16
_LARGEST = 0.1  # middle relative difference: bfloat16 leaves some hundredths, another text leaves about 1
_REMEDY = "choose another target; with this one, decoding would not give the target's own text"


def rehearse(folder: Path, config: Mapping[str, Any], *, where: object, trust_remote_code: bool = False) -> None:
    """Loads the model of a folder on the CPU and tries what the stages will ask of it.

    Args:
        folder: Hugging Face folder with safetensors weights, not yet recorded as a target.
        config: Content of its config.json.
        where: What error messages name.
        trust_remote_code: Whether Python code in the folder may run.

    Raises:
        TapsError: it cannot serve; says why.
    """
    num_weights = num_parameters(find_weights(folder).files)
    dtype = torch.bfloat16 if num_weights > _LARGE else torch.float32
    model = load_model(folder, dtype=dtype, where=where, trust_remote_code=trust_remote_code)
    check_weights(where, model)
    if not hasattr(model, "get_decoder") or model.get_decoder() is None:
        raise TapsError(where, "its layers cannot be told from its head", found=type(model).__name__, remedy=_REMEDY)
    target = Target(
        model=model,
        tokenizer=None,  # type: ignore[arg-type]  # no text is read or written
        eos_ids=frozenset(),
        max_length=config["max_position_embeddings"],
        config=dict(config),
    )
    check_behaviour(target, load_target_head(folder, dtype=dtype), where=where)


@torch.inference_mode()
def check_behaviour(target: Target, head: TargetHead, *, where: object) -> None:
    """Tries a loaded target on a few tokens; see the module.

    Raises:
        TapsError: it does not behave; says in what.
    """
    num_tokens = min(12, target.max_length)
    tokens = torch.randint(len(head.embedding), (1, num_tokens), generator=torch.Generator().manual_seed(0))
    try:
        whole = target.features(tokens)
        if not bool(whole.isfinite().all()):
            raise TapsError(where, "its features are not finite", remedy="fetch the model again")
        head_agreement(target, head, tokens[0], whole[0].to(torch.bfloat16), where=where)
        _check_same(where, "a text read through its cache", _in_two_pieces(target, tokens), whole)
        _check_same(where, "a branch of a draft tree", _branch(target, tokens), whole[:, -2:])
        _check_same(where, "a prompt padded on the left", _padded(target, tokens), whole)
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError, KeyError) as error:
        line = next((line for line in str(error).splitlines() if line.strip()), "")
        found = f"{type(error).__name__}: {line}"
        raise TapsError(where, "cannot be run as a target", found=found, remedy=_REMEDY) from error


def _in_two_pieces(target: Target, tokens: torch.Tensor) -> torch.Tensor:
    """Returns the features [1, T, h] of `tokens` [1, T], the last third of them read through the cache."""
    cut = tokens.shape[1] * 2 // 3
    cache = target.new_cache()
    first = target.features(tokens[:, :cut], cache=cache)
    return torch.cat((first, target.features(tokens[:, cut:], cache=cache)), dim=1)


def _branch(target: Target, tokens: torch.Tensor) -> torch.Tensor:
    """Returns the features [1, 2, h] of the last two tokens as the second branch of a tree.

    Two branches of two nodes each stand behind the text; columns are the text, then the nodes a1 a2 b1 b2:

        a1   1 ... 1   1 0 0 0
        a2   1 ... 1   1 1 0 0
        b1   1 ... 1   0 0 1 0
        b2   1 ... 1   0 0 1 1
    """
    length = tokens.shape[1] - 2
    cache = target.new_cache()
    target.features(tokens[:, :length], cache=cache)
    nodes = torch.cat((tokens[:, :2], tokens[:, length:]), dim=1)
    among = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]], dtype=torch.bool)
    mask = torch.cat((torch.ones((4, length), dtype=torch.bool), among), dim=1)[None, None]
    positions = torch.tensor([[length, length + 1, length, length + 1]])
    return target.features(nodes, attention_mask=mask, positions=positions, cache=cache)[:, 2:]


def _padded(target: Target, tokens: torch.Tensor) -> torch.Tensor:
    """Returns the features [1, T, h] of `tokens` [1, T] behind three padding tokens, which see but themselves."""
    num_pads, length = 3, tokens.shape[1]
    padded = torch.cat((tokens.new_zeros((1, num_pads)), tokens), dim=1)
    mask = torch.ones((num_pads + length,) * 2, dtype=torch.bool).tril()
    mask[num_pads:, :num_pads] = False
    mask[:num_pads, :num_pads] = torch.eye(num_pads, dtype=torch.bool)
    positions = (torch.arange(num_pads + length) - num_pads).clamp(min=0)[None]
    features = target.features(padded, attention_mask=mask[None, None], positions=positions)
    return features[:, num_pads:]


def _check_same(where: object, what: str, found: torch.Tensor, expected: torch.Tensor) -> None:
    found, expected = found.float(), expected.float()
    difference = (found - expected).norm(dim=-1) / expected.norm(dim=-1).clamp(min=1e-6)
    middle = float(difference.median())
    if not middle <= _LARGEST:
        problem = f"{what} has other features than the text alone"
        wanted = f"a relative difference of at most {_LARGEST:g}"
        raise TapsError(where, problem, expected=wanted, found=f"{middle:.2g}", remedy=_REMEDY)
