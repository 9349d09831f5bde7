"""What training, importing and averaging a draft model needs."""

IMPORTED = [name for name, method in config["methods"].items() if method["checkpoints"]]
TRAINED = [name for name in config["methods"] if name not in IMPORTED]


def drafters_of(wildcards):
    return drafters_at(config, wildcards.method, float(wildcards.temperature))


def checkpoint(wildcards):
    return asset_path(config["methods"][wildcards.method]["checkpoints"][wildcards.mixture])


def other_drafter(field):
    """Returns an input function: the drafter that `init_from` or `match_cost_of` names, if any."""

    def folder(wildcards):
        other = config["methods"][wildcards.method][field]
        return [f"<results>/drafters/{other['method']}/{other['mixture'] or wildcards.mixture}"] if other else []

    return folder


def mixture_features(wildcards):
    """Returns the feature folders of a mixture; none where features are computed while training."""
    online = config["features"] == "online"
    return [] if online else [f"<results>/features/{corpus}" for corpus in corpora_of(wildcards)]


def feature_flags(wildcards, input):
    paths = input.features or ["online"] * len(corpora_of(wildcards))
    return flags(features=[f"{corpus}={path}" for corpus, path in zip(corpora_of(wildcards), paths, strict=True)])


def cost_flags(wildcards, input):
    return flags(match_cost=[f"{folder}/training.json" for folder in input.match_cost_of])


def mixture_heldout_traces(wildcards):
    return [f"<results>/traces/{HELDOUT}{corpus}/t0_s0.safetensors" for corpus in corpora_of(wildcards)]


def draft_vocab(wildcards):
    return ["<results>/draft_vocab.safetensors"] if DRAFTING["draft_vocab_size"] else []


def training_flags(wildcards):
    """Returns the study's training options, overridden by the method's own; a cost to match replaces the epochs."""
    method = config["methods"][wildcards.method]
    options = {**config["training"], **method["training"]}
    if method["match_cost_of"]:
        options.pop("epochs", None)
    return flags(**dict(sorted(options.items())))


def launch_training(wildcards):
    """Returns `python`, or torchrun over several processes; on GPUs behind a lease of as many."""
    processes = config["parallel"]["training_processes"]
    torchrun = ["torchrun", "--standalone", "--nproc-per-node", str(processes)]
    return lease(processes) + (["python"] if processes == 1 else torchrun)


def specialists(wildcards):
    return [f"<results>/drafters/{wildcards.method}/{mixture}" for mixture in config["averaging"]["drafters"]]


def average_flags(wildcards, input):
    second = 0.5 if wildcards.mixture == averaged_name(0.5) else float(wildcards.mixture.split("_")[1])
    first, weights = 1 - second, []
    for drafter, weight in zip(input.drafters, (first, second), strict=True):
        weights += flags(drafter=drafter, weight=f"{weight:g}")
    return weights
