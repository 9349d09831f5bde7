"""Operations and disk of a study, ours and the original procedure's, from shapes and expected amounts of text.

Pure functions of a checked config. A multiplication and an addition count apart. `taps.plan` turns them into a report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from taps.data.prompt_reader import PROMPT_READERS
from taps.model.family import FAMILIES
from taps.model.flops import (
    Sizes,
    draft_flops,
    head_flops,
    layer_parameters,
    num_parameters,
    target_flops,
    training_cost,
)
from taps.plumbing.errors import TapsError
from taps.study.contents import averages_of, drafters_at, drafters_of, evaluations, mixture_of, texts, training_seeds
from taps.study.features import hidden_states
from taps.study.roles import family_of

VALIDATION_SHARE = 0.05
NODE_BYTES = 4 + 2 + 4 + 4  # token, parent, score, entropy
LOADER_GB_S = 1.5  # that one process of a training reads: 59 MB in 38 ms of one CPU core, from the page cache
TRAINING, DECODING = "training", "decoding"  # the two rates of a device: large matrix products, and small ones


@dataclass(frozen=True, kw_only=True)
class Work:
    """Operations of one stage.

    Attributes:
        stage: The rule that does it.
        model: Which model computes, `target` or `draft`.
        flops: Operations of all its jobs.
        rate: Which rate of the device it runs at, TRAINING or DECODING.
        bytes_read: Features that a loader reads meanwhile, side by side with the operations.
    """

    stage: str
    model: str
    flops: float
    rate: str
    bytes_read: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of the target, and what follows from them.

    Attributes:
        layer: Sizes of one layer, which is also the draft model's.
        num_layers, vocab: Of the target.
        tied: Whether input embedding and head are one matrix.
        head_columns: Tokens drafted over: the draft vocabulary, else all.
    """

    layer: Sizes
    num_layers: int
    vocab: int
    tied: bool
    head_columns: int

    @property
    def hidden(self) -> int:
        """Hidden size."""
        return self.layer.hidden_size

    @property
    def target_parameters(self) -> int:
        """The target's weights."""
        return self.num_layers * layer_parameters(self.layer) + self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def draft_parameters(self) -> int:
        """The draft model's own weights."""
        return num_parameters(self.layer)

    def target_flops(self, num_tokens: float, context: float, *, head: bool) -> float:
        """Returns the operations of the target over tokens that each see `context` others."""
        layers = target_flops(self.layer, num_layers=self.num_layers, num_tokens=num_tokens, context=context)
        return layers + (head_flops(self.hidden, self.vocab, num_tokens=num_tokens) if head else 0)

    def draft_flops(self, num_tokens: float, context: float) -> float:
        """Returns the operations of the draft model and its head over tokens that each see `context` others."""
        head = head_flops(self.hidden, self.head_columns, num_tokens=num_tokens)
        return draft_flops(self.layer, num_tokens=num_tokens, context=context) + head

    def training_flops(self, num_tokens: float, num_supervised: float, length: float, num_passes: int) -> float:
        """Returns the operations of training on rows of one length."""
        cost = training_cost(self.layer, head_columns=self.head_columns, num_passes=num_passes)
        return num_tokens / length * cost.flops([length], num_supervised * length / num_tokens)


def shape_of(config: Mapping[str, Any]) -> Shape:
    """Returns the target's sizes as the study gives them under `plan.target_shape`."""
    sizes = config["plan"]["target_shape"]
    return Shape(
        layer=Sizes(
            hidden_size=sizes["hidden_size"],
            intermediate_size=sizes["intermediate_size"],
            num_attention_heads=sizes["num_attention_heads"],
            num_key_value_heads=sizes["num_key_value_heads"],
            head_dim=sizes["head_dim"] or sizes["hidden_size"] // sizes["num_attention_heads"],
        ),
        num_layers=sizes["num_hidden_layers"],
        vocab=sizes["vocab_size"],
        tied=sizes["tie_word_embeddings"],
        head_columns=config["drafting"]["draft_vocab_size"] or sizes["vocab_size"],
    )


# --- amounts of text -------------------------------------------------------------------------------------------------


def corpus_tokens(config: Mapping[str, Any], corpus: str) -> float:
    """Returns the tokens of a corpus, training and validation rows together."""
    settings, per_row = config["corpora"][corpus], config["plan"]["tokens_per_row"].get(corpus)
    if settings["max_rows"] is None and settings["max_tokens"] is None:
        raise TapsError(f"corpora.{corpus}", "of unknown size", expected="max_rows or max_tokens, to plan with")
    if settings["max_rows"] is None:
        return float(settings["max_tokens"])
    if per_row is None:
        raise TapsError(f"plan.tokens_per_row.{corpus}", "missing", expected="mean tokens of a conversation")
    tokens = settings["max_rows"] * min(per_row, config["target"]["max_length"])
    return float(min(tokens, settings["max_tokens"] or tokens))


def mixture_tokens(config: Mapping[str, Any], mixture: str) -> float:
    """Returns the training tokens of a mixture."""
    shares = config["mixtures"][mixture].items()
    return sum(share * corpus_tokens(config, corpus) for corpus, share in shares) * (1 - VALIDATION_SHARE)


def recorded(config: Mapping[str, Any]) -> dict[str, tuple[float, float, int]]:
    """Returns benchmark -> (prompt tokens, new tokens, sequences), all turns of one trace together."""
    plan = config["plan"]
    traces = {}
    for name, benchmark in config["benchmarks"].items():
        turns = PROMPT_READERS.find(benchmark["reader"]).num_turns
        sequences = benchmark["num_prompts"] * turns
        answer = min(plan["answer_tokens"], benchmark["max_new_tokens"])
        # a later turn repeats the conversation so far
        prompt = plan["prompt_tokens"] + (turns - 1) / 2 * (plan["prompt_tokens"] + answer)
        traces[name] = (sequences * prompt, sequences * answer, sequences)
    return traces


def num_traced(config: Mapping[str, Any]) -> tuple[float, float]:
    """Returns (prompt tokens, new tokens) of all texts that the target writes."""
    traces = [recorded(config)[benchmark] for benchmark, _, _ in texts(config)]
    return sum(prompt for prompt, _, _ in traces), sum(new for _, new, _ in traces)


# --- operations ------------------------------------------------------------------------------------------------------


def study_work(config: Mapping[str, Any]) -> list[Work]:
    """Returns the operations of every stage that runs a model."""
    shape = shape_of(config)
    context = config["plan"]["prompt_tokens"] + config["plan"]["answer_tokens"] / 2
    features = sum(corpus_tokens(config, corpus) for corpus in config["corpora"]) if _trains(config) else 0.0
    prompt, new = num_traced(config)
    drafted = sum(num_drafted(config, method) for method in config["methods"])
    tree = 1 + config["drafting"]["depth"] * config["drafting"]["top_k"]
    return [
        *_answers(config),
        *_preparation(config, features),
        Work(
            stage="trace",
            model="target",
            flops=shape.target_flops(prompt, context / 2, head=False) + shape.target_flops(new, context, head=True),
            rate=DECODING,
        ),
        Work(stage="bank", model="draft", flops=shape.draft_flops(drafted * tree, context), rate=TRAINING),
    ]


def _answers(config: Mapping[str, Any]) -> list[Work]:
    """Returns the operations of answering corpora anew; every token of theirs counts as decoded, which is the most."""
    tokens = sum(corpus_tokens(config, name) for name, corpus in config["corpora"].items() if corpus["regenerate"])
    flops = shape_of(config).target_flops(tokens, _row_length(config) / 2, head=True)
    return [Work(stage="regenerate", model="target", flops=flops, rate=DECODING)] if tokens else []


def _preparation(config: Mapping[str, Any], num_tokens: float) -> list[Work]:
    """Returns the operations up to trained draft models, with features of `num_tokens` tokens."""
    features = shape_of(config).target_flops(num_tokens, _row_length(config) / 2, head=False)
    trained, read = training_work(config), training_reads(config)
    runs = [(flops, read[key]) for key, flops in trained.items()] or [(0.0, 0.0)]
    return [
        Work(stage="features", model="target", flops=features, rate=TRAINING),
        *(Work(stage="train", model="draft", flops=flops, rate=TRAINING, bytes_read=size) for flops, size in runs),
    ]


def training_reads(config: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Returns (method, mixture) -> bytes of features that its training reads under all seeds; none of those online."""
    shape, length = shape_of(config), _row_length(config)
    read: dict[tuple[str, str], float] = {}
    for (name, mixture), flops in training_work(config).items():
        options = _training_options(config, name)
        share = config["plan"]["supervised_share"]
        per_token = shape.training_flops(1.0, share, length, options.get("alignment_passes", 1))
        offline = config["features"] == "offline"
        read[name, mixture] = flops / per_token * 2 * shape.hidden * len(hidden_states(config)) if offline else 0.0
    return read


def _training_options(config: Mapping[str, Any], method: str) -> dict[str, Any]:
    own = config["methods"][method]["training"]
    return {**FAMILIES[family_of(config, method)].training, **config["training"], **own}


def training_work(config: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Returns (method, mixture) -> operations of its training under all seeds; imported drafters cost nothing."""
    shape, length = shape_of(config), _row_length(config)
    work: dict[tuple[str, str], float] = {}
    for name, method in config["methods"].items():
        options = _training_options(config, name)
        for mixture in [] if method["checkpoints"] else drafters_of(config, name):
            seen = mixture_tokens(config, mixture_of(config, name, mixture)) * options.get("epochs", 0)
            supervised = seen * config["plan"]["supervised_share"]
            flops = shape.training_flops(seen, supervised, length, options.get("alignment_passes", 1))
            work[name, mixture] = flops * len(training_seeds(config, name))
    for name, method in config["methods"].items():
        if other := method["match_cost_of"]:
            for mixture in drafters_of(config, name):
                matched = other["method"]
                of_one_seed = work[matched, other["mixture"] or mixture] / len(training_seeds(config, matched))
                work[name, mixture] = of_one_seed * len(training_seeds(config, name))
    return work


def num_drafted(config: Mapping[str, Any], method: str) -> float:
    """Returns the positions that a method's drafters draft a tree for."""
    traces = recorded(config)
    return sum(
        traces[item.benchmark][1] * len(drafters_at(config, method, item.training_seed, float(item.temperature)))
        for item in evaluations(config)
        if item.method == method
    )


def original_work(config: Mapping[str, Any]) -> list[Work]:
    """Returns the operations of the original procedure for the same tables.

    Features: every mixture anew. Evaluation: each table row decodes each benchmark, a cycle per `plan.tau` tokens, with
    `num_draft_tokens` + 1 verified positions (two drafters' trees for the merged row).
    """
    shape, plan, drafting = shape_of(config), config["plan"], config["drafting"]
    mixtures = [
        mixture_of(config, method, drafter) for method in config["methods"] for drafter in drafters_of(config, method)
    ]
    features = sum(mixture_tokens(config, mixture) for mixture in mixtures) if _trains(config) else 0.0
    _, new = num_traced(config)
    rows = sum(len(drafters_of(config, method)) + len(averages_of(config, method)) for method in config["methods"])
    composed = len(config["methods"]) * len(config["strategies"]["combinations"])
    # routed: one tree is verified, two are drafted; merged: both
    verified = (rows + 3 * composed) * (drafting["num_draft_tokens"] + 1)
    drafted = (rows + 4 * composed) * (1 + drafting["depth"] * drafting["top_k"])
    context = plan["prompt_tokens"] + plan["answer_tokens"] / 2
    cycles = new / plan["tau"]
    return [
        *_preparation(config, features),
        Work(
            stage="evaluate",
            model="target",
            flops=shape.target_flops(cycles * verified, context, head=True),
            rate=DECODING,
        ),
        Work(stage="evaluate", model="draft", flops=shape.draft_flops(cycles * drafted, context), rate=DECODING),
    ]


def hours(work: Sequence[Work], rates: Mapping[str, float]) -> float:
    """Returns device hours: of the operations, or of the reading beside them where that takes longer.

    Args:
        work: Ours or the original's.
        rates: TRAINING and DECODING in 10^12 operations per second, and `loader_gb_s`, GB that a process reads.
    """
    return sum(max(_computing_s(item, rates), _reading_s(item, rates)) for item in work) / 3600


def reading_hours(work: Sequence[Work], rates: Mapping[str, float]) -> float:
    """Returns the device hours that reading alone would take."""
    return sum(_reading_s(item, rates) for item in work) / 3600


def _computing_s(item: Work, rates: Mapping[str, float]) -> float:
    return item.flops / (rates[f"{item.rate}_tflops"] * 1e12)


def _reading_s(item: Work, rates: Mapping[str, float]) -> float:
    return item.bytes_read / (rates.get("loader_gb_s", LOADER_GB_S) * 1e9)


def _trains(config: Mapping[str, Any]) -> bool:
    offline = config["features"] == "offline"
    return offline and any(not method["checkpoints"] for method in config["methods"].values())


def _row_length(config: Mapping[str, Any]) -> float:
    """Returns the mean tokens of a training row over the corpora."""
    lengths = [config["plan"]["tokens_per_row"].get(corpus) for corpus in config["corpora"]]
    known = [min(length, config["target"]["max_length"]) for length in lengths if length is not None]
    return sum(known) / len(known) if known else config["target"]["max_length"] / 2


# --- disk ------------------------------------------------------------------------------------------------------------


def study_disk(config: Mapping[str, Any]) -> dict[str, float]:
    """Returns artefact -> bytes."""
    shape = shape_of(config)
    feature = shape.hidden * len(hidden_states(config))
    width = 2 if config["dtype"] == "bfloat16" else 4
    text = sum(corpus_tokens(config, corpus) for corpus in config["corpora"])
    traced = sum(num_traced(config))
    positions = sum(num_drafted(config, method) for method in config["methods"])
    trained = sum(not method["checkpoints"] for method in config["methods"].values())
    drafters = sum(
        (len(drafters_of(config, name)) + len(averages_of(config, name))) * len(training_seeds(config, name))
        for name in config["methods"]
    )
    states = sum(
        len(drafters_of(config, name)) * len(training_seeds(config, name))
        for name, method in config["methods"].items()
        if not method["checkpoints"]
    )
    return {
        "target": shape.target_parameters * width,
        "corpora and tokens": text * (4 + 5),
        "features": text * 2 * feature if trained and config["features"] == "offline" else 0.0,
        "drafters": drafters * shape.draft_parameters * width,
        "training states": states * 2 * shape.draft_parameters * (width + 12),  # the last two; fp32 master and moments
        "traces": traced * (2 * feature + 4),
        "draft banks": positions * config["drafting"]["num_nodes"] * NODE_BYTES,
    }
