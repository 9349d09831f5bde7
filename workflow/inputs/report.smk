"""What the report is made of."""


def audited(wildcards):
    return [*config["corpora"], *config["benchmarks"]]


def audits(wildcards):
    corpora = [f"<results>/corpora/{corpus}.audit.json" for corpus in config["corpora"]]
    return corpora + [f"<results>/prompts/{benchmark}.audit.json" for benchmark in config["benchmarks"]]


def trained(wildcards):
    """Returns `method/mixture` of every draft model that the study trains."""
    return [f"{method}/{mixture}" for method in TRAINED for mixture in mixtures_of(config, method)]


def trained_drafters(wildcards):
    return [f"<results>/drafters/{name}" for name in trained(wildcards)]


def calibrated(wildcards):
    """Returns the methods that a temperature is fitted for."""
    return [method for method in config["methods"] if is_calibrated(config, method)]


def calibrations(wildcards):
    return [f"<results>/calibration/{method}.json" for method in calibrated(wildcards)]


def drawn_drafters(wildcards):
    """Returns the drafters whose trees the report draws: the first that a strategy combines; none without strategies."""
    method = next(iter(config["methods"]))
    temperature = float(conditions()[0][0])
    held = drafters_at(config, method, temperature)
    return next((group for group in config["strategies"]["combinations"] if set(group) <= set(held)), [])


def drawn_condition():
    """Returns `benchmark/t0_s0` of the answer whose trees the report draws: GSM8K where the study has it."""
    benchmark = "gsm8k" if "gsm8k" in config["benchmarks"] else next(iter(config["benchmarks"]))
    temperature, seed = conditions()[0]
    return f"{benchmark}/t{temperature}_s{seed}.safetensors"


def drawn_trace(wildcards):
    return [f"<results>/traces/{drawn_condition()}"] if drawn_drafters(wildcards) else []


def drawn_banks(wildcards):
    method = next(iter(config["methods"]))
    return [f"<results>/banks/{method}/{name}/{drawn_condition()}" for name in drawn_drafters(wildcards)]


def drawn_tokenizer(wildcards, input):
    return flags(tokenizer=[f"{folder}/tokenizer.json" for folder in input.target])


def drawn_target(wildcards):
    return ["<results>/target"] if drawn_drafters(wildcards) else []
