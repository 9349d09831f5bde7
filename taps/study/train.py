"""What workflow/rules/train.smk asks: what training or importing a draft model needs, and how the stage is told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from taps.model.family import FAMILIES
from taps.plumbing.code_digest import code_digest
from taps.study.assets import asset_path
from taps.study.contents import HELDOUT, Config, mixture_of, training_seeds
from taps.study.data import corpora_of, mixture_tokens
from taps.study.flags import flags
from taps.study.roles import family_of


def code(config: Config, *methods: str, stage: str, modules: Sequence[str] = ()) -> str:
    """Returns the digest of a stage that handles draft models of these methods: its code, and their families'."""
    families = FAMILIES.modules(family_of(config, method) for method in methods)
    return code_digest(stage, modules=[*families, *modules])


def mixture(config: Config, method: str, drafter: str) -> str:
    """Returns the mixture that a drafter is trained on."""
    return f"<results>/mixtures/{mixture_of(config, method, drafter)}.json"


def corpora(config: Config, method: str, drafter: str) -> list[str]:
    """Returns the corpora of that mixture."""
    return corpora_of(config, mixture_of(config, method, drafter))


def tokens(config: Config, method: str, drafter: str) -> list[str]:
    """Returns their tokens."""
    return mixture_tokens(config, mixture_of(config, method, drafter))


def other_drafter(config: Config, method: str, training_seed: str, drafter: str, *, field: str) -> list[str]:
    """Returns the drafter that `init_from` or `match_cost_of` names, if any: of the same seed, else of the first."""
    other = config["methods"][method][field]
    if not other:
        return []
    seeds = training_seeds(config, other["method"])
    seed = training_seed if int(training_seed) in seeds else seeds[0]
    return [f"<results>/drafters/{other['method']}/seed{seed}/{other['mixture'] or drafter}"]


def features(config: Config, method: str, drafter: str) -> list[str]:
    """Returns the feature folders of a drafter's corpora; none where features are computed while training."""
    online = config["features"] == "online"
    return [] if online else [f"<results>/features/{corpus}" for corpus in corpora(config, method, drafter)]


def feature_flags(config: Config, method: str, drafter: str, folders: Sequence[str]) -> list[str]:
    """Returns where each corpus's features come from."""
    names = corpora(config, method, drafter)
    paths = folders or ["online"] * len(names)
    return flags(features=[f"{corpus}={path}" for corpus, path in zip(names, paths, strict=True)])


def heldout_traces(config: Config, method: str, drafter: str) -> list[str]:
    """Returns the texts along which tau is measured while training."""
    names = corpora(config, method, drafter)
    return [f"<results>/traces/{HELDOUT}{corpus}/t0_s0.safetensors" for corpus in names]


def draft_vocab(config: Config) -> list[str]:
    """Returns the draft vocabulary, if the study drafts over one."""
    return ["<results>/draft_vocab.safetensors"] if config["drafting"]["draft_vocab_size"] else []


def draft_vocab_tokens(config: Config) -> list[str]:
    """Returns the tokens whose frequencies rank the draft vocabulary."""
    corpora = config["drafting"]["draft_vocab_corpora"] or config["corpora"]
    return [f"<results>/tokens/{corpus}.safetensors" for corpus in corpora]


def recipe_flags(config: Config, method: str) -> list[str]:
    """Returns the family and the study's training options, overridden by the method's own; the rest is the family's.

    A cost to match replaces the epochs.
    """
    settings = config["methods"][method]
    options = {**config["training"], **settings["training"]}
    for name in ("seeds", "tensorboard"):  # not of the recipe
        options.pop(name, None)
    if settings["match_cost_of"]:
        options.pop("epochs", None)
    return flags(method=method, family=family_of(config, method), **dict(sorted(options.items())))


def event_flags(config: Config, method: str, training_seed: str, drafter: str) -> list[str]:
    """Returns where TensorBoard's event files go, if the method's trainings write any."""
    wanted = {**config["training"], **config["methods"][method]["training"]}.get("tensorboard", False)
    folder = f"logs/{config['study']}/tensorboard/{method}/seed{training_seed}/{drafter}"
    return flags(tensorboard=folder if wanted else None)


def launcher(config: Config) -> list[str]:
    """Returns `python`, or torchrun over several processes."""
    processes = config["parallel"]["training_processes"]
    return ["python"] if processes == 1 else ["torchrun", "--standalone", "--nproc-per-node", str(processes)]


def checkpoint(config: Config, method: str, drafter: str, root: Path) -> str:
    """Returns the published checkpoint that is imported as a drafter."""
    return asset_path(config, config["methods"][method]["checkpoints"][drafter], root)
