"""Every stage's core on the emulated device, on a tiny target: what each did to the device, and whether it was right.

    python -m tests.support.emulated FOLDER        # prints JSON: scenario -> Report, or why it broke

Each scenario returns facts to be asserted by tests/whole/test_emulated_device.py, beside what the device counted.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from taps.decoding.banks import bank_of_trace
from taps.decoding.drafting import DraftOptions
from taps.decoding.engine import decode
from taps.decoding.live_drafter import LiveDrafter
from taps.decoding.strategy import Options, find
from taps.decoding.validation import HeldOut, validate
from taps.measuring.costs import Answer, measure_costs
from taps.model.batches import Conversations, Plan, RowId
from taps.model.distributed import make_engine, start_processes
from taps.model.drafter import DrafterConfig, DraftModel
from taps.model.family import FAMILIES
from taps.model.feature_store import FeatureStore
from taps.model.features import OnlineFeatures, compute_features, head_agreement
from taps.model.loader import batches_of
from taps.model.losses import LossWeights
from taps.model.noise import Noise
from taps.model.sampler import continue_batch
from taps.model.sampling import Draws, Sampling
from taps.model.target import load_target
from taps.model.target_head import load_target_head
from taps.model.training import DraftTraining, Recipe, train
from taps.trace import pack
from tests.support.emulated.device import CUDA, Record, hostile_kernels
from tests.support.emulated.process import emulated
from tests.support.live_fixtures import save_word_target
from tests.support.training_fixtures import make_study

PROMPTS = [[1, 2, 3], [7], [4, 4, 9, 0, 2, 11, 5, 8]]
NUM_NEW, NUM_STEPS = 20, 20
STRATEGIES = ("single", "routed_history", "merged_adaptive")

SCENARIOS: dict[str, Callable[[Setting], dict[str, Any]]] = {}


class Setting:
    """What the scenarios share: a study to train on, a target whose texts vary, and the device's record."""

    def __init__(self, folder: Path) -> None:
        self.study = make_study(folder / "study")
        self.words = save_word_target(folder / "words")
        self.scratch = folder / "scratch"
        self.record: Record = None  # type: ignore[assignment]  # set when the device is there
        target = load_target(self.words)
        self.on_host = continue_batch(
            target, PROMPTS, sampling=Sampling(), draws=None, max_new_tokens=NUM_NEW
        )  # before there is a device

    def conversations(self, *, online: bool = False) -> Conversations:
        corpora = ("math", "chat")
        features: dict[str, Any] = {
            corpus: FeatureStore(self.study.folder / f"features/{corpus}") for corpus in corpora
        }
        if online:
            target = load_target(self.study.target, device="cuda")
            features = {corpus: OnlineFeatures(target, self.study.tokens(corpus)) for corpus in corpora}
        return Conversations({corpus: self.study.tokens(corpus) for corpus in corpora}, features)

    def measured(self, work: Callable[[], Any]) -> tuple[Any, dict[str, int], list[Any]]:
        """Returns (result, what the device counted, where it waited or copied)."""
        self.record.clear()
        found = work()
        sites = [[*site, count] for site, count in self.record.sites.most_common(12)]
        return found, dict(self.record.counts), sites


def scenario(function: Callable[[Setting], dict[str, Any]]) -> Callable[[Setting], dict[str, Any]]:
    SCENARIOS[function.__name__] = function
    return function


def run_all(folder: Path, names: Sequence[str] = ()) -> dict[str, Any]:
    """Returns scenario -> facts, or its traceback under `failed`; of all scenarios, or of those named."""
    setting, found = Setting(folder), {}
    start_processes("cpu")  # gloo, one process: NCCL cannot be emulated
    with emulated() as record:
        setting.record = record
        _use_cuda_in_deepspeed()
        for name, function in SCENARIOS.items():
            if names and name not in names:
                continue
            try:
                found[name] = function(setting)
            except Exception:  # noqa: BLE001 (each tells of itself)
                found[name] = {"failed": traceback.format_exc(limit=-6)}
    return found


def _use_cuda_in_deepspeed() -> None:
    """Lets DeepSpeed take the device for a GPU; it has settled for the CPU when it was imported."""
    from deepspeed.accelerator import real_accelerator
    from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator

    real_accelerator.set_accelerator(CUDA_Accelerator())


# --- features and traces ---------------------------------------------------------------------------------------------


@scenario
def features(setting: Setting) -> dict[str, Any]:
    """Rows of unequal length in one batch; logits compared with lm_head(feature)."""
    target = load_target(setting.words, device="cuda")
    head = load_target_head(setting.words, device="cuda")
    rows = [torch.arange(n) % 11 for n in (9, 4, 17)]
    found, counts, sites = setting.measured(lambda: compute_features(target, rows, batch_tokens=64))
    on_host = compute_features(load_target(setting.words), rows, batch_tokens=64)
    difference = max(float((a.cpu().float() - b.float()).abs().max()) for a, b in zip(found, on_host, strict=True))
    agreement = head_agreement(target, head, rows[0], found[0])
    return {"counts": counts, "sites": sites, "difference": difference, "agreement": agreement._asdict()}


def _continued(setting: Setting, **options: Any) -> Any:
    target = load_target(setting.words, device="cuda")
    settings = {"sampling": Sampling(), "draws": None, "max_new_tokens": NUM_NEW} | options
    return setting.measured(lambda: continue_batch(target, PROMPTS, **settings))


@scenario
def trace(setting: Setting) -> dict[str, Any]:
    """Greedy texts of unequal prompts, compared with the host's."""
    answers, counts, sites = _continued(setting)
    same = [a.tokens.tolist() == b.tokens.tolist() for a, b in zip(answers, setting.on_host, strict=True)]
    return {"counts": counts, "sites": sites, "same": same, "steps": max(len(a.tokens) for a in answers)}


@scenario
def trace_on_hostile_kernels(setting: Setting) -> dict[str, Any]:
    """The same where attention answers NaN for rows that see nothing."""
    with hostile_kernels():
        answers, _, _ = _continued(setting)
    pairs = list(zip(answers, setting.on_host, strict=True))
    return {
        "same": [a.tokens.tolist() == b.tokens.tolist() for a, b in pairs],
        "difference": max(float((a.features - b.features).abs().max()) for a, b in pairs),
        "empty_rows": setting.record.empty_rows,
    }


@scenario
def sampled_trace(setting: Setting) -> dict[str, Any]:
    """Sampled texts, with top-p and top-k."""
    sampling = Sampling(temperature=1.0, top_p=0.9, top_k=6)
    draws = [Draws(3, str(row), 0) for row in range(len(PROMPTS))]
    answers, counts, sites = _continued(setting, sampling=sampling, draws=draws)
    on_host = continue_batch(
        load_target(setting.words), PROMPTS, sampling=sampling, draws=draws, max_new_tokens=NUM_NEW
    )
    same = [a.tokens.tolist() == b.tokens.tolist() for a, b in zip(answers, on_host, strict=True)]
    return {"counts": counts, "sites": sites, "same": same, "steps": max(len(a.tokens) for a in answers)}


# --- training --------------------------------------------------------------------------------------------------------


def _recipe(num_passes: int, *, num_steps: int = NUM_STEPS, attention: str = "causal") -> Recipe:
    return Recipe(
        num_steps=num_steps,
        learning_rate=1e-3,
        warmup_share=0.1,
        accumulation=1,
        loss_weights=LossWeights(top_k=1.0 if num_passes > 1 else 0.0),
        num_passes=num_passes,
        attention=attention,
        noise=Noise(amplitude=0.2),
        clip_value=0.0,
        fingerprint="",
    )


def _training(setting: Setting, recipe: Recipe, dtype: torch.dtype) -> DraftTraining:
    head = load_target_head(setting.study.target, dtype=dtype, device="cuda")
    torch.manual_seed(0)
    model = DraftModel(DrafterConfig.from_json(head.config)).to(device="cuda", dtype=dtype)
    return DraftTraining(model, head, recipe, FAMILIES["eagle2"])


def _rows(conversations: Conversations) -> list[RowId]:
    return conversations.usable([RowId(corpus, i) for corpus in ("math", "chat") for i in range(14)])


def _step(setting: Setting, num_passes: int, *, online: bool = False, attention: str = "causal") -> dict[str, Any]:
    """Returns the facts of forward and backward of one step, and the gradients' difference to the host's."""
    recipe, conversations = _recipe(num_passes, attention=attention), setting.conversations(online=online)
    module = _training(setting, recipe, torch.float32)
    plan = Plan(_rows(conversations), 4, 0)
    arguments: Any = {"noise": recipe.noise, "accumulation": 1, "rank": 0, "world": 1, "like": module.like}
    loaded = batches_of(conversations, plan, steps=range(2), **arguments)
    next(loaded)

    def step() -> Any:
        _, (batch,) = next(loaded)
        losses = module(batch)
        losses.total.backward()
        return batch, losses

    (batch, losses), counts, sites = setting.measured(step)
    head = load_target_head(setting.study.target)
    torch.manual_seed(0)
    twin = DraftTraining(DraftModel(DrafterConfig.from_json(head.config)), head, recipe, FAMILIES["eagle2"])
    names = ("next_tokens", "features", "supervised", "targets")
    on_host = type(batch)(**{name: getattr(batch, name).cpu() for name in names}, lengths=batch.lengths)
    expected = twin(on_host)
    expected.total.backward()
    pairs: Any = zip(module.drafter.parameters(), twin.drafter.parameters(), strict=True)
    return {
        "counts": counts,
        "sites": sites,
        "losses": losses.parts.cpu().tolist(),
        "losses_on_host": expected.parts.tolist(),
        "difference": max(float((a.grad.cpu() - b.grad).abs().max()) for a, b in pairs),
        "largest": max(float(b.grad.abs().max()) for b in twin.drafter.parameters() if b.grad is not None),
    }


@scenario
def eagle2_step(setting: Setting) -> dict[str, Any]:
    return _step(setting, 1)


@scenario
def hass_step(setting: Setting) -> dict[str, Any]:
    return _step(setting, 3)


@scenario
def published_hass_step(setting: Setting) -> dict[str, Any]:
    return _step(setting, 3, attention="published")


@scenario
def online_step(setting: Setting) -> dict[str, Any]:
    """Features computed by a target on the device: they never visit the host."""
    return _step(setting, 1, online=True)


def _trained(setting: Setting, *, zero_stage: int, dtype: torch.dtype, num_passes: int) -> dict[str, Any]:
    """Returns the facts of the whole loop with DeepSpeed's engine, counted over steps without a look or a state."""
    recipe, conversations = _recipe(num_passes), setting.conversations()
    module = _training(setting, recipe, dtype)
    engine = make_engine(
        module,
        betas=(0.9, 0.95),
        weight_decay=0.01,
        clip_norm=0.5,
        zero_stage=zero_stage,
        dtype=dtype,
        micro_batch_size=4,
        accumulation=1,
    )
    engine.save_checkpoint = lambda *_, **__: None  # here emulation ends: pickles hold the addresses of storages
    plan = Plan(_rows(conversations) * 10, 4, 0)  # an epoch is longer than the run
    before = {name: tensor.cpu().clone() for name, tensor in module.drafter.state_dict().items()}

    def loop() -> Any:
        return train(
            engine,
            conversations,
            plan,
            recipe,
            state=setting.scratch / f"{zero_stage}{num_passes}",
            checkpoint_every_s=1e9,
            validate=dict,
            head_columns=len(module.like),
        )

    outcome, counts, sites = setting.measured(loop)
    after = engine.module.drafter.state_dict()
    return {
        "counts": counts,
        "sites": sites,
        "steps": recipe.num_steps,
        "moved": min(float((after[name].cpu().float() - before[name].float()).abs().max()) for name in before),
        "looks": -(-recipe.num_steps // 16),
        "losses": [entry["value"] + entry["probability"] for entry in outcome.metrics],
        "device": str(next(engine.module.parameters()).device),
    }


@scenario
def deepspeed_float32(setting: Setting) -> dict[str, Any]:
    return _trained(setting, zero_stage=0, dtype=torch.float32, num_passes=1)


@scenario
def deepspeed_zero1(setting: Setting) -> dict[str, Any]:
    """What paper.yaml trains with: bfloat16, fp32 master weights, ZeRO-1."""
    return _trained(setting, zero_stage=1, dtype=torch.bfloat16, num_passes=1)


@scenario
def validation(setting: Setting) -> dict[str, Any]:
    conversations = setting.conversations()
    head = load_target_head(setting.study.target, device="cuda")
    torch.manual_seed(0)
    model = DraftModel(DrafterConfig.from_json(head.config)).to("cuda").eval()
    rows = [RowId("math", i) for i in range(14, 18)]
    held_out = HeldOut(rows=rows, traces={}, options=DraftOptions(depth=2, top_k=3, num_nodes=8))
    found, counts, sites = setting.measured(lambda: validate(model, head, conversations, held_out, LossWeights()))
    return {"counts": counts, "sites": sites, "found": found}


# --- drafting and live decoding --------------------------------------------------------------------------------------


def _drafters(setting: Setting) -> list[LiveDrafter]:
    head = load_target_head(setting.words, device="cuda")
    made = []
    for seed in range(2):
        torch.manual_seed(seed)
        model = DraftModel(DrafterConfig.from_json(head.config)).to("cuda").eval().requires_grad_(False)
        made.append(LiveDrafter(model, head, depth=3, top_k=3))
    return made


@scenario
def bank(setting: Setting) -> dict[str, Any]:
    """Trees at every position of the host's texts, compared with the host's trees."""
    sequences = [
        {"id": str(i), "turn": 0, "category": "x", "prompt": prompt, "answer": answer}
        for i, (prompt, answer) in enumerate(zip(PROMPTS, setting.on_host, strict=True))
    ]
    texts, _ = pack(sequences, no_features=torch.zeros((0, 32)))
    drafter, options = _drafters(setting)[0], DraftOptions(depth=3, top_k=3, num_nodes=8)

    def draft() -> Any:
        with torch.inference_mode():
            return bank_of_trace(drafter.model, drafter.head, texts, options, show_progress=False)

    (trees, _), counts, sites = setting.measured(draft)
    head = load_target_head(setting.words)
    torch.manual_seed(0)
    model = DraftModel(DrafterConfig.from_json(head.config)).eval()
    expected, _ = bank_of_trace(model, head, texts, options, show_progress=False)
    same = float((trees.tokens == expected.tokens).mean())
    return {"counts": counts, "sites": sites, "same": same, "positions": len(trees)}


@scenario
def live(setting: Setting) -> dict[str, Any]:
    """Live decoding under several strategies: the host's greedy texts, and what a cycle asks of the device."""
    target, drafters, facts = load_target(setting.words, device="cuda"), _drafters(setting), {}
    for name in STRATEGIES:
        strategy = find(name, live=True)
        chosen = drafters[:1] if strategy.one_drafter else drafters

        def go(strategy: Any = strategy, chosen: Any = chosen) -> Any:
            settings = {"strategy": strategy, "options": Options(num_draft_tokens=8), "max_new_tokens": NUM_NEW}
            return decode(target, chosen, PROMPTS[2], **settings)

        go()
        decoded, counts, sites = setting.measured(go)
        cycles = len(decoded.cycles)
        facts[name] = {
            "same": decoded.tokens.tolist() == setting.on_host[2].tokens.tolist(),
            "cycles": cycles,
            "counts": counts,
            "sites": sites,
            "per_cycle": {kind: round(count / cycles, 1) for kind, count in counts.items()},
        }
    return facts


@scenario
def costs(setting: Setting) -> dict[str, Any]:
    """The measurement of a cycle's parts, for two seconds."""
    found = measure_costs(
        load_target(setting.words, device="cuda"),
        _drafters(setting)[0],
        [Answer(tokens=PROMPTS[2] * 4, prompt_length=8)],
        nodes=[4],
        draft_shapes=[(4, 8)],
        num_draft_tokens=8,
        limit_s=2.0,
    )
    times = [entry["median_s"] for kind in ("target", "draft") for entry in found[kind]]
    return {"finite": bool(np.isfinite(times).all()), "on": str(CUDA)}
