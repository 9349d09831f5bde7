"""A model folder's tokenizer, loaded one way; whatever its class stumbles over in its files is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from taps.plumbing.errors import TapsError, first_words

_WITHOUT_ITS_FILE = "a tokenizer.model without tokenizer.json needs: pip install sentencepiece protobuf"


def load_tokenizer(folder: Path, *, where: object = None, trust_remote_code: bool = False) -> Any:
    """Returns the tokenizer of a Hugging Face folder.

    Args:
        folder: With its files.
        where: What error messages name; the folder by default.
        trust_remote_code: Whether Python code in the folder may run.

    Raises:
        TapsError: there is none that transformers can read.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except MemoryError:
        raise
    except Exception as error:  # each class of tokenizer stumbles in its own way
        remedy = "fetch the model again" if (Path(folder) / "tokenizer.json").exists() else _WITHOUT_ITS_FILE
        raise TapsError(where or folder, "no usable tokenizer", found=first_words(error), remedy=remedy) from error
