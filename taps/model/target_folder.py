"""The last touches on a target's folder: a chat template that works, known stop tokens, and a record of its files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps.data.chat_template import PROBE, RefusedByTemplateError, render
from taps.data.stop_tokens import end_of_turn, stop_ids
from taps.data.tokenizer_files import load_tokenizer
from taps.plumbing.artefacts import write_json
from taps.plumbing.errors import TapsError
from taps.plumbing.folder_records import check_folder, hashes_of
from taps.plumbing.provenance import provenance
from taps.plumbing.strangers import read_object

_OTHER = "name a Jinja file with another in target.chat_template (--chat-template)"

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def finish_target(
    folder: Path,
    *,
    stage: str,
    facts: dict[str, Any],
    tokenizer: PreTrainedTokenizerBase | None = None,
    where: Path | None = None,
) -> None:
    """Settles the stop tokens of a model folder and writes its provenance.json (kind `target`).

    Args:
        folder: With config, weights and tokenizer.
        stage: Module that made it.
        facts: What determined the model, e.g. its source and the source's hash.
        tokenizer: As `settle_tokenizer` returned it; settled here by default.
        where: What the folder was made from, for messages.

    Raises:
        TapsError: as `settle_tokenizer` and `settle_eos`.
    """
    tokenizer = tokenizer or settle_tokenizer(folder, trust_remote_code=False)
    content = {
        **facts,
        "eos_ids": settle_eos(folder, tokenizer, where=where or folder),
        "files": hashes_of(folder),
    }
    write_json(folder / "provenance.json", content, kind="target", provenance=provenance(stage=stage))


def check_files(folder: Path) -> None:
    """Checks a target's files against its provenance.json; a folder without one is not of our making and passes.

    Raises:
        ArtefactError: a file is missing, or changed since `finish_target` recorded it.
    """
    check_folder(folder, kind="target")


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Writes config, safetensors and tokenizer to `folder`, without the place that they came from."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for name in ("config.json", "tokenizer_config.json"):
        content = json.loads((folder / name).read_text(encoding="utf-8"))
        for key in ("_name_or_path", "name_or_path", "_model_name_or_path", "is_local", "local_files_only"):
            content.pop(key, None)
        write_plain_json(folder / name, content)
    for file in folder.iterdir():
        file.chmod(0o644)  # safetensors writes files that only their owner can read


def settle_tokenizer(folder: Path, *, trust_remote_code: bool, where: Path | None = None) -> PreTrainedTokenizerBase:
    """Returns the folder's tokenizer after making sure that tokenizer.json and a working chat template lie there.

    Args:
        where: What the folder was made from, for messages.

    Raises:
        TapsError: no tokenizer, no template, or one that cannot render a conversation or renders it ever otherwise.
    """
    where = where or folder
    tokenizer = load_tokenizer(folder, where=where, trust_remote_code=trust_remote_code)
    if not (folder / "tokenizer.json").exists():
        tokenizer.save_pretrained(folder)
    if not tokenizer.chat_template:
        raise TapsError(where, "its tokenizer has no chat template", remedy="give one with --chat-template FILE.jinja")
    try:
        rendered, again = render(tokenizer, PROBE), render(tokenizer, PROBE)
    except RefusedByTemplateError as error:
        raise TapsError(where, "its chat template cannot render a conversation", found=error, remedy=_OTHER) from error
    if "ping" not in rendered or "pong" not in rendered:
        problem = "its chat template drops what was said"
        raise TapsError(where, problem, expected="ping and pong", found=repr(rendered), remedy=_OTHER)
    if rendered != again:
        raise TapsError(where, "its chat template renders the same conversation in several ways", remedy=_OTHER)
    return tokenizer


def check_template_tokens(tokenizer: PreTrainedTokenizerBase, vocab_size: int) -> None:
    """Checks that the model has an embedding for every token that its chat template writes.

    Raises:
        TapsError: it has not: markers were added to the tokenizer and the model was never resized.
    """
    texts = [render(tokenizer, PROBE), render(tokenizer, PROBE[:1], add_generation_prompt=True)]
    ids = [token for text in texts for token in tokenizer(text, add_special_tokens=False)["input_ids"]]
    if beyond := sorted({token for token in ids if token >= vocab_size}):
        words = ", ".join(f"{token} {tokenizer.convert_ids_to_tokens(token)}" for token in beyond[:3])
        raise TapsError(
            "chat template",
            "writes tokens beyond the embedding",
            expected=f"ids below {vocab_size}",
            found=words,
            remedy="take the model's own tokenizer and template, or one that was resized for these",
        )


def settle_eos(folder: Path, tokenizer: PreTrainedTokenizerBase, *, where: Path) -> list[int]:
    """Returns the ids that end an answer, ascending, and records them in the folder's generation_config.json."""
    found = sorted(stop_ids(folder, tokenizer, where=where))
    if not found:
        raise TapsError(where, "no stop token", expected="eos_token_id in generation_config.json or in a chat template")
    num_tokens = read_object(folder / "config.json").get("vocab_size", max(found) + 1)
    if max(found) >= num_tokens:
        problem, remedy = "a stop token beyond the embedding", "correct eos_token_id in its config files"
        raise TapsError(where, problem, expected=f"ids below {num_tokens}", found=max(found), remedy=remedy)
    if end_of_turn(tokenizer, where=where) is None:
        words = ", ".join(map(str, tokenizer.convert_ids_to_tokens(found)))
        print(f"warning: {where}: its chat template ends a turn with no token; answers end at {words}", file=sys.stderr)
    path = folder / "generation_config.json"
    generation = read_object(path) if path.exists() else {}
    write_plain_json(path, {**generation, "eos_token_id": found[0] if len(found) == 1 else found})
    return found


def write_plain_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
