"""The training loop of both families: one schedule, one loss normalisation, exact resumption.

Every optimizer step sees `batch_size` rows over all processes and accumulation steps; its loss is the sum over their
supervised tokens divided by their number, whoever computes which row. All randomness is a function of (seed, place in
the stream of rows), so a resumed run needs no generator state and continues bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from taps.model.batches import Batch, Conversations, Plan
from taps.model.drafter import DraftModel
from taps.model.family import Family
from taps.model.loader import batches_of
from taps.model.losses import Losses, LossWeights
from taps.model.noise import Noise
from taps.model.target_head import TargetHead
from taps.model.training_log import TrainingLog
from taps.model.training_state import load_state, save_state
from taps.plumbing.errors import TapsError
from taps.plumbing.progress import progress
from taps.plumbing.writers import writer as sign

_T = TypeVar("_T")
_LOSSES = ("value", "probability", "top_k")  # in the order of `Losses.parts`
_LOOK_EVERY = 16  # steps of a device between looks at losses and clock: each look waits for it, and for all processes


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides the weights, next to the data.

    Attributes:
        num_steps: Optimizer steps of the whole run.
        learning_rate: Its peak, after the warm-up.
        warmup_share: Share of the steps with a rising rate; then it falls linearly to 0.
        accumulation: Backward passes per step and process.
        loss_weights: How losses are added.
        num_passes: Alignment passes (1: EAGLE-2, 3: HASS).
        attention: `causal` or `published` masking of the aligned passes.
        noise: Noise on the input features.
        clip_value: Largest absolute gradient entry, the published clipping; 0 for none.
        fingerprint: Digest of all settings and inputs; a state of another run is not resumed from.
    """

    num_steps: int
    learning_rate: float
    warmup_share: float
    accumulation: int
    loss_weights: LossWeights
    num_passes: int
    attention: str
    noise: Noise
    clip_value: float
    fingerprint: str

    def learning_rate_at(self, step: int) -> float:
        """Returns the rate of optimizer step `step`, counted from 0: linear warm-up, then linear decay."""
        warmup = max(1, round(self.warmup_share * self.num_steps))
        if step < warmup:
            return self.learning_rate * (step + 1) / warmup
        return self.learning_rate * (self.num_steps - step) / max(1, self.num_steps - warmup)


class DraftTraining(nn.Module):
    """The module that the engine wraps: batch in, losses out. The target's ends are no part of its parameters."""

    def __init__(self, drafter: DraftModel, head: TargetHead, recipe: Recipe, family: Family) -> None:
        super().__init__()
        self.family = family
        self.drafter = drafter
        self._head = head
        self._recipe = recipe

    @property
    def like(self) -> torch.Tensor:
        """A tensor on the device and in the dtype of the training."""
        return self._head.head

    def forward(self, batch: Batch) -> Losses:
        """Returns the losses summed over the supervised tokens of `batch` and over passes."""
        like = self._head.head
        predictions = self.family.predictions(
            self.drafter,
            self._head.embed(batch.next_tokens.to(like.device)),
            batch.features.to(like),
            batch.lengths,
            num_passes=self._recipe.num_passes,
            attention=self._recipe.attention,
        )
        supervised = batch.supervised.to(like.device)
        kept = torch.stack([prediction[supervised] for prediction in predictions])
        return self.family.losses(kept, batch.targets.to(like), like, self._recipe.loss_weights)


@dataclass
class Outcome:
    """What a finished run reports.

    Attributes:
        metrics: One record per epoch.
        num_tokens: Inputs seen, over all processes, one pass each counted once.
        num_supervised: Supervised tokens among them.
        flops: Operations spent (`taps.model.flops`).
        seconds: Wall time of the steps, loading included, validation and states left out, over all resumed parts.
    """

    metrics: list[dict[str, Any]]
    num_tokens: int
    num_supervised: int
    flops: float
    seconds: float


def train(
    engine: Any,
    conversations: Conversations,
    plan: Plan,
    recipe: Recipe,
    *,
    state: Path,
    checkpoint_every_s: float,
    validate: Callable[[], dict[str, Any]],
    head_columns: int,
    event_folder: Path | None = None,
) -> Outcome:
    """Trains the engine's module to the end, from the newest state in `state` if there is one.

    Args:
        engine: DeepSpeed engine around a `DraftTraining`.
        conversations: Tokens and features of the rows.
        plan: Which rows each step sees.
        recipe: Everything else that decides the weights.
        state: Folder of this run's states.
        checkpoint_every_s: Seconds between states; one is also written after each epoch.
        validate: Called after each epoch by the first process.
        head_columns: Size of the (draft) vocabulary, for the count of operations.
        event_folder: Where TensorBoard's event files go; None for none.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    training = engine.module
    cost = training.family.training_cost(
        training.drafter.config, head_columns=head_columns, num_passes=recipe.num_passes
    )
    totals = {"num_tokens": 0, "num_supervised": 0, "flops": 0.0, "seconds": 0.0}
    facts: dict[str, Any] = {"metrics": [], "running": _no_sums(), **totals}
    first_step = 0
    if found := load_state(state, recipe.fingerprint):
        folder, first_step, facts = found
        if engine.load_checkpoint(str(folder), tag="engine")[0] is None:
            raise RuntimeError(f"{folder}: the engine found nothing to load")
    events = TrainingLog(event_folder, first_step) if event_folder and rank == 0 else None
    logged = dict(facts["running"])
    writer = _from_first(sign())
    bar = progress(total=recipe.num_steps, what="training", unit="step", show=rank == 0)
    bar.update(first_step)
    batches = batches_of(
        conversations,
        plan,
        steps=range(first_step, recipe.num_steps),
        noise=recipe.noise,
        accumulation=recipe.accumulation,
        rank=rank,
        world=world,
        like=engine.module.like,
    )
    sums = _Sums(facts["running"], engine.module.like.device)
    look_every = 1 if engine.module.like.device.type == "cpu" else _LOOK_EVERY
    saved_at = started = time.perf_counter()
    for step, micro_batches in batches:
        lengths, num_supervised = conversations.size(plan.rows_of(step))
        for losses in _one_step(engine, micro_batches, num_supervised, recipe, step, world):
            sums.add(losses)
        facts["num_tokens"] += sum(lengths)
        facts["num_supervised"] += num_supervised
        facts["flops"] += cost.flops(lengths, num_supervised)
        facts["running"]["count"] += num_supervised
        done = step + 1
        epoch_ends = plan.epoch_of(done) > plan.epoch_of(step) or done == recipe.num_steps
        is_looked_at = epoch_ends or done % look_every == 0
        if is_looked_at:
            facts["running"] |= sums.read(done)
            if events:
                since = {name: value - logged[name] for name, value in facts["running"].items()}
                rate = {"learning_rate": recipe.learning_rate_at(step)}
                events.write("step", done, {**_per_token(since, recipe), **rate})
                logged = dict(facts["running"])
        facts["seconds"] += time.perf_counter() - started
        bar.update(1)
        if epoch_ends:
            facts["metrics"].append(_epoch_record(facts, plan, recipe, done, validate if rank == 0 else None))
            if events:
                events.write("epoch", done, facts["metrics"][-1])
            facts["running"], logged = _no_sums(), _no_sums()
            sums.forget()
            bar.set_postfix_str(_short(facts["metrics"][-1]))
        if epoch_ends or (is_looked_at and _from_first(time.perf_counter() - saved_at > checkpoint_every_s)):
            _save(engine, state, done, facts | {"fingerprint": recipe.fingerprint}, writer=writer, is_main=rank == 0)
            saved_at = time.perf_counter()
        started = time.perf_counter()
    bar.close()
    if events:
        events.close()
    return Outcome(metrics=facts["metrics"], **{name: facts[name] for name in totals})


def _one_step(
    engine: Any, micro_batches: list[Batch], num_supervised: int, recipe: Recipe, step: int, world: int
) -> Iterator[Losses]:
    """Runs one optimizer step; yields the losses of each of this process's micro-batches.

    The engine averages over processes and accumulation steps; multiplying by both leaves the sum over the global batch,
    which is then divided by its supervised tokens.
    """
    for group in engine.optimizer.param_groups:
        group["lr"] = recipe.learning_rate_at(step)
    scale = world * recipe.accumulation / max(num_supervised, 1)
    for batch in micro_batches:
        losses = engine(batch)
        engine.backward(losses.total * scale)
        if recipe.clip_value and engine.is_gradient_accumulation_boundary():
            nn.utils.clip_grad_value_(engine.module.parameters(), recipe.clip_value)
        engine.step()
        yield losses


def _epoch_record(
    facts: dict[str, Any], plan: Plan, recipe: Recipe, done: int, validate: Callable[[], dict[str, Any]] | None
) -> dict[str, Any]:
    """Returns the metrics of the epoch that just ended; training losses are this process's, per supervised token."""
    return {
        "step": done,
        "epoch": done * plan.batch_size / len(plan.rows),
        "learning_rate": recipe.learning_rate_at(done - 1),
        "num_tokens": facts["num_tokens"],
        "seconds": round(facts["seconds"], 3),
        **_per_token(facts["running"], recipe),
        **(validate() if validate else {}),
    }


def _per_token(sums: dict[str, float], recipe: Recipe) -> dict[str, float]:
    """Returns this process's losses per supervised token and pass; `count` tokens are those of all processes."""
    world, count = dist.get_world_size(), max(sums["count"], 1)
    return {name: sums[name] * world / count / recipe.num_passes for name in _LOSSES}


def _save(engine: Any, state: Path, step: int, facts: dict[str, Any], *, writer: str, is_main: bool) -> None:
    def write(folder: Path) -> None:
        dist.barrier()  # the first process makes the folder
        engine.save_checkpoint(str(folder), tag="engine", save_latest=False)
        dist.barrier()

    save_state(state, step, facts, write, writer=writer, is_main=is_main)
    dist.barrier()


def _from_first(value: _T) -> _T:
    """Returns the first process's value in all processes: clocks differ, collective calls must not."""
    values = [value]
    if dist.get_world_size() > 1:
        dist.broadcast_object_list(values, src=0)
    return values[0]


class _Sums:
    """Losses of the epoch so far, kept on the device: to read them is to wait for it.

    Args:
        running: What was read before.
        device: Where the losses lie.
    """

    def __init__(self, running: dict[str, float], device: torch.device) -> None:
        self._sums = torch.tensor([running[name] for name in _LOSSES], dtype=torch.float64).to(device)

    def add(self, losses: Losses) -> None:
        self._sums += losses.parts

    def read(self, done: int) -> dict[str, float]:
        """Returns the sums by name.

        Raises:
            TapsError: one is not finite.
        """
        sums = dict(zip(_LOSSES, self._sums.tolist(), strict=True))
        if not all(map(math.isfinite, sums.values())):
            found = ", ".join(f"{name} {value:g}" for name, value in sums.items())
            remedy = "lower the learning rate, and look at the features' audit"
            raise TapsError("training", f"losses are not finite by step {done}", found=found, remedy=remedy)
        return sums

    def forget(self) -> None:
        self._sums.zero_()


def _no_sums() -> dict[str, float]:
    return {"value": 0.0, "probability": 0.0, "top_k": 0.0, "count": 0}


def _short(record: dict[str, Any]) -> str:
    names = ["probability", *(name for name in record if name.startswith(("validation_top1", "tau_")))]
    return " ".join(f"{name.removeprefix('validation_')} {record[name]:.3f}" for name in names if name in record)
