"""How often nominal 95 % intervals hold the truth: simulated questions, training seeds and routers with known values.

    python -m tests.support.interval_coverage --replications 10000  # the tables behind the figures in taps.analysis

A question has a text of some length and, per row, a rate at which drafted tokens are accepted; both are drawn anew for
every replication. Lengths: `full` all answers reach the limit of 40 tokens; `mixed` most end before it; `wide`
lognormal, from 3 to 512 tokens. Monte Carlo error of a coverage c from n replications: sqrt(c (1 - c) / n), 0.002 of
0.95 at 10,000.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from taps.analysis import contrasts
from taps.analysis.distributions import t_quantile
from taps.analysis.intervals import Intervals, Quantities, joined
from taps.analysis.ratios import linearised

QUESTIONS = (7, 14, 40)
LENGTHS = ("full", "mixed", "wide")
ACCEPTED = (0.42, 0.37)  # mean rates of the two rows: acceptance lengths of about 1.7 and 1.6
TRUE_RATIOS = 1 / (1 - np.array(ACCEPTED))  # lengths and rates are independent


def covered(found: Intervals, truth: float) -> float:
    """Returns the share of intervals that hold the truth."""
    return float(((found.lows <= truth) & (truth <= found.highs)).mean())


# --- questions -------------------------------------------------------------------------------------------------------


def _lengths(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    if kind == "full":
        return np.full(shape, 40)
    if kind == "mixed":
        return np.minimum(rng.geometric(1 / 30, shape) + 3, 40)
    return np.minimum(np.exp(rng.normal(4.0, 0.9, shape)).astype(int) + 3, 512)


def _rates(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Returns acceptance rates [2, *shape] of two rows: a skewed effect of the question, and one of the row on it."""
    common = 0.12 * (rng.gamma(4, 0.25, shape) - 1)
    own = 0.04 * rng.standard_normal((2, *shape))
    return np.clip(np.array(ACCEPTED).reshape(2, *[1] * len(shape)) + common + own, 0.02, 0.95)


def _quantities(tops: np.ndarray, bottoms: np.ndarray) -> tuple[Quantities, np.ndarray]:
    """Returns ratios, and their rows int [benchmarks + 1, 2, replications], the means over benchmarks last.

    Args:
        tops, bottoms: [benchmarks, 2 rows, replications, seeds, questions].
    """
    num_benchmarks, num_rows, replications, num_seeds, num_questions = bottoms.shape
    wide = np.zeros((2, *bottoms.shape[:-1], num_benchmarks, num_questions))
    for benchmark in range(num_benchmarks):  # every benchmark has questions of its own
        wide[:, benchmark, ..., benchmark, :] = tops[benchmark], bottoms[benchmark]
    columns = wide.reshape(2, -1, num_seeds, num_benchmarks * num_questions)
    keys = pd.DataFrame(index=range(columns.shape[1]))
    found = linearised(keys, columns[0], columns[1], np.repeat(np.arange(num_benchmarks), num_questions))
    rows = np.arange(columns.shape[1]).reshape(num_benchmarks, num_rows, replications)
    weights = [contrasts.mean(part) for part in rows.reshape(num_benchmarks, -1).T.tolist()]
    means = found.combined(weights, keys.iloc[: len(weights)])
    rows = np.concatenate([rows, rows[-1:] + num_rows * replications])
    return joined([found, means], pd.DataFrame(index=range(rows.size))), rows


def _coverage(found: Quantities, rows: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Returns the coverage of ratios, differences, means and differences of means, and a difference's half-width."""
    gaps = [found.minus(part[0], part[1], found.keys.iloc[part[0]]).intervals for part in (rows[0], rows[-1])]
    return {
        "ratio": covered(found.take(rows[0, 0]).intervals, truth[0]),
        "difference": covered(gaps[0], truth[0] - truth[1]),
        "mean": covered(found.take(rows[-1, 0]).intervals, truth[0]),
        "difference of means": covered(gaps[1], truth[0] - truth[1]),
        "half-width": float(np.median(gaps[0].highs - gaps[0].lows) / 2),
    }


def question_coverage(
    rng: np.random.Generator, *, replications: int, num_questions: int, lengths: str
) -> dict[str, float]:
    """Returns the coverage of `_coverage` on two benchmarks of equal law."""
    shape = (replications, num_questions)
    tokens, cycles = np.empty((2, 2, 2, replications, 1, num_questions))
    for benchmark in range(2):
        length = _lengths(rng, lengths, shape)
        tokens[benchmark, :, :, 0] = length
        cycles[benchmark, :, :, 0] = np.maximum(length - rng.binomial(length, _rates(rng, shape)), 1)
    return _coverage(*_quantities(tokens, cycles), TRUE_RATIOS)


# --- training seeds --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Crossed:
    """Spread of a paired difference over questions and training seeds, in tau.

    Attributes:
        num_seeds, num_questions: How many of each.
        seed_sd: Between training seeds.
        question_sd: Between questions, under one training seed.
        share: Part of the questions' variance that every training seed has anew (questions x seeds).
    """

    num_seeds: int
    num_questions: int
    seed_sd: float
    question_sd: float
    share: float


def seed_coverage(rng: np.random.Generator, case: Crossed, *, replications: int) -> dict[str, float]:
    """Returns the coverage of `_coverage` with training seeds.

    Two rows on two benchmarks; their draft models of one seed are drawn independently, the seed's effect is half common
    to both benchmarks, and cycles per question vary from 15 to 40.
    """
    S, Q = case.num_seeds, case.num_questions
    draw = rng.standard_normal
    cycles = rng.integers(15, 41, (2, 1, replications, 1, Q))
    seed = np.sqrt(0.5) * (draw((1, 2, replications, S, 1)) + draw((2, 2, replications, S, 1)))
    question = np.sqrt(1 - case.share) * draw((2, 2, replications, 1, Q))
    question = question + np.sqrt(case.share) * draw((2, 2, replications, S, Q))
    truth = np.array([1.8, 1.7])
    tau = truth[:, None, None, None] + 0.25 * draw((2, 1, replications, 1, Q))
    tau = tau + np.sqrt(0.5) * (case.seed_sd * seed + case.question_sd * question)  # two rows: half of a variance each
    bottoms = np.broadcast_to(cycles, tau.shape).astype(np.float64)
    return _coverage(*_quantities(bottoms * tau, bottoms), truth)


def seed_pairing(
    rng: np.random.Generator, *, replications: int, num_seeds: int, correlation: float
) -> dict[str, tuple[float, float]]:
    """Returns (coverage, median half-width) of a difference between two rows' means over seeds, questions left aside.

    `paired`: Student's t on the seeds' differences, as the intervals do; `independent`: Welch's, as if row b's draft
    models had nothing to do with row a's.

    Args:
        correlation: Of the rows' seed effects (standard deviation 0.04): 0 for separate draft models, near 1 for a
            merged tree and one of its specialists.
    """
    own = rng.standard_normal((2, replications, num_seeds))
    a = 0.04 * own[0]
    b = 0.04 * (correlation * own[0] + np.sqrt(1 - correlation**2) * own[1])
    errors = [row.var(axis=1, ddof=1) / num_seeds for row in (a, b)]
    welch = sum(errors) ** 2 / (sum(np.square(error) for error in errors) / (num_seeds - 1))
    halves = {
        "paired": t_quantile(num_seeds - 1) * (a - b).std(axis=1, ddof=1) / np.sqrt(num_seeds),
        "independent": t_quantile(welch) * np.sqrt(sum(errors)),
    }
    gap = np.abs((a - b).mean(axis=1))
    return {name: (float((gap <= half).mean()), float(np.median(half))) for name, half in halves.items()}


# --- tables ----------------------------------------------------------------------------------------------------------


def question_table(replications: int) -> pd.DataFrame:
    """Returns coverage over questions, one row per kind of lengths and number of questions."""
    rows = []
    for lengths in LENGTHS:
        for num_questions in QUESTIONS:
            rng = np.random.default_rng([num_questions, LENGTHS.index(lengths)])
            found = question_coverage(rng, replications=replications, num_questions=num_questions, lengths=lengths)
            rows.append({"lengths": lengths, "questions": num_questions, **found})
    return pd.DataFrame(rows)


def seed_table(replications: int) -> pd.DataFrame:
    """Returns coverage with training seeds over the spreads that the laptop study's rows show, and beyond them."""
    grid: dict[str, tuple[Any, ...]] = {
        "num_seeds": (2, 3, 5),
        "num_questions": QUESTIONS,
        "seed_sd": (0.01, 0.03, 0.054),
        "question_sd": (0.07, 0.105, 0.21),
        "share": (0.2, 0.6, 1.0),
    }
    rows = []
    for place, values in enumerate(itertools.product(*grid.values())):
        case = Crossed(**dict(zip(grid, values, strict=True)))
        rows.append({**asdict(case), **seed_coverage(np.random.default_rng(place), case, replications=replications)})
    return pd.DataFrame(rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=10_000, help="per case of questions; with seeds a fifth")
    replications = parser.parse_args(argv).replications
    with pd.option_context(
        "display.precision", 3, "display.width", 200, "display.max_columns", None, "display.max_rows", None
    ):
        print("Questions:", question_table(replications), sep="\n")
        seeds = seed_table(replications // 5)
        print("\nTraining seeds:", seeds, sep="\n")
        kinds = ["ratio", "difference", "mean", "difference of means"]
        tidy = seeds.melt(["num_seeds", "num_questions", "share"], kinds, var_name="of", value_name="coverage")
        groups = tidy.groupby(["num_seeds", "share", "of"], sort=False)["coverage"]
        within = groups.agg(lambda values: ((values >= 0.93) & (values <= 0.97)).mean()).rename("within 0.93 to 0.97")
        pairing = []
        for num_seeds, correlation in itertools.product((2, 3, 5), (0.0, 0.8)):
            found = seed_pairing(
                np.random.default_rng(0), replications=replications, num_seeds=num_seeds, correlation=correlation
            )
            pairing.append({"seeds": num_seeds, "correlation": correlation, **found})
        print("\nPaired by seed or independent (coverage, half-width):", pd.DataFrame(pairing), sep="\n")
        print("\nOver all cases:", groups.agg(["min", "mean", "max"]).join(within), sep="\n")


if __name__ == "__main__":
    main()
