"""One of our draft models -> a folder, or a Hub repository, that EAGLE's own code, vLLM or SGLang serves.

    python -m taps.export_draft --drafter results/laptop/drafters/eagle2/seed0/math --target results/laptop/target \\
        --flavour sglang --token-map results/laptop/draft_vocab.safetensors --tables reports/laptop/tables \\
        --config config.yaml --licence target=apache-2.0 --output exported/math-sglang

The folder holds model.safetensors and config.json by the rules of `taps.model.flavours`, which are read back and
validated, and README.md, a model card. `--check` validates a folder that is already there, e.g. one written by hand.

vLLM drafts chains with EAGLE heads, EAGLE's own code and SGLang draft trees. A draft vocabulary is ours alone: servers
draft over all of the target's tokens, SGLang over those of `--token-map`. docs/serving.md has the commands.

`--push-to-hub` uploads the folder; the token is taken from HF_TOKEN in the environment.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from taps.data.uploads import check_upload, upload_folder
from taps.plumbing.atomic import write_text
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.folders import atomic_folder
from taps.plumbing.lineage import inputs_of
from taps.study.config import ROOT, read, validate

FLAVOURS = ("eagle", "vllm", "sglang")


def licence(text: str) -> tuple[str, str]:
    """Returns (name, licence) of `math=mit`; an argparse type.

    Raises:
        ArgumentTypeError: no `=`, or nothing on one side of it.
    """
    name, _, value = text.partition("=")
    if not name or not value:
        raise argparse.ArgumentTypeError(f"expected NAME=LICENCE, e.g. math=mit, found {text!r}")
    return name, value


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.export_draft", __doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--drafter", type=Path, help="drafter folder to export")
    what.add_argument("--check", type=Path, metavar="FOLDER", help="only validate this folder")
    parser.add_argument("--target", type=Path, required=True, help="folder of the target")
    parser.add_argument("--flavour", choices=FLAVOURS, required=True, help="who is to read it")
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"), help="default: the drafter's own")
    parser.add_argument(
        "--token-map", type=Path, metavar="DRAFT_VOCAB", help="let SGLang draft over this draft vocabulary"
    )
    parser.add_argument("--output", type=Path, help="folder to write")
    parser.add_argument("--force", action="store_true", help="write over what is there, folder or repository")
    card = parser.add_argument_group("the model card")
    card.add_argument("--tables", type=Path, metavar="DIR", help="tables of a report: adds acceptance lengths")
    card.add_argument("--config", type=Path, help="the study's config: adds where target and corpora come from")
    card.add_argument(
        "--licence",
        type=licence,
        action="append",
        default=[],
        metavar="NAME=LICENCE",
        help="of `target`, `drafter` or a corpus; repeatable",
    )
    hub = parser.add_argument_group("the Hub")
    hub.add_argument("--push-to-hub", metavar="REPO", help="upload the folder to owner/name")
    hub.add_argument("--public", action="store_true", help="let everybody read a new repository (default: private)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.check:
        from taps.model.exporting import check

        check(arguments.check, arguments.target, flavour=arguments.flavour)
        print(f"{arguments.check}: valid for {arguments.flavour}")
        return
    if arguments.output is None:
        parser.error("--drafter needs --output")
    check_flags(arguments)
    write(arguments)
    print(f"{arguments.output}: written and valid for {arguments.flavour}")
    if "draft_vocab" in inputs_of(arguments.drafter, kind="drafter") and not arguments.token_map:
        left = "the draft vocabulary is left out: the server drafts over all of the target's tokens"
        print(f"{left}, unless --token-map is given" if arguments.flavour == "sglang" else left)
    if arguments.push_to_hub:
        repo = arguments.push_to_hub
        print(upload_folder(arguments.output, repo, public=arguments.public, replace=arguments.force))


def check_flags(arguments: argparse.Namespace) -> None:
    """Checks what can be checked before anything is read.

    Raises:
        TapsError: flags that do not go together, or something is there that may not be written over.
    """
    if arguments.token_map and arguments.flavour != "sglang":
        raise TapsError("--token-map", "is read by SGLang only", expected="--flavour sglang", found=arguments.flavour)
    if arguments.push_to_hub:
        check_upload(arguments.push_to_hub)
    if arguments.output.exists() and not arguments.force:
        raise TapsError(arguments.output, "there already", remedy="name another folder, or give --force to replace it")


def write(arguments: argparse.Namespace) -> None:
    """Writes the exported folder: weights, config, token map and model card.

    Raises:
        TapsError: as `export`, `write_token_map` and `model_card`.
    """
    from taps.analysis.model_card import model_card
    from taps.model.exporting import TOKEN_MAP, export, write_token_map

    drafter, target, token_map = arguments.drafter, arguments.target, None
    config = validate(read([arguments.config]), file=str(arguments.config), root=ROOT) if arguments.config else None
    with atomic_folder(arguments.output) as folder:
        export(drafter, target, folder, flavour=arguments.flavour, dtype=arguments.dtype)
        if arguments.token_map:
            token_map = TOKEN_MAP, write_token_map(arguments.token_map, drafter, target, folder)
        card = model_card(
            drafter,
            target,
            flavour=arguments.flavour,
            name=(arguments.push_to_hub or arguments.output.name).rpartition("/")[2],
            repo=arguments.push_to_hub or str(arguments.output),
            token_map=token_map,
            tables=arguments.tables,
            config=config,
            licences=dict(arguments.licence),
        )
        write_text(folder / "README.md", card)


if __name__ == "__main__":
    run(main)
