"""Draft models -> their weighted mean: one draft model made of specialists, without training.

    cd results/laptop/drafters/eagle2/seed0
    python -m taps.average --drafter math --weight 0.5 --drafter chat --weight 0.5 --output averaged

The mean is taken in float32. Only draft models of one target and one shape can be averaged, and it is meant for
specialists trained from a common start: the mean of independently trained networks need not be a network that works.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.lineage import common_cause, common_labels
from taps.plumbing.provenance import provenance

if TYPE_CHECKING:
    import torch


def check_compatible(folders: Sequence[Path]) -> None:
    """Checks that draft models can be averaged: one shape, one target.

    Raises:
        TapsError: names the first difference.
    """
    from taps.model.checkpoint import read_drafter_config

    common_cause([(folder, "drafter") for folder in folders], "target")
    first = read_drafter_config(folders[0]).to_json()
    for folder in folders[1:]:
        other = read_drafter_config(folder).to_json()
        for name in first:
            if other[name] != first[name]:
                raise TapsError(
                    folder, f"not of the shape of {folders[0]}: {name}", expected=first[name], found=other[name]
                )


def check_weights(weights: Sequence[float]) -> None:
    """Checks that the weights of a mean sum to 1.

    Raises:
        TapsError: they do not, or one is not finite.
    """
    if not all(map(math.isfinite, weights)) or not math.isclose(sum(weights), 1.0, abs_tol=1e-6):
        found = f"{sum(weights):g} ({', '.join(f'{weight:g}' for weight in weights)})"
        raise TapsError("--weight", "weights do not sum to 1", expected=1.0, found=found)


def read_all(folders: Sequence[Path]) -> list[dict[str, torch.Tensor]]:
    """Returns the tensors of draft models that have the same dtypes.

    Raises:
        TapsError: a tensor has another dtype than in the first draft model.
    """
    from taps.model.checkpoint import read_drafter_tensors

    models = [read_drafter_tensors(folder) for folder in folders]
    for folder, model in zip(folders, models, strict=True):
        for name, tensor in models[0].items():
            if model[name].dtype != tensor.dtype:
                raise TapsError(folder, f"{name} has another dtype", expected=tensor.dtype, found=model[name].dtype)
    return models


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.average", __doc__)
    parser.add_argument("--drafter", type=Path, action="append", required=True, help="folder; repeat with its --weight")
    parser.add_argument(
        "--weight", type="share0", action="append", required=True, help="one per --drafter, summing to 1"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    folders, weights = arguments.drafter, arguments.weight
    if len(folders) != len(weights):
        raise TapsError("--weight", "one per --drafter is needed", expected=len(folders), found=len(weights))
    check_weights(weights)

    from taps.model.averaging import weighted_mean
    from taps.model.checkpoint import read_drafter_config, save_drafter

    check_compatible(folders)
    inputs = {f"drafter.{i}": folder for i, folder in enumerate(folders)}
    target = common_cause([(folder, "drafter") for folder in folders], "target")
    mean = weighted_mean(read_all(folders), weights)
    labels = common_labels([(folder, "drafter") for folder in folders], "method", "training_seed")
    origin = provenance(stage="taps.average", inputs=inputs | target, weights=weights, **labels)
    save_drafter(arguments.output, mean, read_drafter_config(folders[0]), provenance=origin)
    print(f"{arguments.output}: " + " + ".join(f"{w:g} {f.name}" for w, f in zip(weights, folders, strict=True)))


if __name__ == "__main__":
    run(main)
