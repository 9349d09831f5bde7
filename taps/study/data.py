"""What workflow/rules/data.smk asks: what corpora, prompts and mixtures are made of, and how stages are told."""

from __future__ import annotations

from pathlib import Path

from taps.study.assets import asset_path
from taps.study.contents import Config
from taps.study.flags import flags


def corpus_source(config: Config, corpus: str, root: Path) -> list[str]:
    """Returns the file or folder that a corpus is read from; nothing for a generated one."""
    asset = config["corpora"][corpus]["asset"]
    return [asset_path(config, asset, root)] if asset else []


def corpus_flags(config: Config, corpus: str) -> list[str]:
    """Returns what `taps.corpus` is told."""
    settings = config["corpora"][corpus]
    if settings["reader"] == "reasoning_gym":
        return flags(reader="reasoning_gym", task=settings["task"], rows=settings["max_rows"], seed=settings["seed"])
    return flags(reader=settings["reader"], max_rows=settings["max_rows"])


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
    return flags(**{key: settings[key] for key in ("reader", "task", "num_prompts", "seed")})


def corpora_of(config: Config, mixture: str) -> list[str]:
    """Returns the corpora of a mixture."""
    return list(config["mixtures"][mixture])


def mixture_tokens(config: Config, mixture: str) -> list[str]:
    """Returns the token files of a mixture's corpora."""
    return [f"<results>/tokens/{corpus}.safetensors" for corpus in corpora_of(config, mixture)]


def mixture_shares(config: Config, mixture: str) -> list[str]:
    """Returns the share of each corpus, as `taps.mixture` takes it."""
    return flags(share=[f"{corpus}={share:g}" for corpus, share in config["mixtures"][mixture].items()])
