"""What a draft model borrows from its target, read straight from the target's folder: embedding, head and shape."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from taps.model.config_keys import check_logits
from taps.model.cpu_products import use_widest_float32
from taps.model.device import check_device
from taps.model.weight_files import WHOLE, read_index
from taps.plumbing.artefacts import read_tensors
from taps.plumbing.errors import ArtefactError, TapsError
from taps.plumbing.folder_records import check_folder
from taps.plumbing.strangers import read_object

_EMBEDDING = "model.embed_tokens.weight"
_HEAD = "lm_head.weight"


@dataclass(frozen=True, kw_only=True)
class TargetHead:
    """The frozen ends of the target.

    Attributes:
        embedding: [V, h] input embedding.
        head: [V', h] rows of lm_head; all V of them, or those of a draft vocabulary.
        token_ids: int64 [V'] token of each row of `head`; None if `head` has all rows.
        config: Content of the target's config.json.
    """

    embedding: torch.Tensor
    head: torch.Tensor
    token_ids: torch.Tensor | None
    config: dict[str, Any]

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns the embeddings [..., h] of int `tokens` [...]."""
        return torch.nn.functional.embedding(tokens, self.embedding)

    def logits(self, features: torch.Tensor) -> torch.Tensor:
        """Returns [..., V'] logits of (true or predicted) `features` [..., h]."""
        return features @ self.head.T

    def to_tokens(self, rows: torch.Tensor) -> torch.Tensor:
        """Returns the tokens that rows of `head` stand for."""
        return rows if self.token_ids is None else self.token_ids[rows]


def read_config(target: Path) -> dict[str, Any]:
    """Returns the content of the target's config.json.

    Raises:
        TapsError: the folder has none, or the logits are not a plain product with lm_head.
    """
    path = Path(target) / "config.json"
    check_folder(target, kind="target", names=[path.name])
    try:
        config = read_object(path, remedy="fetch the model again")
    except FileNotFoundError:
        raise TapsError(path, "missing", expected="a Hugging Face model folder") from None
    check_logits(path, config)
    return config


def load_target_head(
    target: Path,
    *,
    draft_vocab: Path | None = None,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> TargetHead:
    """Returns embedding and head of the target folder, without loading its layers.

    Args:
        target: Hugging Face folder with safetensors weights.
        draft_vocab: Artefact of `taps.draft_vocab`; slices the head.
        dtype: Compute dtype.
        device: Where the tensors live.

    Raises:
        TapsError: the folder is not a target, or the draft vocabulary is not within the target's.
    """
    use_widest_float32()
    config = read_config(target)
    check_device(device, what="the target's head")
    names = [_EMBEDDING] if config.get("tie_word_embeddings") else [_EMBEDDING, _HEAD]
    tensors = [_read_weight(Path(target), name).to(device=device, dtype=dtype) for name in names]
    head, token_ids = tensors[-1], None
    if draft_vocab is not None:
        token_ids = read_tensors(draft_vocab, kind="draft_vocab")[0]["token_ids"].to(torch.int64).to(device)
        if int(token_ids.max()) >= len(head):
            raise TapsError(
                draft_vocab, "of another target", expected=f"ids below {len(head)}", found=int(token_ids.max())
            )
        head = head[token_ids].contiguous()
    return TargetHead(embedding=tensors[0], head=head, token_ids=token_ids, config=config)


def _read_weight(target: Path, name: str) -> torch.Tensor:
    """Returns one tensor of a single-file or sharded safetensors folder."""
    index = target / f"{WHOLE}.index.json"
    path = target / (read_index(index).get(name, WHOLE) if index.exists() else WHOLE)
    check_folder(target, kind="target", names=[path.name, *([index.name] if index.exists() else [])])
    try:
        with safe_open(path, framework="pt") as weights:
            return weights.get_tensor(name)
    except FileNotFoundError:
        raise ArtefactError(path, "missing", expected="safetensors weights of the target") from None
    except SafetensorError as error:
        raise ArtefactError(path, f"has no readable {name} ({error})") from None
