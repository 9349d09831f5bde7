"""What workflow/rules/data.smk asks: what corpora, prompts and mixtures are made of, and how stages are told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taps.data.corpus_reader import CORPUS_READERS
from taps.data.prompt_reader import PROMPT_READERS
from taps.plumbing.code_digest import code_digest
from taps.study.assets import asset_path
from taps.study.contents import Config, drafters_of, mixture_of
from taps.study.flags import flags


def corpus_source(config: Config, corpus: str, root: Path) -> list[str]:
    """Returns the file or folder that a corpus is read from; nothing for a generated one."""
    asset = config["corpora"][corpus]["asset"]
    return [asset_path(config, asset, root)] if asset else []


def corpus_flags(config: Config, corpus: str) -> list[str]:
    """Returns what `taps.corpus` is told."""
    settings = config["corpora"][corpus]
    if CORPUS_READERS.find(settings["reader"]).is_generated:
        return _source_flags(settings) + flags(rows=settings["max_rows"], seed=settings["seed"])
    return _source_flags(settings) + flags(max_rows=settings["max_rows"])


def _source_flags(settings: Mapping[str, Any]) -> list[str]:
    part = ":".join(f"{end:g}" for end in settings["part"] or ()) or None
    return flags(**{name: settings[name] for name in ("reader", "task", "templates")}, part=part)


def corpus_code(config: Config, corpus: str) -> str:
    """Returns the digest of the code that reads a corpus: the stage's and its reader's."""
    return code_digest("taps.corpus", modules=CORPUS_READERS.modules([config["corpora"][corpus]["reader"]]))


def corpus_size(config: Config, corpus: str) -> list[str]:
    """Returns how much of a corpus `taps.tokenise` takes."""
    return flags(max_tokens=config["corpora"][corpus]["max_tokens"])


def regenerate_flags(config: Config, corpus: str) -> list[str]:
    """Returns what `taps.regenerate` is told."""
    settings = config["corpora"][corpus]
    return flags(**settings["regenerate"], max_tokens=settings["max_tokens"])


def training_corpus(config: Config, corpus: str) -> str:
    """Returns the conversations to train on: as collected, or with the target's own answers."""
    folder = "regenerated" if config["corpora"][corpus]["regenerate"] else "corpora"
    return f"<results>/{folder}/{corpus}.jsonl"


def prompts_source(config: Config, benchmark: str, root: Path) -> list[str]:
    """Returns the files or folders that a benchmark's prompts are read from."""
    return [asset_path(config, asset, root) for asset in config["benchmarks"][benchmark]["assets"]]


def prompts_flags(config: Config, benchmark: str) -> list[str]:
    """Returns what `taps.prompts` is told."""
    settings = config["benchmarks"][benchmark]
    return _source_flags(settings) + flags(
        benchmark=benchmark, num_prompts=settings["num_prompts"], seed=settings["seed"]
    )


def excluded_corpora(config: Config, benchmark: str) -> list[str]:
    """Returns the corpora whose texts no prompt of a benchmark may repeat."""
    return [f"<results>/corpora/{corpus}.jsonl" for corpus in config["benchmarks"][benchmark]["exclude_overlap"]]


def prompts_code(config: Config, benchmark: str) -> str:
    """Returns the digest of the code that reads a benchmark: the stage's and its reader's."""
    return code_digest("taps.prompts", modules=PROMPT_READERS.modules([config["benchmarks"][benchmark]["reader"]]))


def corpora_of(config: Config, mixture: str) -> list[str]:
    """Returns the corpora of a mixture."""
    return list(config["mixtures"][mixture])


def learned_corpora(config: Config, method: str) -> list[str]:
    """Returns the corpora that a method's drafters learn."""
    mixtures = [mixture_of(config, method, drafter) for drafter in drafters_of(config, method)]
    return list(dict.fromkeys(corpus for mixture in mixtures for corpus in corpora_of(config, mixture)))


def mixture_tokens(config: Config, mixture: str) -> list[str]:
    """Returns the token files of a mixture's corpora."""
    return [f"<results>/tokens/{corpus}.safetensors" for corpus in corpora_of(config, mixture)]


def mixture_shares(config: Config, mixture: str) -> list[str]:
    """Returns the share of each corpus, as `taps.mixture` takes it."""
    return flags(share=[f"{corpus}={share:g}" for corpus, share in config["mixtures"][mixture].items()])
