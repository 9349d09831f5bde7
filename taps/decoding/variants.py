"""Variants: the lines of the result tables, a strategy over drafters with a node budget; what `--strategies` lists."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from taps.decoding.cost_model import CostModel
from taps.decoding.strategy import Options, Strategy, find
from taps.plumbing.errors import TapsError

HELP = (
    "JSON list of {strategy, drafters, num_draft_tokens, depth}; num_draft_tokens may be a list, or absent for the "
    "default, depth absent for the banks'"
)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One line of the result tables.

    Attributes:
        strategy: How the tree of a cycle is made.
        drafters: Names of those that it takes.
        num_draft_tokens: Nodes of one drafter's tree.
        depth: Expansions after its first level; None for those of the banks.
    """

    strategy: Strategy
    drafters: tuple[str, ...]
    num_draft_tokens: int
    depth: int | None = None

    def __str__(self) -> str:
        shape = "" if self.depth is None else f" to depth {self.depth}"
        return f"{self.strategy.name} of {'+'.join(self.drafters)} with {self.num_draft_tokens} nodes{shape}"

    @property
    def num_nodes(self) -> int:
        """Nodes that each drafter drafts."""
        return self.strategy.num_nodes(Options(num_draft_tokens=self.num_draft_tokens))

    def options(
        self,
        factors: Mapping[str, float],
        *,
        cost: CostModel | None = None,
        bank_depth: int = 0,
        router: Mapping[str, Sequence[float]] | None = None,
        **others: Any,
    ) -> Options:
        """Returns the settings to run it with.

        Args:
            factors: Drafter -> inverse temperature, for a calibrated strategy.
            cost: For a costed strategy.
            bank_depth: The depth where the variant has none of its own, for the same.
            router: Drafter -> bias and weights, for a strategy that reads the prompt.
            others: Fields of Options beside.
        """
        if self.strategy.calibrated:
            others["inverse_temperatures"] = tuple(factors[name] for name in self.drafters)
        if self.strategy.costed:
            assert cost is not None, "check_variants refuses costed strategies without costs"
            depth = bank_depth if self.depth is None else self.depth
            others |= cost.settings(self.strategy, self.num_draft_tokens, depth=depth)
        if self.strategy.uses_prompt:
            assert router is not None, "check_variants refuses such strategies without a router"
            others["router"] = tuple(tuple(router[name]) for name in self.drafters)
        return Options(num_draft_tokens=self.num_draft_tokens, **others)


def parse_variants(text: str, drafters: Mapping[str, Any], default: int) -> list[Variant]:
    """Returns the variants that a JSON list asks for, in its order.

    Raises:
        TapsError: not such a list, an unknown strategy or drafter, the wrong number of drafters, a variant named twice.
    """
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise TapsError("--strategies", "not JSON", found=str(error)) from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise TapsError("--strategies", "wrong type", expected="a list of objects", found=text[:60])
    variants = [
        variant
        for index, entry in enumerate(entries)
        for variant in _variants_of(f"--strategies[{index}]", entry, default)
    ]
    for variant in variants:
        if unknown := [name for name in variant.drafters if name not in drafters]:
            raise TapsError(
                str(variant), f"no --bank for {', '.join(unknown)}", expected=f"among {', '.join(drafters)}"
            )
        if variant.strategy.one_drafter != (len(variant.drafters) == 1) or len(set(variant.drafters)) < len(
            variant.drafters
        ):
            expected = "one" if variant.strategy.one_drafter else "two or more different ones"
            raise TapsError(str(variant), "wrong number of drafters", expected=expected, found=len(variant.drafters))
    for one, other in itertools.combinations(variants, 2):
        if one == other:
            raise TapsError("--strategies", f"names {one} twice")
    return variants


def _variants_of(where: str, entry: Mapping[str, Any], default: int) -> list[Variant]:
    fields = {"strategy": str, "drafters": list, "num_draft_tokens": (int, list), "depth": int}
    for key, value in entry.items():
        if key not in fields or not isinstance(value, fields[key]):  # type: ignore[arg-type]
            raise TapsError(f"{where}.{key}", "unknown key or wrong type", expected=", ".join(fields), found=value)
    if missing := [key for key in ("strategy", "drafters") if key not in entry]:
        raise TapsError(where, f"lacks {' and '.join(missing)}")
    budgets = entry.get("num_draft_tokens", default)
    return [
        Variant(
            strategy=find(entry["strategy"]),
            drafters=tuple(entry["drafters"]),
            num_draft_tokens=budget,
            depth=entry.get("depth"),
        )
        for budget in (budgets if isinstance(budgets, list) else [budgets])
    ]


def check_variants(
    variants: Sequence[Variant],
    *,
    num_held: int,
    factors: Mapping[str, float],
    depth: int | None = None,
    cost: CostModel | None = None,
    router: Mapping[str, Any] | None = None,
) -> None:
    """Checks that a recording can serve the variants.

    Args:
        num_held: Nodes of the banks' trees.
        factors: Drafter -> inverse temperature, as far as they are known.
        depth: Of the banks' trees.
        cost: If there is one.
        router: If there is one.

    Raises:
        TapsError: a variant wants larger trees than the banks hold, or a calibration, costs or a router that are not
            there.
    """
    for variant in variants:
        if variant.depth is not None and not 0 <= variant.depth <= (depth or 0):
            expected = f"depth 0 to {depth or 0}"
            raise TapsError(str(variant), "not in the banks", expected=expected, found=variant.depth)
        if variant.strategy.costed and cost is None:
            raise TapsError(str(variant), "needs measured costs", remedy="give --cost")
        if variant.strategy.uses_prompt and (router is None or not set(variant.drafters) <= set(router)):
            known = "none" if router is None else ", ".join(router)
            raise TapsError(str(variant), "needs a router over its drafters", found=known, remedy="give --router")
        wanted = variant.num_nodes
        if not 1 <= wanted <= num_held:
            remedy = "draft larger trees (--num-nodes of taps.bank) or ask for fewer nodes"
            expected = f"1 to {num_held} nodes"
            raise TapsError(str(variant), "not in the banks", expected=expected, found=wanted, remedy=remedy)
        missing = [name for name in variant.drafters if name not in factors]
        if variant.strategy.calibrated and missing:
            raise TapsError(
                str(variant), f"no inverse temperature of {', '.join(missing)}", remedy="give --calibration"
            )
