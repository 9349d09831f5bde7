"""Turns a fetched model into the study's target: one Hugging Face folder with a chat template and its stop tokens.

    python -m taps.prepare_target --source resources/smollm2.gguf --output results/laptop/target

A GGUF file is converted once to float32 safetensors. The weights of a Hugging Face folder are linked, not copied;
pickled weights (`pytorch_model*.bin`) are read with `weights_only` and rewritten as safetensors. Models that our tree
attention or our draft layer cannot serve (sliding windows, recurrent layers, another activation or RoPE) are refused
before any weight is read. Then the model is loaded once and rehearsed on a few tokens (`taps.model.rehearsal`): what
features, training, traces or drafting would refuse after hours is refused here.
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps.data.chat_template import DATE, day, settle_template, template_option
from taps.model.architecture import check_architecture
from taps.model.config_keys import ACTIVATIONS, NEEDED, check_logits, check_numbers
from taps.model.target_folder import (
    check_template_tokens,
    finish_target,
    save_model,
    settle_tokenizer,
    write_plain_json,
)
from taps.model.weight_files import SAFETENSORS, WHOLE, WeightFiles, check_plain, find_weights, index_of, read_each
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError, first_words
from taps.plumbing.folders import atomic_folder, link
from taps.plumbing.provenance import digest_of
from taps.plumbing.strangers import read_object

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
)


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.prepare_target", __doc__)
    parser.add_argument("--source", type=Path, required=True, help="a .gguf file or a Hugging Face model folder")
    parser.add_argument("--chat-template", type=Path, help="Jinja file that replaces the tokenizer's chat template")
    parser.add_argument(
        "--template-option",
        type=template_option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set in the chat template, repeatable, e.g. enable_thinking=false",
    )
    parser.add_argument(
        "--date",
        type=day,
        default=DATE,
        help="what the chat template takes for today (default: %(default)s)",
    )
    parser.add_argument(
        "--trust-remote-code", action="store_true", help="allow Python code shipped with the model to run"
    )
    parser.add_argument("--output", type=Path, required=True, help="the target folder to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    source = find_source(arguments.source)
    trust = arguments.trust_remote_code
    with atomic_folder(arguments.output) as folder:
        if source.is_file():
            convert_gguf(source, folder)
        else:
            adopt_folder(source, folder, trust_remote_code=trust)
        options = dict(arguments.template_option)
        given = {"template": arguments.chat_template, "today": arguments.date, "options": options}
        settle_template(folder, where=source, **given)
        config = read_object(folder / "config.json")
        tokenizer = settle_tokenizer(folder, trust_remote_code=trust, where=source)
        check_template_tokens(tokenizer, config["vocab_size"])

        from taps.model.rehearsal import rehearse

        rehearse(folder, config, where=source, trust_remote_code=trust)
        facts = {"source": {"name": source.name, "digest": digest_of(source)}}
        finish_target(folder, stage="taps.prepare_target", facts=facts, tokenizer=tokenizer, where=source)


def find_source(source: Path) -> Path:
    """Returns the GGUF file or the model folder that `source` means; a folder may hold a single GGUF file."""
    if source.is_file() and source.suffix == ".gguf":
        return source
    if source.is_dir():
        ggufs = sorted(source.glob("*.gguf"))
        if (source / "config.json").exists():
            return source
        if len(ggufs) == 1:
            return ggufs[0]
    raise TapsError(
        f"--source {source}",
        "no model here",
        expected="a .gguf file or a folder with config.json",
        found="nothing" if not source.exists() else "neither",
        remedy="fetch it with python -m taps.fetch",
    )


def check_draftable(config: Mapping[str, Any], *, where: object) -> None:
    """Checks what draft models of a target follow from: its sizes, its RoPE, and logits that are lm_head(feature).

    Raises:
        TapsError: no draft model could be trained for it.
    """
    from taps.model.drafter import DrafterConfig

    check_logits(where, config)
    DrafterConfig.from_json(config, where=where)


# --- GGUF ------------------------------------------------------------------------------------------------------------


def convert_gguf(source: Path, folder: Path) -> None:
    """Writes config, float32 weights and tokenizer of a GGUF file to `folder`."""
    import torch
    from transformers import AutoConfig, AutoTokenizer

    from taps.model.loading import load_model

    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    try:
        config = AutoConfig.from_pretrained(**where)
    except (ValueError, KeyError, OSError, RuntimeError, struct.error) as error:
        raise TapsError(source, "not a GGUF model that transformers can read", found=str(error)) from error
    plain = {**config.to_dict(), "quantization_config": None}
    check_architecture(plain, where=source)
    check_draftable(plain, where=source)
    tokenizer = AutoTokenizer.from_pretrained(**where)
    restore_pre_tokenizer(tokenizer, read_pre_tokenizer_name(source))
    tokenizer.model_max_length = config.max_position_embeddings
    model = load_model(source.parent, dtype=torch.float32, where=source, gguf_file=source.name)
    # The weights are plain by now; transformers still refuses to save them, and later loads would dequantise again.
    del model.config.quantization_config
    model.hf_quantizer = None
    save_model(model, tokenizer, folder)


def read_pre_tokenizer_name(source: Path) -> str:
    """Returns the GGUF key `tokenizer.ggml.pre`, empty where there is none."""
    from gguf import GGUFReader

    field = GGUFReader(source).fields.get("tokenizer.ggml.pre")
    return str(field.contents()) if field else ""


def restore_pre_tokenizer(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Gives the converted tokenizer the digit splitting that GGUF records by name only.

    transformers builds GPT-2's pre-tokenizer for every byte-level GGUF. SmolLM was trained with each digit cut off
    first: otherwise the spaces before a number merge differently, and math is full of numbers.
    """
    if name not in ("smollm", "refact", "command-r", "starcoder"):
        return
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


# --- Hugging Face folders --------------------------------------------------------------------------------------------


def adopt_folder(source: Path, folder: Path, *, trust_remote_code: bool) -> None:
    """Writes a model folder's config and tokenizer to `folder` and links its weights there."""
    config = read_object(source / "config.json", remedy="fetch the model again")
    check_architecture(config, where=source / "config.json")
    check_numbers(source / "config.json", config)
    if (code := config.get("auto_map")) and not trust_remote_code:
        raise TapsError(
            source / "config.json",
            "the model wants to run its own Python code",
            found=sorted(map(str, code.values())) if isinstance(code, dict) else code,
            remedy="read that code, then give --trust-remote-code",
        )
    names = {*_TOKENIZER_FILES, "config.json", "generation_config.json"}
    wanted = [file for file in source.iterdir() if file.name in names or (file.suffix == ".py" and trust_remote_code)]
    for file in wanted:
        if file.suffix == ".json":
            read_object(file, remedy="fetch the model again")  # before a library stumbles over it
        shutil.copyfile(file, folder / file.name)
    config = settle_config(folder, where=source / "config.json", trust_remote_code=trust_remote_code)
    check_draftable(config, where=source / "config.json")
    adopt_weights(find_weights(source), folder)


def adopt_weights(weights: WeightFiles, folder: Path) -> None:
    """Links safetensors weights into `folder`, pickled ones rewritten as safetensors; several get an index of ours."""
    if weights.kind == SAFETENSORS:
        weight_map = index_of(weights.files)
        for file in weights.files:
            link(file, folder / (WHOLE if len(weights.files) == 1 else file.name))
    else:
        weight_map = convert_pickled_weights(weights, folder)
    if len(weights.files) > 1:
        num_bytes = sum((folder / name).stat().st_size for name in set(weight_map.values()))
        index = {"metadata": {"total_size": num_bytes}, "weight_map": weight_map}
        write_plain_json(folder / f"{WHOLE}.index.json", index)


def convert_pickled_weights(weights: WeightFiles, folder: Path) -> dict[str, str]:
    """Returns weight -> file of pickled weights, now safetensors in `folder`, one file in memory at a time.

    Only tensors are unpickled (`weights_only`): a file that asks for code is an error.
    """
    from safetensors.torch import save_file

    weight_map: dict[str, str] = {}
    total = len(weights.files)
    for number, (file, found) in enumerate(read_each(weights), start=1):
        check_plain(file, found)
        tensors = {name: value.contiguous().clone() for name, value in found.items()}
        name = WHOLE if total == 1 else f"model-{number:05d}-of-{total:05d}.safetensors"
        save_file(tensors, folder / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(tensors, name)
    return weight_map


def settle_config(folder: Path, *, where: object, trust_remote_code: bool) -> dict[str, Any]:
    """Returns the content of the folder's config.json after writing into it what it leaves to the library's defaults.

    Later stages read the file alone: a size that is missing there is not known to them.

    Raises:
        TapsError: the library does not know this architecture.
    """
    from transformers import AutoConfig

    path = folder / "config.json"
    content = read_object(path)
    try:
        known = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # every class of config has checks of its own
        raise TapsError(where, "a config.json that the library cannot read", found=first_words(error)) from error
    names = [*NEEDED, "num_key_value_heads", "head_dim", *ACTIVATIONS, "tie_word_embeddings"]
    if not any(content.get(name) for name in ("rope_parameters", "rope_scaling", "rope_theta")):
        names.append("rope_parameters")
    defaults = {name: getattr(known, name, None) for name in names if content.get(name) is None}
    if added := {name: value for name, value in defaults.items() if value is not None}:
        content |= json.loads(json.dumps(added))
        write_plain_json(path, content)
    return content


if __name__ == "__main__":
    run(main)
