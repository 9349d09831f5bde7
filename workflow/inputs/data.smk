"""Which assets corpora, prompts and mixtures are made of, and how their stages are told."""


def corpus_source(wildcards):
    asset = config["corpora"][wildcards.corpus]["asset"]
    return [asset_path(asset)] if asset else []


def corpus_flags(wildcards):
    corpus = config["corpora"][wildcards.corpus]
    if corpus["reader"] == "reasoning_gym":
        return flags(reader="reasoning_gym", task=corpus["task"], rows=corpus["max_rows"], seed=corpus["seed"])
    return flags(reader=corpus["reader"], max_rows=corpus["max_rows"])


def corpus_size(wildcards):
    return flags(max_tokens=config["corpora"][wildcards.corpus]["max_tokens"])


def regenerate_flags(wildcards):
    corpus = config["corpora"][wildcards.corpus]
    return flags(**corpus["regenerate"], max_tokens=corpus["max_tokens"])


def training_corpus(wildcards):
    """Returns the conversations to train on: as collected, or with the target's own answers."""
    folder = "regenerated" if config["corpora"][wildcards.corpus]["regenerate"] else "corpora"
    return f"<results>/{folder}/{wildcards.corpus}.jsonl"


def prompts_source(wildcards):
    return [asset_path(asset) for asset in config["benchmarks"][wildcards.benchmark]["assets"]]


def prompts_flags(wildcards):
    benchmark = config["benchmarks"][wildcards.benchmark]
    return flags(**{key: benchmark[key] for key in ("reader", "task", "num_prompts", "seed")})


def all_corpora(wildcards):
    return list(config["corpora"])


def all_benchmarks(wildcards):
    return list(config["benchmarks"])


def corpora_of(wildcards):
    return list(config["mixtures"][wildcards.mixture])


def mixture_tokens(wildcards):
    return [f"<results>/tokens/{corpus}.safetensors" for corpus in corpora_of(wildcards)]


def mixture_shares(wildcards):
    return flags(share=[f"{corpus}={share:g}" for corpus, share in config["mixtures"][wildcards.mixture].items()])
