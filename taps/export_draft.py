"""One of our draft models -> a folder that EAGLE's own code, vLLM or SGLang serves.

    python -m taps.export_draft --drafter results/laptop/drafters/eagle2/seed0/math --target results/laptop/target \\
        --flavour sglang --output exported/math-sglang

The folder holds model.safetensors and config.json by the rules of `taps.model.flavours`; what was written is read back
and validated. `--check` validates a folder that is already there, e.g. one written by hand. vLLM drafts chains with
EAGLE heads, EAGLE's own code and SGLang draft trees.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from taps.model.family import FAMILIES
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.folders import atomic_folder
from taps.plumbing.lineage import check_made_from

FLAVOURS = ("eagle", "vllm", "sglang")


def export(drafter: Path, target: Path, output: Path, *, flavour: str, dtype: str | None) -> None:
    """Writes the exported folder.

    Raises:
        TapsError: the draft model is not for this target, or the flavour cannot express it.
    """
    import torch
    from safetensors.torch import save_file

    from taps.model.checkpoint import check_fits_target, read_drafter_config, read_drafter_tensors
    from taps.model.flavours import convert
    from taps.model.target_head import load_target_head

    check_made_from(drafter, {"target": target}, kind="drafter")
    config, tensors = read_drafter_config(drafter), read_drafter_tensors(drafter)
    if flavour not in (readable := FAMILIES.find(config.family).flavours):
        remedy = f"expected one of {', '.join(readable)}" if readable else "no server reads this family"
        raise TapsError(f"--flavour {flavour}", f"cannot express the family {config.family}", remedy=remedy)
    ends = load_target_head(target, dtype=tensors["fc.weight"].dtype)
    check_fits_target(drafter, config, ends.config)
    written, content = convert(
        tensors,
        config,
        flavour=flavour,
        embedding=ends.embedding,
        target_config=ends.config,
        dtype=getattr(torch, dtype) if dtype else None,
    )
    with atomic_folder(output) as folder:
        save_file(written, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        check(folder, target, flavour=flavour)


def check(folder: Path, target: Path, *, flavour: str) -> None:
    """Checks an exported folder against the rules of a flavour.

    Raises:
        TapsError: a file is missing or broken, or names the first broken rule.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from taps.model.flavours import validate
    from taps.model.target_head import read_config

    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "model.safetensors")
    except FileNotFoundError as error:
        raise TapsError(folder, "incomplete", expected="config.json and model.safetensors", found=error) from None
    except (ValueError, SafetensorError) as error:
        raise TapsError(folder, f"cannot be read ({error})") from None
    validate(folder, tensors, content, flavour=flavour, target_config=read_config(target))


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.export_draft", __doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--drafter", type=Path, help="drafter folder to export")
    what.add_argument("--check", type=Path, metavar="FOLDER", help="only validate this folder")
    parser.add_argument("--target", type=Path, required=True, help="folder of the target")
    parser.add_argument("--flavour", choices=FLAVOURS, required=True, help="who is to read it")
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"), help="default: the drafter's own")
    parser.add_argument("--output", type=Path, help="folder to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.check:
        check(arguments.check, arguments.target, flavour=arguments.flavour)
        print(f"{arguments.check}: valid for {arguments.flavour}")
        return
    if arguments.output is None:
        parser.error("--drafter needs --output")
    export(arguments.drafter, arguments.target, arguments.output, flavour=arguments.flavour, dtype=arguments.dtype)
    print(f"{arguments.output}: written and valid for {arguments.flavour}")


if __name__ == "__main__":
    run(main)
