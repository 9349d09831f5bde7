"""Turns a fetched model into the study's target: one Hugging Face folder with a chat template and its stop tokens.

    python -m taps.prepare_target --source resources/smollm2.gguf --output results/laptop/target

A GGUF file is converted once to float32 safetensors. The weights of a Hugging Face folder are linked, not copied;
pickled weights (`pytorch_model*.bin`) are read with `weights_only` and rewritten as safetensors. Models that our tree
attention cannot serve (sliding windows, recurrent layers, encoder-decoders) are refused before any weight is read.
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from taps.data.chat_template import DATE, settle_template, template_option
from taps.model.architecture import check_architecture
from taps.model.target_folder import finish_target, save_model, write_plain_json
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.folders import atomic_folder, link
from taps.plumbing.provenance import digest_of

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
        type=date.fromisoformat,
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
    with atomic_folder(arguments.output) as folder:
        if source.is_file():
            convert_gguf(source, folder)
        else:
            adopt_folder(source, folder, trust_remote_code=arguments.trust_remote_code)
        options = dict(arguments.template_option)
        settle_template(folder, template=arguments.chat_template, today=arguments.date, options=options)
        finish_target(
            folder,
            stage="taps.prepare_target",
            facts={"source": {"name": source.name, "digest": digest_of(source)}},
            trust_remote_code=arguments.trust_remote_code,
        )


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


# --- GGUF ------------------------------------------------------------------------------------------------------------


def convert_gguf(source: Path, folder: Path) -> None:
    """Writes config, float32 weights and tokenizer of a GGUF file to `folder`."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    try:
        config = AutoConfig.from_pretrained(**where)
    except (ValueError, KeyError, OSError, RuntimeError, struct.error) as error:
        raise TapsError(source, "not a GGUF model that transformers can read", found=str(error)) from error
    check_architecture({**config.to_dict(), "quantization_config": None}, where=source)
    tokenizer = AutoTokenizer.from_pretrained(**where)
    restore_pre_tokenizer(tokenizer, read_pre_tokenizer_name(source))
    tokenizer.model_max_length = config.max_position_embeddings
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    # The weights are plain by now; transformers still refuses to save them, and later loads would dequantise again.
    del model.config.quantization_config
    model.hf_quantizer = None  # type: ignore[assignment]
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
    try:
        config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    except ValueError:
        raise TapsError(source / "config.json", "not JSON", remedy="fetch the model again") from None
    check_architecture(config, where=source / "config.json")
    if config.get("auto_map") and not trust_remote_code:
        raise TapsError(
            source / "config.json",
            "the model wants to run its own Python code",
            found=sorted(config["auto_map"].values()),
            remedy="read that code, then give --trust-remote-code",
        )
    names = {*_TOKENIZER_FILES, "config.json", "generation_config.json"}
    wanted = [file for file in source.iterdir() if file.name in names or (file.suffix == ".py" and trust_remote_code)]
    for file in wanted:
        shutil.copyfile(file, folder / file.name)
    if not adopt_safetensors(source, folder) and not convert_pickled_weights(source, folder):
        raise TapsError(source, "no weights", expected="model*.safetensors or pytorch_model*.bin")


def adopt_safetensors(source: Path, folder: Path) -> bool:
    """Returns whether `source` has safetensors weights, now linked in `folder`; checks that no shard is missing."""
    index = source / "model.safetensors.index.json"
    if index.exists():
        shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        if missing := [name for name in shards if not (source / name).exists()]:
            raise TapsError(source, "weights missing", found=", ".join(missing), remedy="fetch the model again")
        shutil.copyfile(index, folder / index.name)
    else:
        shards = ["model.safetensors"] if (source / "model.safetensors").exists() else []
    for name in shards:
        link(source / name, folder / name)
    return bool(shards)


def convert_pickled_weights(source: Path, folder: Path) -> bool:
    """Returns whether `source` has `pytorch_model*.bin` weights, now safetensors in `folder`, one file at a time.

    Only tensors are unpickled (`weights_only`): a file that asks for code is an error.
    """
    import pickle

    import torch
    from safetensors.torch import save_file

    files = sorted(source.glob("pytorch_model*.bin"))
    weight_map: dict[str, str] = {}
    num_bytes = 0
    for number, file in enumerate(files, start=1):
        try:
            state = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        except (pickle.UnpicklingError, RuntimeError) as error:
            raise TapsError(file, "not a plain file of weights", found=str(error).splitlines()[0]) from error
        tensors = {name: value.contiguous().clone() for name, value in state.items()}
        name = "model.safetensors" if len(files) == 1 else f"model-{number:05d}-of-{len(files):05d}.safetensors"
        save_file(tensors, folder / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(tensors, name)
        num_bytes += sum(value.nbytes for value in tensors.values())
    if len(files) > 1:
        index = {"metadata": {"total_size": num_bytes}, "weight_map": weight_map}
        write_plain_json(folder / "model.safetensors.index.json", index)
    return bool(files)


if __name__ == "__main__":
    run(main)
