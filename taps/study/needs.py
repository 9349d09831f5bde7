"""What memory each rule of a study needs, on the host and on each device, from shapes and expected amounts of text.

Pure functions of a checked config, for the rules' `mem_mb`, for `taps.plan`, and for the tests that hold a cluster's
profile against them. What is not known from shapes was measured: host bytes per token of a stage that reads text, at
20 million tokens of ShareGPT, rounded up by a half. On a CPU what a device would hold is on the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from taps.model.family import FAMILIES
from taps.model.memory import (
    CUDA_CONTEXT,
    PROCESS,
    TargetSizes,
    bank_bytes,
    features_bytes,
    sequence_bytes,
    training_bytes,
)
from taps.study.budget import NODE_BYTES, Shape, corpus_tokens, num_drafted, recorded, shape_of
from taps.study.contents import drafters_of, trained_methods
from taps.study.features import hidden_states
from taps.study.roles import family_of

Config = Mapping[str, Any]

SMALL_MB = 1000  # stages without PyTorch that keep nothing
UNPLANNED_MB = 6000  # of a study that says nothing about its target: a tiny one
_TEXT = 700e6  # a tokenizer and its library
_PER_TOKEN = {"tokenise": 50, "overlap": 15, "draft_vocab": 35, "heldout": 15}  # host bytes
_IN_FLIGHT = 6  # batches of a training's loader on the host: four being read, one waiting, one used
_BATCH_TOKENS = {"cpu": 512, "cuda": 16384}  # of taps.features, as its default is
_SHARD_TOKENS = 32768
_CHUNK = 64  # of taps.bank


@dataclass(frozen=True, kw_only=True)
class Need:
    """What one job of a rule needs.

    Attributes:
        host_mb: Memory of the host, MB (10^6 bytes).
        device_gb: Memory of each of its devices, GB; 0 where it has none.
        gpus: How many devices it holds.
    """

    host_mb: int
    device_gb: float = 0.0
    gpus: int = 0


def needs(config: Config) -> dict[str, Need]:
    """Returns rule -> need of one of its jobs, for every rule of the workflow; the costliest job counts."""
    found = dict.fromkeys(_LIGHT, Need(host_mb=SMALL_MB)) | dict.fromkeys(_LIGHT_MODELS, Need(host_mb=2 * SMALL_MB))
    if config["plan"] is None:
        found |= dict.fromkeys((*_TEXTS, *_HOSTS), Need(host_mb=UNPLANNED_MB))
        return found | {rule: Need(host_mb=UNPLANNED_MB, gpus=_gpus(config, rule)) for rule in _MODELS}
    amounts = _Amounts(config)
    found |= {rule: _host(_TEXT + _PER_TOKEN[rule] * amounts.text) for rule in _TEXTS}
    found |= {rule: _host(make(amounts)) for rule, make in _HOSTS.items()}
    for rule, make in _MODELS.items():
        host, device = make(amounts)
        processes, gpus = (amounts.processes if rule == "train" else 1), _gpus(config, rule)
        if gpus:
            found[rule] = Need(host_mb=_mb(host * processes), device_gb=_gb(device + CUDA_CONTEXT), gpus=gpus)
        else:
            found[rule] = _host((host + device) * processes)
    return found


def _gpus(config: Config, rule: str) -> int:
    if config["device"] != "cuda":
        return 0
    return int(config["parallel"]["training_processes"]) if rule == "train" else 1


def _host(num_bytes: float) -> Need:
    return Need(host_mb=_mb(num_bytes))


def _mb(num_bytes: float) -> int:
    return max(SMALL_MB, -(-round(num_bytes / 1e6) // 500) * 500)


def _gb(num_bytes: float) -> float:
    return round(num_bytes / 1e9, 1)


class _Amounts:
    """Sizes that several rules depend on, in bytes, tokens and texts."""

    def __init__(self, config: Config) -> None:
        self.config, plan = config, config["plan"]
        shape: Shape = shape_of(config)
        self.width = 2 if config["dtype"] == "bfloat16" else 4
        self.target = TargetSizes(layer=shape.layer, num_layers=shape.num_layers, vocab=shape.vocab, tied=shape.tied)
        self.weights = self.target.weight_bytes(self.width)
        self.columns, self.hidden = shape.head_columns, shape.hidden
        self.feature = self.hidden * len(hidden_states(config))
        self.drafter = shape.draft_parameters * self.width
        self.ends = shape.vocab * self.hidden * self.width * 2
        self.max_length = config["target"]["max_length"]
        self.processes = config["parallel"]["training_processes"]
        self.text = sum(corpus_tokens(config, corpus) for corpus in config["corpora"])
        self.traces = recorded(config)
        self.longest_prompt = min(self.max_length, round(4 * plan["prompt_tokens"]))
        self.most_new = max(benchmark["max_new_tokens"] for benchmark in config["benchmarks"].values())
        heldout = config["heldout"]["num_prompts"] * (plan["prompt_tokens"] + config["heldout"]["max_new_tokens"])
        self.heldout_tokens = heldout * len(config["corpora"])

    @property
    def trace(self) -> float:
        """Bytes of the largest trace, answers reckoned at twice the expected length."""
        longest = max(prompt + 2 * new for prompt, new, _ in self.traces.values())
        return longest * (self.feature * self.width + 4)

    @property
    def bank(self) -> float:
        """Bytes of the largest bank."""
        positions = max(new for _, new, _ in self.traces.values())
        return positions * self.config["drafting"]["num_nodes"] * NODE_BYTES

    @property
    def tables(self) -> float:
        """Cycles of all replays, of all rows and conditions."""
        new = sum(num_drafted(self.config, method) for method in self.config["methods"])
        return len(self.config["strategies"]["names"]) * new / self.config["plan"]["tau"]


# --- rules that load a model: (host bytes, device bytes) of one process ----------------------------------------------


def _features(amounts: _Amounts) -> tuple[float, float]:
    device = amounts.config["device"]
    batch = _BATCH_TOKENS[device]
    on_device = features_bytes(amounts.target, batch_tokens=batch, shard_tokens=_SHARD_TOKENS, width=amounts.width)
    in_writing = 4 * _SHARD_TOKENS * amounts.feature * 2
    return PROCESS + _passing(amounts) + in_writing, on_device


def _passing(amounts: _Amounts) -> float:
    """Returns the host bytes of weights on their way to a device; on a CPU they are counted where they stay."""
    return amounts.weights if amounts.config["device"] == "cuda" else 0.0


def _trace(amounts: _Amounts) -> tuple[float, float]:
    part = amounts.trace / amounts.config["parallel"]["trace_shards"]
    texts = amounts.config["evaluation"]["batch_size"]
    per_text = sequence_bytes(amounts.target, prompt=amounts.longest_prompt, new=amounts.most_new, width=amounts.width)
    on_device = amounts.weights + per_text * (1 if amounts.config["device"] == "cuda" else texts)  # else it takes fewer
    return PROCESS + _passing(amounts) + 4 * part, on_device


def _train(amounts: _Amounts) -> tuple[float, float]:
    config = amounts.config
    rows = config["training"].get("batch_size", 32)
    rows = max(1, rows // amounts.processes)
    passes = [
        {**FAMILIES[family_of(config, name)].training, **config["training"], **config["methods"][name]["training"]}
        for name in trained_methods(config)
    ]
    on_device = training_bytes(
        amounts.target,
        head_columns=amounts.columns,
        lengths=[amounts.max_length] * rows,
        num_passes=max([options.get("alignment_passes", 1) for options in passes], default=1),
        width=amounts.width,
        zero_stage=config["training"].get("zero_stage", 0),
        world=amounts.processes,
    )
    if config["features"] == "online":
        on_device += amounts.weights
    batch = rows * amounts.max_length * amounts.feature * 2
    read = 12 * amounts.text + 2 * amounts.heldout_tokens * amounts.feature * amounts.width
    states = amounts.drafter / amounts.width * 16
    passing = _passing(amounts) if config["features"] == "online" else amounts.ends
    return PROCESS + passing + _IN_FLIGHT * batch + read + states, on_device


def _bank(amounts: _Amounts) -> tuple[float, float]:
    drafting = amounts.config["drafting"]
    on_device = bank_bytes(
        amounts.target,
        head_columns=amounts.columns,
        context=amounts.longest_prompt + amounts.most_new,
        chunk=_CHUNK,
        top_k=drafting["top_k"],
        width=amounts.width,
    )
    return PROCESS + amounts.ends + 2 * amounts.trace + 3 * amounts.bank, on_device


def _live(amounts: _Amounts) -> tuple[float, float]:
    per_text = sequence_bytes(amounts.target, prompt=amounts.longest_prompt, new=amounts.most_new, width=amounts.width)
    drafters = max(2, len(amounts.config["mixtures"])) * amounts.drafter + 2 * amounts.ends
    return PROCESS + _passing(amounts) + amounts.ends, amounts.weights + drafters + per_text


_MODELS = {
    "features": _features,
    "regenerate": _trace,
    "trace": _trace,
    "train": _train,
    "bank": _bank,
    "cost": _live,
    "live_check": _live,
}


# --- rules on the host alone -----------------------------------------------------------------------------------------


def _prepare(amounts: _Amounts) -> float:
    """Returns the bytes of the rehearsal, or of a GGUF file's conversion to fp32."""
    number = amounts.target.num_weights
    source = amounts.config["assets"].get(amounts.config["target"].get("asset") or "", {})
    is_gguf = any(str(source.get(key)).endswith(".gguf") for key in ("file", "path"))
    rehearsed = number * (2 if number > 2e9 else 4) * 1.2
    return PROCESS + max(rehearsed, 2.4 * 4 * number if is_gguf else 0.0)


def _most_drafters(amounts: _Amounts) -> int:
    config = amounts.config
    averaged = max((len(weights) for weights in config["averaging"]["weights"].values()), default=0)
    return max(len(drafters_of(config, name)) for name in config["methods"]) + averaged


_HOSTS = {
    "prepare_target": _prepare,
    "average": lambda amounts: PROCESS + 5 * amounts.drafter,
    "import_draft": lambda amounts: PROCESS + 4 * amounts.drafter + 2 * amounts.ends,
    "replay": lambda amounts: PROCESS + 2.2 * amounts.bank * _most_drafters(amounts),
    "calibrate": lambda amounts: (
        PROCESS + 4 * amounts.heldout_tokens * amounts.config["drafting"]["num_nodes"] * NODE_BYTES
    ),
    "fit_router": lambda amounts: PROCESS + 4 * amounts.heldout_tokens * amounts.hidden,
    "tune": lambda amounts: PROCESS + 2.2 * amounts.bank * _most_drafters(amounts),
    "tabulate": lambda amounts: PROCESS + 60 * amounts.tables,
}
_TEXTS = tuple(_PER_TOKEN)
_LIGHT = ("fetch_file", "fetch_folder", "corpus", "prompts", "mixture", "join_features", "join_traces", "join_banks")
_LIGHT_MODELS = ("tiny_target", "draw", "judge", "publish", "plan")  # a tiny model, or pandas and matplotlib
