"""Published draft model -> one of ours: reads official EAGLE, HASS and TAPS checkpoints, strictly.

    python -m taps.import_draft --source ~/EAGLE-LLaMA3-Instruct-8B --target results/paper/target \\
        --output results/paper/drafters/eagle2/seed0/published
    python -m taps.import_draft --hub yuhuili/EAGLE-LLaMA3-Instruct-8B --revision <40 hex digits> ...

The source is a folder (or Hub repository) with config.json and model*.safetensors or pytorch_model*.bin, one file or
shards; pickles are opened without running code. Names, shapes, dtype and bias flag must be those of an EAGLE head for
this target; a configuration that asks for other mathematics than ours is refused.

A missing `"bias"` means true, as in the official loader. Heads in SGLang's format (LlamaForCausalLMEagle) say false and
have an fc.bias all the same; zeros there are dropped. Copies of the target's embedding or head
(`embed_tokens.weight`, `lm_head.weight`) are dropped if they equal the target's and refused if not; rotary buffers
(`layers.0.self_attn.rotary_emb.inv_freq`) are dropped, since they follow from the configuration. RoPE is the head's
own; positions reach as far as the target's, whatever the checkpoint was trained on.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps.model.family import FAMILIES
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.provenance import provenance, sha256_of
from taps.plumbing.strangers import read_object

if TYPE_CHECKING:
    import torch

    from taps.model.drafter import DrafterConfig

IGNORED = ("layers.0.self_attn.rotary_emb.inv_freq",)


def read_content(path: Path) -> dict[str, Any]:
    """Returns the content of a checkpoint's config.json.

    Raises:
        TapsError: missing, not JSON, or not an object.
    """
    try:
        content = read_object(path, remedy="fetch the checkpoint again")
    except FileNotFoundError:
        raise TapsError(path, "missing", expected="the config.json of an EAGLE head") from None
    return content


def shape_of(
    path: Path, content: Mapping[str, Any], target_config: Mapping[str, Any], *, family: str = "eagle2"
) -> DrafterConfig:
    """Returns the shape that a checkpoint's config.json describes, its context length being the target's.

    Raises:
        TapsError: more than one layer, or not of the target's shape.
    """
    from taps.model.checkpoint import check_fits_target, head_config

    if content.get("num_hidden_layers", 1) != 1:
        raise TapsError(path, "not an EAGLE head", expected="num_hidden_layers 1", found=content["num_hidden_layers"])
    config = head_config(path, {"family": family, **content, "bias": content.get("bias", True)})
    check_fits_target(path, config, target_config)
    return replace(config, max_position_embeddings=target_config["max_position_embeddings"])


def drop_copies(where: Path, tensors: Mapping[str, torch.Tensor], target: Path) -> dict[str, torch.Tensor]:
    """Returns the tensors without rotary buffers and without copies of the target's own.

    Raises:
        TapsError: a copy differs from the target's by more than rounding.
    """
    import torch

    from taps.model.target_head import load_target_head

    kept = {name: tensor for name, tensor in tensors.items() if name not in IGNORED}
    copies = [name for name in ("embed_tokens.weight", "lm_head.weight") if name in kept]
    if not copies:
        return kept
    ends = load_target_head(target, dtype=torch.bfloat16)
    own = {"embed_tokens.weight": ends.embedding, "lm_head.weight": ends.head}
    for name in copies:
        copy = kept.pop(name)
        if copy.shape != own[name].shape:
            found = tuple(copy.shape)
            raise TapsError(where, f"{name} is not the target's", expected=tuple(own[name].shape), found=found)
        # two bfloat16 roundings apart at most, whatever precision the copy passed through
        if not torch.allclose(copy.to(torch.bfloat16), own[name], rtol=2**-7, atol=1e-6):
            raise TapsError(where, f"{name} differs from the target's", expected=f"that of {target}")
    return kept


def check_dtype(where: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Checks that all tensors have one dtype.

    Raises:
        TapsError: they have several.
    """
    dtypes = sorted({str(tensor.dtype) for tensor in tensors.values()})
    if len(dtypes) > 1:
        raise TapsError(where, "tensors of several dtypes", expected="one", found=", ".join(dtypes))


def import_folder(
    folder: Path, target: Path, output: Path, origin: Mapping[str, Any], *, family: str = "eagle2", **labels: str
) -> None:
    """Writes the draft model in `folder` as one of ours.

    Raises:
        TapsError: anything about it is not that of an EAGLE head for this target.
    """
    from taps.model.checkpoint import check_tensors, save_drafter
    from taps.model.flavours import settle_bias
    from taps.model.target_head import read_config
    from taps.model.weight_files import check_finite, check_plain, find_weights, read_weights

    content = read_content(folder / "config.json")
    config = shape_of(folder / "config.json", content, read_config(target), family=family)
    weights = find_weights(folder)
    path = weights.files[0] if len(weights.files) == 1 else folder
    tensors = read_weights(weights)
    check_plain(path, {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()})
    check_finite(path, tensors, remedy="ask its authors for whole weights")
    tensors, config = settle_bias(drop_copies(path, tensors, target), config, content.get("architectures"))
    if config.bias and "fc.bias" not in tensors:
        remedy = 'if it was trained without, add "bias": false to its config.json'
        raise TapsError(
            path, "lacks fc.bias", expected='fc.bias, as "bias" in config.json is true or missing', remedy=remedy
        )
    check_tensors(path, tensors, config)
    check_dtype(path, tensors)
    digests = {file.name: sha256_of(file) for file in weights.files}
    inputs: dict[str, Path | str] = {"target": target}
    made = provenance(stage="taps.import_draft", inputs=inputs, weights_sha256=digests, origin=dict(origin), **labels)
    save_drafter(output, tensors, config, provenance=made)


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.import_draft", __doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--source", type=Path, help="folder of the checkpoint")
    where.add_argument("--hub", metavar="REPO", help="Hub repository of the checkpoint")
    parser.add_argument("--revision", help="commit of --hub: 40 hex digits")
    parser.add_argument("--attempts", type="number", default=4, help="tries before a failing download is given up")
    parser.add_argument(
        "--family", choices=list(FAMILIES), default="eagle2", help="whose network (default: %(default)s)"
    )
    parser.add_argument("--target", type=Path, required=True, help="folder of the target that it drafts for")
    parser.add_argument("--method", help="what the study calls the draft family: a label, which replays compare")
    parser.add_argument("--output", type=Path, required=True, help="drafter folder to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    labels = {"method": arguments.method} if arguments.method else {}
    if arguments.source:
        origin = {"folder": arguments.source.name}
        import_folder(arguments.source, arguments.target, arguments.output, origin, family=arguments.family, **labels)
    else:
        from taps.data.downloads import HubSource, check_pinned, download_hub, with_retries
        from taps.model.weight_files import PATTERNS

        check_pinned(arguments.revision or "")
        hub = HubSource(repo=arguments.hub, revision=arguments.revision, include=("config.json", *PATTERNS))
        with tempfile.TemporaryDirectory(prefix="taps-import-") as name:
            folder = Path(name)
            with_retries(lambda: download_hub(hub, folder), what=str(hub), attempts=arguments.attempts)
            origin = {"hub": arguments.hub, "revision": arguments.revision}
            import_folder(folder, arguments.target, arguments.output, origin, family=arguments.family, **labels)
    print(f"{arguments.output}: imported")


if __name__ == "__main__":
    run(main)
