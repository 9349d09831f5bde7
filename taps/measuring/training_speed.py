"""How fast features, training and draft banks are, measured on the code that the stages run.

Tokens are counted without padding, operations from shapes (`taps.model.flops`).
"""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from taps.decoding.banks import bank_of_trace
from taps.decoding.drafting import DraftOptions
from taps.measuring.hardware import PeakMemory, synchronise
from taps.model.batches import Conversations, Plan, RowId
from taps.model.distributed import make_engine
from taps.model.drafter import DrafterConfig, DraftModel
from taps.model.family import FAMILIES
from taps.model.feature_store import (
    MANIFEST_KIND,
    FeatureStore,
    Manifest,
    plan_shards,
    write_manifest,
    write_shard,
)
from taps.model.features import compute_features
from taps.model.flops import target_flops
from taps.model.losses import LossWeights
from taps.model.noise import Noise
from taps.model.target import Target
from taps.model.target_head import TargetHead
from taps.model.training import DraftTraining, Recipe, train
from taps.plumbing.artefacts import read_tensors
from taps.plumbing.errors import TapsError

CORPUS = "speed"
_TREES = DraftOptions(depth=5, top_k=10, num_nodes=59)  # the paper's


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One line of the result.

    Attributes:
        what: `features`, `eagle2`, `hass` or `bank`.
        columns: Tokens of the head; 0 where it is not used.
        unit: What `per_s` counts: tokens or positions.
        per_s: How many of these a second.
        tflops: Operations per second, 10^12; 0 where they are not counted.
        peak_memory_mb: Most memory used meanwhile, MB.
        bytes_per_token: Of features on disk; 0 for other measurements.
    """

    what: str
    columns: int = 0
    unit: str = "tokens"
    per_s: float
    tflops: float = 0.0
    peak_memory_mb: float
    bytes_per_token: float = 0.0


def measure_features(target: Target, tokens: Path, folder: Path, *, dtype: str, batch_tokens: int) -> Measurement:
    """Returns the target's speed on all rows; leaves their features as a store in `folder`.

    Args:
        target: A loaded one, or random weights of its shape.
        tokens: Artefact of tokens.
        folder: To write; its size gives the bytes per token.
        dtype: The target's, for the manifest.
        batch_tokens: As in `length_batches`.
    """
    tensors, _ = read_tensors(tokens, kind="tokens")
    rows = tensors["tokens"].tensor_split(tensors["offsets"][1:-1])
    num_tokens, config = len(tensors["tokens"]), DrafterConfig.from_json(target.config)
    compute_features(target, rows[:1], batch_tokens=batch_tokens)  # warms up
    memory = PeakMemory(target.device)
    start = time.perf_counter()
    features = compute_features(target, rows, batch_tokens=batch_tokens)
    synchronise(target.device)
    seconds = time.perf_counter() - start
    peak_memory_mb = memory.megabytes()
    manifest = Manifest(
        target=CORPUS,
        template=CORPUS,
        tokens=CORPUS,
        dtype=dtype,
        batch_tokens=batch_tokens,
        hidden_size=config.hidden_size,
        num_rows=len(rows),
        num_tokens=num_tokens,
    )
    shards = []
    for shard in plan_shards([len(row) for row in rows], 32768):
        own = [features[i].cpu() for i in shard.row_range]
        shards.append(write_shard(folder, shard, own, manifest=manifest, provenance={}))
    write_manifest(folder, replace(manifest, shards=tuple(shards)), kind=MANIFEST_KIND, provenance={})
    flops = target_flops(
        config,
        num_layers=target.config["num_hidden_layers"],
        num_tokens=num_tokens,
        context=num_tokens / len(rows) / 2,
    )
    return Measurement(
        what="features",
        per_s=num_tokens / seconds,
        tflops=flops / seconds / 1e12,
        peak_memory_mb=peak_memory_mb,
        bytes_per_token=sum(file.stat().st_size for file in folder.iterdir()) / num_tokens,
    )


def measure_training(
    family: str,
    head: TargetHead,
    conversations: Conversations,
    rows: list[RowId],
    *,
    batch_size: int,
    zero_stage: int,
    scratch: Path,
) -> Measurement:
    """Returns the speed of the second of two epochs of the real training loop.

    Args:
        family: `eagle2` or `hass`, each with its published losses and passes.
        head: Full or sliced; its dtype and device are the training's.
        conversations: Tokens and features of the rows.
        rows: Those to train on.
        batch_size: Rows of one optimizer step.
        zero_stage: ZeRO 0, 1 or 2.
        scratch: For the run's states.

    Raises:
        TapsError: all rows fit into one step.
    """
    device, dtype = head.head.device, head.head.dtype
    plan, own = Plan(rows, batch_size, 0), FAMILIES[family].training
    recipe = Recipe(
        num_steps=plan.num_steps(2),
        learning_rate=3e-5,
        warmup_share=0.01,
        accumulation=1,
        loss_weights=LossWeights(top_k=own.get("top_k_weight", 0.0)),
        num_passes=own.get("alignment_passes", 1),
        attention="causal",
        noise=Noise(amplitude=0.2),
        clip_value=0.0,
        fingerprint=f"{family} {len(head.head)}",
    )
    memory = PeakMemory(device)
    with device:
        drafter = DraftModel(DrafterConfig.from_json(head.config)).to(dtype)
    engine = make_engine(
        DraftTraining(drafter, head, recipe, FAMILIES[family]),
        betas=(0.9, 0.95),
        weight_decay=0.01,
        clip_norm=0.5,
        zero_stage=zero_stage,
        dtype=dtype,
        micro_batch_size=batch_size,
        accumulation=1,
    )
    with tempfile.TemporaryDirectory(dir=scratch) as state:  # gigabytes at the paper's scale
        outcome = train(
            engine,
            conversations,
            plan,
            recipe,
            state=Path(state),
            checkpoint_every_s=math.inf,
            validate=dict,
            head_columns=len(head.head),
        )
    peak_memory_mb = memory.megabytes()
    engine.destroy()
    first, last = outcome.metrics[0], outcome.metrics[-1]
    if first is last:
        raise TapsError("--num-tokens", "too few for an epoch to warm up and one to measure", found=len(rows))
    per_s = (last["num_tokens"] - first["num_tokens"]) / (last["seconds"] - first["seconds"])
    return Measurement(
        what=family,
        columns=len(head.head),
        per_s=per_s,
        tflops=per_s * outcome.flops / outcome.num_tokens / 1e12,
        peak_memory_mb=peak_memory_mb,
    )


def measure_bank(head: TargetHead, tokens: Path, store: FeatureStore, *, num_positions: int) -> Measurement:
    """Returns the speed of drafting trees of the paper's size with a random draft model.

    Args:
        head: The target's, whole or over a draft vocabulary.
        tokens: Artefact of tokens.
        store: Features of these tokens.
        num_positions: Rows are taken until they have this many tokens; all positions of these rows are drafted.
    """
    tensors, _ = read_tensors(tokens, kind="tokens")
    offsets = tensors["offsets"]
    num_rows = min(int(torch.searchsorted(offsets, num_positions)), len(store))
    trace = {
        "tokens": tensors["tokens"][: offsets[num_rows]].long(),
        "offsets": offsets[: num_rows + 1],
        "prompt_lengths": torch.ones(num_rows, dtype=torch.int32),
        "features": torch.cat(store.rows(range(num_rows))),
    }
    device = head.head.device
    with device:
        drafter = DraftModel(DrafterConfig.from_json(head.config)).to(head.head.dtype).eval()
    memory = PeakMemory(device)
    seconds = 0.0
    for warms_up in (True, False):
        start = time.perf_counter()
        trees, _ = bank_of_trace(
            drafter, head, {**trace, "offsets": offsets[:2]} if warms_up else trace, _TREES, show_progress=False
        )
        synchronise(device)
        seconds = time.perf_counter() - start
    return Measurement(
        what="bank",
        columns=len(head.head),
        unit="positions",
        per_s=len(trees) / seconds,
        peak_memory_mb=memory.megabytes(),
    )
