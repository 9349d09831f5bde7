"""Which attention kernels a target runs on, decided where it is loaded and not left to each call's shapes.

On a CPU: PyTorch's own fused kernel, which takes a tree's mask and fewer key-value heads than query heads. The library
instead copies keys and values once per query head as soon as there is a mask: at 40 nodes and 200 tokens a fifth of the
time of attention, for the same bits.

On CUDA: the library's choice among PyTorch's kernels, without cuDNN's. That is preferred on Hopper and builds a plan
for every new shape (tens of milliseconds), while a trace, a tree and its drafts have a new shape at every step.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

GROUPED = "taps_grouped_sdpa"
_NOT_PLAIN = ("softcap", "position_bias", "s_aux")  # what changes scores between mask and softmax


def grouped_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Returns ([B, T, H, d], None): attention of H query heads to G groups of keys, as the library calls it.

    Args:
        module: The model's attention module.
        query: [B, H, T, d] of the new tokens.
        key: [B, G, n, d], as is `value`.
        attention_mask: Broadcastable to [B, H, T, n], additive or True where a query may attend; None for causal.
        others: What the library passes beside; only a call that it would hand to the kernel as it is, is done here.
    """
    is_tree = attention_mask is not None and query.shape[2] > 1
    if not is_tree or any(others.get(name) is not None for name in _NOT_PLAIN) or others.get("dropout"):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **others)
    attended = F.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=others.get("scaling"), enable_gqa=True
    )
    return attended.transpose(1, 2).contiguous(), None


AttentionInterface.register(GROUPED, grouped_attention)
AttentionMaskInterface.register(GROUPED, sdpa_mask)


def choose_kernels(model: Any) -> None:
    """Sets what a loaded model's attention runs on; see the module's text."""
    if model.device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
    elif model.device.type == "cpu" and getattr(model, "_supports_attention_backend", False):
        model.set_attn_implementation(GROUPED)
