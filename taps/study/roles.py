"""Who plays which part in a study: specialists, mixtures, controls, the specialist that is matched to a benchmark.

All of it is asked of the config. What it leaves open is filled in from the names of the paper's own study
(`taps.published`), then from the config's structure: a mixture that takes all of one corpus is a specialist.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from taps import published
from taps.model.family import FAMILIES
from taps.study.contents import AVERAGED, Config, averages_of, drafters_of, mixture_of, specialists


@dataclass(frozen=True, kw_only=True)
class Drafter:
    """A draft model's part.

    Attributes:
        title: In print.
        role: `specialist` (trained on one corpus), `mixture` (on several), `averaged`, or `other`.
        weights: Of an averaged drafter: mixture -> weight.
    """

    title: str
    role: str
    weights: dict[str, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method's part.

    Attributes:
        title: In print.
        family: The draft family that it trains.
        control: Whether it exists to be compared with others: it has rows, and no figures or verdicts of its own.
        compared_with: Methods that its acceptance is compared with.
        matches_cost_of: The method whose cost it was trained to match, if any.
        common_start: Whether all its drafters continue from one and the same draft model.
    """

    title: str
    family: str
    control: bool = False
    compared_with: list[str]
    matches_cost_of: str | None = None
    common_start: bool = False


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark's part.

    Attributes:
        title: In print.
        matched: The specialist that was trained for such prompts; None if there is none, or if it is unknown.
        published: The published benchmark whose cell is shown beside ours: its own, or the one that it stands in for.
        domain: Domains weigh the same in means over benchmarks, and the benchmarks of a domain the same within it.
    """

    title: str
    matched: str | None
    published: str
    domain: str


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The parts of a study, in the order of its config; benchmarks of the paper come first, in the paper's order.

    Attributes:
        drafters: By name, mixtures before averages.
        methods: The ways of training, by name.
        benchmarks: What is answered, by name.
        combinations: Groups of drafters that strategies combine.
        all_data: The mixture that was trained on all of the specialists' data; None if there is none.
        curve: Methods that train the same drafters on more and more data.
        own_answers: Methods whose drafters learned the target's own answers.
    """

    drafters: dict[str, Drafter]
    methods: dict[str, Method]
    benchmarks: dict[str, Benchmark]
    combinations: list[list[str]]
    all_data: str | None = None
    curve: Sequence[str] = ()
    own_answers: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the roles as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Roles:
        """Returns the roles of `to_json`."""
        return cls(
            drafters={name: Drafter(**item) for name, item in content["drafters"].items()},
            methods={name: Method(**item) for name, item in content["methods"].items()},
            benchmarks={name: Benchmark(**item) for name, item in content["benchmarks"].items()},
            combinations=content["combinations"],
            all_data=content.get("all_data"),
            curve=content.get("curve", ()),
            own_answers=content.get("own_answers", ()),
        )

    def of_role(self, role: str) -> list[str]:
        """Returns the drafters that play a role."""
        return [name for name, drafter in self.drafters.items() if drafter.role == role]

    @property
    def specialists(self) -> list[str]:
        """Drafters trained on one corpus each."""
        return self.of_role("specialist")

    @property
    def mixtures(self) -> list[str]:
        """Drafters trained on several corpora."""
        return self.of_role("mixture")

    @property
    def main_combination(self) -> list[str]:
        """The group of all specialists, else the first group; empty where nothing is combined."""
        wanted = set(self.specialists)
        return next((group for group in self.combinations if set(group) == wanted), next(iter(self.combinations), []))

    @property
    def plays_the_paper(self) -> bool:
        """Whether the specialists are the paper's, so that its claims can be asked of this study."""
        return set(published.paper()["specialists"]) == set(self.specialists)


def roles_of(config: Config) -> Roles:
    """Returns the parts that a checked study's names play."""
    return Roles(
        drafters=_drafters(config),
        methods={name: _method(config, name) for name in config["methods"]},
        benchmarks=_benchmarks(config),
        combinations=[list(group) for group in config["strategies"]["combinations"]],
        all_data=_all_data(config),
        curve=list(config["roles"]["curve"]),
        own_answers=list(config["roles"]["own_answers"]),
    )


def family_of(config: Config, method: str) -> str:
    """Returns a method's draft family: the one that it names, else its own name."""
    return str(config["methods"][method]["family"] or method)


def _all_data(config: Config) -> str | None:
    """Returns the mixture that takes every specialist's corpora as a whole, and nothing else."""
    own = [config["mixtures"][name] for name in specialists(config)]
    wanted = {corpus: share for shares in own for corpus, share in shares.items()}
    held = {name for method in config["methods"] for name in drafters_of(config, method)}
    found = [
        name for name, shares in config["mixtures"].items() if len(own) > 1 and dict(shares) == wanted and name in held
    ]
    return next(iter(found), None)


def _drafters(config: Config) -> dict[str, Drafter]:
    own, known = specialists(config), published.paper()["drafters"]
    drafters = {}
    trained = {
        name: mixture_of(config, method, name) for method in config["methods"] for name in drafters_of(config, method)
    }
    for name in sorted(trained, key=_place_in(config)):
        shares = config["mixtures"][trained[name]]
        role = "specialist" if name in own else "mixture" if len(shares) > 1 else "other"
        title = config["roles"]["titles"].get(name) or known.get(name, {}).get("title", name)
        drafters[name] = Drafter(title=title, role=role)
    for method in config["methods"]:
        for name, weights in averages_of(config, method).items():
            drafters[name] = Drafter(title=_average_title(name, weights), role="averaged", weights=weights)
    return drafters


def _place_in(config: Config) -> Callable[[str], int]:
    """Returns a sort key for drafters: the order of the config's mixtures, other names behind."""
    order = list(config["mixtures"])
    return lambda name: order.index(name) if name in order else len(order)


def _average_title(name: str, weights: Mapping[str, float]) -> str:
    if name == AVERAGED:
        return "Averaged"
    second, weight = list(weights.items())[-1]
    return f"Averaged, {weight:g} {second}"


def _method(config: Config, name: str) -> Method:
    settings, family = config["methods"][name], family_of(config, name)
    others = [other for other in config["methods"] if not config["methods"][other]["control"]]
    before = others[: others.index(name)] if name in others else []
    compared = settings["compared_with"]
    matched, start = settings["match_cost_of"], settings["init_from"]
    return Method(
        title=settings["title"] or (FAMILIES[family].title if name == family else name),
        family=family,
        control=settings["control"],
        compared_with=before if compared is None else list(compared),
        matches_cost_of=matched and matched["method"],
        common_start=bool(start and start["mixture"]),
    )


def _benchmarks(config: Config) -> dict[str, Benchmark]:
    known, own = published.paper()["benchmarks"], specialists(config)
    order = [name for name in known if name in config["benchmarks"]]
    found = {}
    for name in [*order, *(name for name in config["benchmarks"] if name not in known)]:
        settings, paper = config["benchmarks"][name], known.get(name, {})
        matched = settings["matched"] or paper.get("matched")
        found[name] = Benchmark(
            title=settings["title"] or paper.get("title", name),
            matched=matched if matched in own else None,
            published=settings["stands_for"] or name,
            domain=settings["domain"] or matched or name,
        )
    return found


# --- results whose study is not at hand ------------------------------------------------------------------------------


def roles_of_names(*, methods: Iterable[str], benchmarks: Iterable[str], drafters: Iterable[str]) -> Roles:
    """Returns the parts that names alone tell: those of the paper's names.

    Args:
        methods, benchmarks: As the results name them.
        drafters: Single ones (`math`) and groups (`math+chat`).
    """
    known, rows, held = published.paper(), list(dict.fromkeys(drafters)), list(dict.fromkeys(benchmarks))
    singles = list(dict.fromkeys(name for row in rows for name in row.split("+")))
    ranked = [name for name in known["drafters"] if name in singles]
    parts = {name: _known_drafter(name) for name in [*ranked, *(name for name in singles if name not in ranked)]}
    order = [name for name in known["benchmarks"] if name in held]
    return Roles(
        drafters=parts,
        methods={name: _known_method(name) for name in dict.fromkeys(methods)},
        benchmarks={
            name: Benchmark(
                title=known["benchmarks"].get(name, {}).get("title", name),
                matched=known["benchmarks"].get(name, {}).get("matched"),
                published=name,
                domain=known["benchmarks"].get(name, {}).get("matched", name),
            )
            for name in [*order, *(name for name in held if name not in order)]
        },
        combinations=[row.split("+") for row in rows if "+" in row],
        all_data=known["mixtures"]["large"] if known["mixtures"]["large"] in singles else None,
    )


def _known_drafter(name: str) -> Drafter:
    found = re.fullmatch(rf"{AVERAGED}(?:_(0?\.\d+))?", name)
    if not found:
        known = published.paper()["drafters"].get(name, {})
        return Drafter(title=known.get("title", name), role=known.get("role", "other"))
    first, second = published.paper()["specialists"]
    weight = float(found[1] or 0.5)
    weights = {first: 1 - weight, second: weight}
    return Drafter(title=_average_title(name, weights), role="averaged", weights=weights)


def _known_method(name: str) -> Method:
    return Method(title=FAMILIES[name].title if name in FAMILIES else name, family=name, compared_with=[])
