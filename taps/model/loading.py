"""Loading a target's model so that no weight is left random and none is left over, whatever the library tolerates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from taps.model.weight_files import check_finite, few
from taps.plumbing.cli import in_one_line
from taps.plumbing.errors import TapsError, first_words

_AGAIN = "fetch the model again, or merge its adapter into it"


def load_model(
    folder: Path, *, dtype: torch.dtype, where: object = None, trust_remote_code: bool = False, **options: Any
) -> Any:
    """Returns the library's causal language model in a folder, on the CPU, in evaluation mode and frozen.

    Args:
        folder: Hugging Face folder, or with `gguf_file=` among the options the folder of that file.
        dtype: Compute dtype.
        where: What error messages name; the folder by default.
        trust_remote_code: Whether Python code in the folder may run.
        options: Handed to the library's `from_pretrained`.

    Raises:
        TapsError: weights are missing, unused or of another shape; the library would fill the first with random numbers
            and pass over the second with a warning at most.
    """
    from transformers import AutoModelForCausalLM

    where = where or folder
    # other shapes come back among the facts, not as the library's error, which names no weight
    options = {"attn_implementation": "sdpa", "ignore_mismatched_sizes": True, **options}
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, trust_remote_code=trust_remote_code, output_loading_info=True, **options
        )
    except (OSError, MemoryError):
        raise
    except Exception as error:  # an architecture that it does not know, or numbers that it stumbles over
        if in_one_line(error) is not None:
            raise
        if "conversion of the weights" in str(error):
            raise TapsError(where, "weights that cannot be converted to the library's form", remedy=_AGAIN) from error
        raise TapsError(where, "the library cannot load this model", found=first_words(error)) from error
    model, info = loaded
    check_loaded(where, info)
    return model.eval().requires_grad_(False)


def check_loaded(where: object, info: Mapping[str, Any]) -> None:
    """Checks what `from_pretrained(..., output_loading_info=True)` says of a model's weights.

    Raises:
        TapsError: some are missing, unused, of another shape, or could not be converted.
    """
    problems = {
        "missing_keys": "weights missing, which would be random",
        "unexpected_keys": "weights that the model does not use",
        "mismatched_keys": "weights of another shape",
        "error_msgs": "weights that cannot be loaded",
    }
    found = {key: sorted(map(_name, info.get(key) or ())) for key in problems}
    if found["missing_keys"] and found["unexpected_keys"]:
        missing, other = found["missing_keys"], found["unexpected_keys"]
        problem = f"{len(missing)} weights are missing, which would be random, and {len(other)} have other names"
        raise TapsError(where, problem, expected=few(missing), found=few(other), remedy=_AGAIN)
    for key, problem in problems.items():
        if found[key]:
            raise TapsError(where, problem, found=few(found[key]), remedy=_AGAIN)


def check_weights(where: object, model: Any) -> None:
    """Checks that no weight of a loaded model is NaN or infinite.

    Raises:
        TapsError: names those that are.
    """
    check_finite(where, dict(model.named_parameters()), remedy="fetch the model again")


def _name(key: object) -> str:
    return str(key[0]) if isinstance(key, tuple) else str(key)
