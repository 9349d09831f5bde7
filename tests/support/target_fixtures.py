"""The parts of a target's folder that draft models borrow: config.json, embedding and head."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from taps.model.drafter import DrafterConfig
from tests.support.draft_models import CONFIG


def write_target(folder: Path, config: DrafterConfig = CONFIG, *, tied: bool = True, seed: int = 9) -> Path:
    """Returns `folder`, now holding a target that draft models of shape `config` fit."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    tensors = {"model.embed_tokens.weight": torch.randn(config.vocab_size, config.hidden_size)}
    if not tied:
        tensors["lm_head.weight"] = torch.randn(config.vocab_size, config.hidden_size)
    save_file(tensors, folder / "model.safetensors")
    extra = {"tie_word_embeddings": tied, "bos_token_id": 1, "eos_token_id": [2, 3], "pad_token_id": None}
    (folder / "config.json").write_text(json.dumps(config.to_json() | extra))
    return folder
