"""The last touches on a target's folder: a chat template that works, known stop tokens, and a record of its files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps.data.chat_template import PROBE, RefusedByTemplateError, render
from taps.data.stop_tokens import stop_ids
from taps.plumbing.artefacts import write_json
from taps.plumbing.errors import TapsError
from taps.plumbing.folder_records import check_folder, hashes_of
from taps.plumbing.provenance import provenance

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def finish_target(
    folder: Path,
    *,
    stage: str,
    facts: dict[str, Any],
    template: Path | None = None,
    trust_remote_code: bool = False,
) -> None:
    """Settles chat template and stop tokens of a model folder and writes its provenance.json (kind `target`).

    Args:
        folder: With config, weights and tokenizer.
        stage: Module that made it.
        facts: What determined the model, e.g. its source and the source's hash.
        template: Jinja file that replaces the tokenizer's chat template.
        trust_remote_code: Whether Python code in the folder may run.

    Raises:
        TapsError: as `settle_chat_template` and `settle_eos`.
    """
    tokenizer = settle_chat_template(folder, template=template, trust_remote_code=trust_remote_code)
    content = {
        **facts,
        "eos_ids": settle_eos(folder, tokenizer),
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


def settle_chat_template(folder: Path, *, template: Path | None, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    """Returns the folder's tokenizer after making sure that tokenizer.json and a working chat template lie there.

    Raises:
        TapsError: no tokenizer, no template, or one that cannot render a conversation.
    """
    from transformers import AutoTokenizer

    if template is not None:
        if not template.is_file():
            raise TapsError(f"--chat-template {template}", "no such file")
        shutil.copyfile(template, folder / "chat_template.jinja")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, ImportError) as error:
        line = next(line for line in [*str(error).strip().splitlines(), type(error).__name__] if line.strip())
        remedy = "a tokenizer.model without tokenizer.json needs: pip install sentencepiece protobuf"
        raise TapsError("--source", "no usable tokenizer", found=line, remedy=remedy) from error
    if not (folder / "tokenizer.json").exists():
        tokenizer.save_pretrained(folder)
    if not tokenizer.chat_template:
        raise TapsError(
            "--source", "its tokenizer has no chat template", remedy="give one with --chat-template FILE.jinja"
        )
    try:
        rendered = render(tokenizer, PROBE)
    except RefusedByTemplateError as error:
        raise TapsError("chat template", "cannot render a conversation", found=str(error)) from error
    if "ping" not in rendered or "pong" not in rendered:
        raise TapsError("chat template", "drops what was said", expected="ping and pong", found=repr(rendered))
    return tokenizer


def settle_eos(folder: Path, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Returns the ids that end an answer, ascending, and records them in the folder's generation_config.json."""
    found = sorted(stop_ids(folder, tokenizer))
    if not found:
        raise TapsError(
            "--source", "no stop token", expected="eos_token_id in generation_config.json or in the chat template"
        )
    path = folder / "generation_config.json"
    generation = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    write_plain_json(path, {**generation, "eos_token_id": found[0] if len(found) == 1 else found})
    return found


def write_plain_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
