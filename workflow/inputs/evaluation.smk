"""Which texts, draft banks, replays and live decodings a study has, and what they need."""

# --- traces, banks, replays ------------------------------------------------------------------------------------------


def conditions():
    """Returns (temperature as text, seed) of every evaluation."""
    return [(f"{item['temperature']:g}", seed) for item in EVALUATION["sampling"] for seed in item["seeds"]]


def max_new_tokens(wildcards):
    if wildcards.benchmark.startswith(HELDOUT):
        return config["heldout"]["max_new_tokens"]
    return config["benchmarks"][wildcards.benchmark]["max_new_tokens"]


def banks(wildcards):
    condition = f"{wildcards.benchmark}/t{wildcards.temperature}_s{wildcards.seed}.safetensors"
    return [f"<results>/banks/{wildcards.method}/{name}/{condition}" for name in drafters_of(wildcards)]


def calibration(wildcards):
    needed = is_calibrated(config, wildcards.method)
    return [f"<results>/calibration/{wildcards.method}.json"] if needed else []


def combined_drafters(wildcards):
    named = {mixture for group in config["strategies"]["combinations"] for mixture in group}
    return sorted(named.intersection(mixtures_of(config, wildcards.method)))


def timed_drafters(wildcards):
    """Returns the first drafters that a strategy combines, else the first drafter; all have one shape."""
    method = next(iter(config["methods"]))
    names = [*config["strategies"]["combinations"], mixtures_of(config, method)[:1]][0]
    return [f"<results>/drafters/{method}/{name}" for name in names]


def timed_drafter_flags(wildcards, input):
    return flags(drafter=[f"{Path(folder).name}={folder}" for folder in input.drafters])


def calibration_traces(wildcards):
    return [f"<results>/traces/{HELDOUT}{corpus}/t0_s0.safetensors" for corpus in config["corpora"]]


def calibration_banks(wildcards):
    return [
        f"<results>/banks/{wildcards.method}/{name}/{HELDOUT}{corpus}/t0_s0.safetensors"
        for name in combined_drafters(wildcards)
        for corpus in config["corpora"]
    ]


def replays():
    return [
        f"<results>/replays/{method}/{benchmark}/t{temperature}_s{seed}.parquet"
        for method in config["methods"]
        for benchmark in config["benchmarks"]
        for temperature, seed in conditions()
        if evaluated_at(config, method, float(temperature))
    ]


def variants(names, drafters):
    """Returns what to replay as one JSON list of {strategy, drafters, num_draft_tokens}."""
    rows = []
    for name in names:
        groups = [group for group in config["strategies"]["combinations"] if set(group) <= set(drafters)]
        if name in ("single", "single_double"):
            groups = [[drafter] for drafter in drafters]
        swept = DRAFTING["budgets"] if name in ("single", "merged_matched", "merged_dedup", "merged_concat") else []
        budgets = sorted({DRAFTING["num_draft_tokens"], *swept})
        rows += [{"strategy": name, "drafters": group, "num_draft_tokens": budgets} for group in groups]
    return json.dumps(rows)


def strategies(wildcards):
    return variants(strategies_of(config, wildcards.method), drafters_of(wildcards))


# --- live decoding: the first group of drafters that is combined, else the first drafter ------------------------------


def live_drafters(wildcards):
    held = mixtures_of(config, wildcards.method)
    return next((group for group in config["strategies"]["combinations"] if set(group) <= set(held)), held[:1])


def live_folders(wildcards):
    return [f"<results>/drafters/{wildcards.method}/{name}" for name in live_drafters(wildcards)]


def live_banks(wildcards):
    bank = f"{wildcards.benchmark}/t0_s0.safetensors"
    return [f"<results>/banks/{wildcards.method}/{name}/{bank}" for name in live_drafters(wildcards)]


def live_strategies(wildcards):
    rows = json.loads(variants(EVALUATION["live"]["strategies"], live_drafters(wildcards)))
    return json.dumps([{**row, "num_draft_tokens": DRAFTING["num_draft_tokens"]} for row in rows])


def live_names(wildcards):
    """Returns `method/benchmark` of every live check."""
    live = EVALUATION["live"] or {"methods": [], "benchmarks": []}
    return [f"{method}/{benchmark}" for method in live["methods"] for benchmark in live["benchmarks"]]


def live_checks(wildcards):
    return [f"<results>/live/{name}.json" for name in live_names(wildcards)]
