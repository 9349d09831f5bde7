"""A whole study in miniature, made by the stages themselves: one artefact of every kind, and a stage that reads each.

Two of them, of different seeds, share nothing: whatever one stage would take from both does not belong together.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from taps import (
    average,
    bank,
    calibrate,
    claims,
    corpus,
    cost,
    decode,
    draft_vocab,
    features,
    fetch,
    figures,
    fit_router,
    heldout,
    join_features,
    join_texts,
    live_check,
    mixture,
    overlap,
    page,
    prompts,
    replay,
    tables,
    tokenise,
    trace,
    train,
    tune,
)
from taps.model.target_folder import finish_target
from taps.plumbing.folders import atomic_folder
from tests.support.live_fixtures import WORDS, save_word_target

NAMES = ("math", "chat")
TREES = ("--depth", "3", "--top-k", "3")
Stage = Callable[[list[str]], None]


@dataclass(frozen=True)
class Use:
    """A stage that reads an artefact.

    Attributes:
        kind: Of the artefact.
        path: One of its files, below the study's folder.
        stage: `main` of the stage.
        flags: Study -> flags of the stage, without what it writes.
    """

    kind: str
    path: str
    stage: Stage
    flags: Callable[[Study], list[str]]

    def __str__(self) -> str:
        return f"{self.kind}: {self.path}"


class Study:
    """The artefacts of one study, by their paths below its folder."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        """Makes all of them, in the order of the workflow."""
        self.folder, self.seed = folder, seed
        folder.mkdir(parents=True)
        self._models()
        self._data()
        self._drafters()
        self._recordings()
        self._report()

    def at(self, *parts: str) -> str:
        return str(self.folder.joinpath(*parts))

    def _data(self) -> None:
        for number, name in enumerate(NAMES):
            rows = [self._pair(17 * number + row) for row in range(40)]
            (self.folder / f"{name}.json").write_text(json.dumps(rows))
            fetch.main(["--path", self.at(f"{name}.json"), "--output", self.at("assets", f"{name}.json")])
            corpus.main([*self.corpus_flags(name), *self._out(f"corpora/{name}.jsonl", audit=True)])
            tokenise.main([*self.tokenise_flags(name), *self._out(f"tokens/{name}.safetensors", audit=True)])
        mixture.main([*self.mixture_flags(), *self._out("mixture.json")])
        draft_vocab.main([*self.draft_vocab_flags(), *self._out("draft_vocab.safetensors")])
        questions = [{"question_id": f"q{number}", "turns": [self._words(3 * number, 4)]} for number in range(4)]
        (self.folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
        flags = ["--reader", "question_jsonl", "--input", self.at("questions.jsonl"), "--benchmark", "words"]
        prompts.main([*flags, *self._out("prompts.jsonl", audit=True)])
        heldout.main([*self.heldout_flags(), "--num-prompts", "2", *self._out("heldout.jsonl")])
        overlap.main([*self.overlap_flags(), *self._out("overlap.json")])

    def _models(self) -> None:
        with atomic_folder(self.folder / "target") as folder:
            save_word_target(folder, seed=self.seed)
            finish_target(folder, stage="taps.tiny_target", facts={"seed": self.seed})

    def _drafters(self) -> None:
        for name in NAMES:
            for part in ("0", "1"):
                flags = [*self.features_flags(name), "--shard", part, "--num-shards", "2"]
                features.main([*flags, *self._out(f"parts/{name}/{part}")])
            join_features.main([*self.join_flags(name), *self._out(f"features/{name}")])
        for name, rate in zip(NAMES, ("1e-3", "1e-2"), strict=True):
            flags = [*self.train_flags(), "--learning-rate", rate]
            train.main([*flags, *self._out(f"drafters/{name}", state=True)])
        average.main([*self.average_flags(), *self._out("drafters/averaged")])

    def _recordings(self) -> None:
        for part in ("0", "1"):
            flags = [*self.trace_flags(), "--shard", part, "--num-shards", "2"]
            trace.main([*flags, *self._out(f"trace-{part}.safetensors")])
        join_texts.main([*self.join_texts_flags(), *self._out("trace.safetensors")])
        for name in NAMES:
            bank.main([*self.bank_flags(name), *self._out(f"banks/{name}.safetensors")])
        calibrate.main([*self.calibrate_flags(), *self._out("calibration.json")])
        cost.main([*self.cost_flags(), *self._out("cost.json")])
        decode.main([*self.decode_flags(), *self._out("decoded.json")])
        fit_router.main([*self.router_flags(), *self._out("router.json")])
        tune.main([*self.tune_flags(), *self._out("tuned.json")])
        replay.main([*self.replay_flags(), *self._out("replays/t0_s0.parquet")])
        live_check.main([*self.live_check_flags(), *self._out("live.json")])

    def _report(self) -> None:
        tables.main([*self.tables_flags(), *self._out("tables")])
        figures.main([*self.figures_flags(), *self._out("figures")])
        claims.main([*self.claims_flags(), *self._out("claims")])
        page.main([*self.page_flags(), *self._out("index.html")])

    # --- flags of each stage, without what it writes

    def corpus_flags(self, name: str) -> list[str]:
        return ["--reader", "instruction", "--input", self.at("assets", f"{name}.json")]

    def tokenise_flags(self, name: str) -> list[str]:
        flags = ["--target", self.at("target"), "--corpus", self.at("corpora", f"{name}.jsonl")]
        return [*flags, "--max-length", "32", "--max-rows", "30", "--seed", str(self.seed)]

    def mixture_flags(self) -> list[str]:
        return [*self._named("tokens", "tokens/{}.safetensors"), "--rows", "math=20", "--rows", "chat=20"]

    def draft_vocab_flags(self) -> list[str]:
        return [*self._each("tokens", "tokens/{}.safetensors"), "--size", str(len(WORDS))]

    def heldout_flags(self) -> list[str]:
        return ["--corpus", self.at("corpora/math.jsonl"), "--tokens", self.at("tokens/math.safetensors")]

    def overlap_flags(self) -> list[str]:
        return [*self._named("corpus", "corpora/{}.jsonl"), "--prompts", f"words={self.at('prompts.jsonl')}"]

    def features_flags(self, name: str) -> list[str]:
        flags = ["--target", self.at("target"), "--tokens", self.at(f"tokens/{name}.safetensors")]
        return [*flags, "--shard-tokens", "64"]

    def join_flags(self, name: str) -> list[str]:
        return [word for part in ("0", "1") for word in ("--shard", self.at("parts", name, part))]

    def train_flags(self) -> list[str]:
        flags = ["--target", self.at("target"), "--mixture", self.at("mixture.json"), "--epochs", "1"]
        flags += [*self._named("tokens", "tokens/{}.safetensors"), *self._named("features", "features/{}")]
        return [*flags, "--batch-size", "8", "--method", "eagle2", "--draft-vocab", self.at("draft_vocab.safetensors")]

    def average_flags(self) -> list[str]:
        return [*self._each("drafter", "drafters/{}"), "--weight", "0.5", "--weight", "0.5"]

    def trace_flags(self) -> list[str]:
        flags = ["--target", self.at("target"), "--prompts", self.at("prompts.jsonl")]
        return [*flags, "--max-new-tokens", "24", "--seed", str(self.seed), "--temperature", "0"]

    def join_texts_flags(self) -> list[str]:
        parts = [self.at(f"trace-{part}.safetensors") for part in "01"]
        return ["--kind", "trace", *(word for part in parts for word in ("--shard", part))]

    def bank_flags(self, name: str) -> list[str]:
        flags = ["--target", self.at("target"), "--drafter", self.at("drafters", name), *TREES, "--num-nodes", "16"]
        vocabulary = ["--draft-vocab", self.at("draft_vocab.safetensors")]
        return [*flags, "--trace", self.at("trace.safetensors"), *vocabulary]

    def calibrate_flags(self) -> list[str]:
        return ["--trace", self.at("trace.safetensors"), *self._each("bank", "banks/{}.safetensors")]

    def live_flags(self) -> list[str]:
        flags = ["--target", self.at("target"), *self._named("drafter", "drafters/{}"), "--num-draft-tokens", "8"]
        return [*flags, "--draft-vocab", self.at("draft_vocab.safetensors")]

    def decode_flags(self) -> list[str]:
        return [*self.live_flags(), *TREES, "--prompt", "a b", "--max-new-tokens", "4"]

    def cost_flags(self) -> list[str]:
        return [*self.live_flags(), *TREES, "--nodes", "4", "8", "16", "--limit-s", "1", "--prefix-length", "16"]

    def live_check_flags(self) -> list[str]:
        flags = [*self.live_flags(), *self._recording(), "--cost", self.at("cost.json"), "--num-prompts", "1"]
        flags += ["--calibration", self.at("calibration.json"), "--tuned", self.at("tuned.json")]
        return [*flags, "--strategies", self._strategies("single")]

    def router_flags(self) -> list[str]:
        return [*self.calibrate_flags(), "--drafters", *NAMES, "--num-draft-tokens", "8"]

    def tune_flags(self) -> list[str]:
        flags = ["--heldout", self.at("trace.safetensors"), *self._each("bank", "banks/{}.safetensors")]
        flags += ["--cost", self.at("cost.json"), "--num-draft-tokens", "8"]
        return [*flags, "--strategies", self._strategies("single")]

    def replay_flags(self) -> list[str]:
        names = ("single", "merged_matched", "merged_matched_calibrated", "routed_confidence_step", "routed_prompt")
        flags = [*self._recording(), "--method", "eagle2", "--benchmark", "words", "--num-draft-tokens", "8"]
        flags += ["--calibration", self.at("calibration.json"), "--router", self.at("router.json")]
        return [*flags, "--strategies", self._strategies(*names)]

    def tables_flags(self) -> list[str]:
        flags = ["--replay", self.at("replays"), "--audit", f"math={self.at('corpora/math.audit.json')}"]
        flags += ["--calibration", f"eagle2={self.at('calibration.json')}", "--overlap", self.at("overlap.json")]
        flags += ["--live", f"eagle2/words={self.at('live.json')}", "--cost", self.at("cost.json")]
        return [*flags, *(f"--drafter=eagle2/{name}={self.at('drafters', name)}" for name in NAMES)]

    def figures_flags(self) -> list[str]:
        flags = ["--tables", self.at("tables"), *self._recording(), "--tokenizer", self.at("target/tokenizer.json")]
        return [*flags, "--num-nodes", "4"]

    def claims_flags(self) -> list[str]:
        return ["--tables", self.at("tables")]

    def page_flags(self) -> list[str]:
        flags = [word for name in ("tables", "figures", "claims") for word in (f"--{name}", self.at(name))]
        return ["--study", "words", *flags]

    # --- words

    def _pair(self, number: int) -> dict[str, str]:
        return {"instruction": self._words(number, 5), "output": self._words(2 * number + 1, 7)}

    def _words(self, start: int, count: int) -> str:
        """Returns words of the target's vocabulary; different ones for every start and seed."""
        words = WORDS[1:]
        step = 1 + (start + self.seed) % (len(words) - 1)
        return " ".join(words[(start + self.seed + step * place) % len(words)] for place in range(count))

    def _out(self, path: str, *, audit: bool = False, state: bool = False) -> list[str]:
        flags = ["--output", self.at(path)]
        if audit:
            flags += ["--audit", str(Path(self.at(path)).with_suffix(".audit.json"))]
        return [*flags, "--state", self.at("state", path)] if state else flags

    def _each(self, flag: str, path: str) -> list[str]:
        return [word for name in NAMES for word in (f"--{flag}", self.at(path.format(name)))]

    def _named(self, flag: str, path: str) -> list[str]:
        return [word for name in NAMES for word in (f"--{flag}", f"{name}={self.at(path.format(name))}")]

    def _recording(self) -> list[str]:
        return ["--trace", self.at("trace.safetensors"), *self._named("bank", "banks/{}.safetensors")]

    def _strategies(self, *names: str) -> str:
        return json.dumps(
            [
                {"strategy": name, "drafters": group}
                for name in names
                for group in ([["math"], ["chat"]] if name == "single" else [list(NAMES)])
            ]
        )


USES = (
    Use("asset", "assets/math.json", corpus.main, lambda study: study.corpus_flags("math")),
    Use("corpus", "corpora/math.jsonl", heldout.main, lambda study: [*study.heldout_flags(), "--num-prompts", "2"]),
    Use("audit", "corpora/math.audit.json", tables.main, Study.tables_flags),
    Use("prompts", "prompts.jsonl", trace.main, Study.trace_flags),
    Use("overlap", "overlap.json", tables.main, Study.tables_flags),
    Use("tokens", "tokens/math.safetensors", mixture.main, Study.mixture_flags),
    Use("mixture", "mixture.json", train.main, Study.train_flags),
    Use("draft_vocab", "draft_vocab.safetensors", bank.main, lambda study: study.bank_flags("math")),
    Use("target", "target/provenance.json", trace.main, Study.trace_flags),
    Use("target", "target/config.json", bank.main, lambda study: study.bank_flags("math")),
    Use("target", "target/model.safetensors", bank.main, lambda study: study.bank_flags("math")),
    Use("target", "target/tokenizer.json", tokenise.main, lambda study: study.tokenise_flags("math")),
    Use("target", "target/generation_config.json", tokenise.main, lambda study: study.tokenise_flags("math")),
    Use("feature_part", "parts/math/0/manifest.json", join_features.main, lambda study: study.join_flags("math")),
    Use("feature_shard", "parts/math/0/{shard}", join_features.main, lambda study: study.join_flags("math")),
    Use("features", "features/math/manifest.json", train.main, Study.train_flags),
    Use("feature_shard", "features/math/{shard}", train.main, Study.train_flags),
    Use("drafter", "drafters/math/provenance.json", bank.main, lambda study: study.bank_flags("math")),
    Use("drafter", "drafters/math/config.json", average.main, Study.average_flags),
    Use("drafter", "drafters/math/model.safetensors", decode.main, Study.decode_flags),
    Use("training", "drafters/math/training.json", tables.main, Study.tables_flags),
    Use("metrics", "drafters/math/metrics.jsonl", tables.main, Study.tables_flags),
    Use("trace", "trace.safetensors", bank.main, lambda study: study.bank_flags("math")),
    Use("trace", "trace-0.safetensors", join_texts.main, Study.join_texts_flags),
    Use("bank", "banks/math.safetensors", replay.main, Study.replay_flags),
    Use("calibration", "calibration.json", replay.main, Study.replay_flags),
    Use("router", "router.json", replay.main, Study.replay_flags),
    Use("tuned", "tuned.json", live_check.main, Study.live_check_flags),
    Use("cost", "cost.json", live_check.main, Study.live_check_flags),
    Use("replay", "replays/t0_s0.parquet", tables.main, Study.tables_flags),
    Use("replay_nodes", "replays/t0_s0.nodes.parquet", tables.main, Study.tables_flags),
    Use("live_check", "live.json", tables.main, Study.tables_flags),
    Use("tables", "tables/tables.json", page.main, Study.page_flags),
    Use("tables", "tables/acceptance_length.csv", claims.main, Study.claims_flags),
    Use("figures", "figures/figures.json", page.main, Study.page_flags),
    Use("figures", "figures/draft_trees.png", page.main, Study.page_flags),
    Use("claims", "claims/claims.json", page.main, Study.page_flags),
)
"""Every kind of artefact that a stage reads, file by file, and such a stage."""

UNREAD = ("decoded", "view_check", "vllm_check", "plan", "speed", "decoding_speed")
"""Kinds that are for people: no stage reads them."""
