"""Recomputes acceptance lengths from answer files in the EAGLE format: what was published, and what is true.

    python -m taps.audit eagle_answers/*.jsonl --json audit.json

An answer file has one JSON object a line: question_id and choices. A choice has `idxs` (ZERO-based index of the last
cycle), `new_tokens` and optionally `wall_time` (seconds), one number per turn, and optionally `accept_length`, the
accepted lengths of the cycles (HASS), flat or one list per turn. Unknown fields are ignored.

Per file: num_questions, num_answers (turns), num_tokens, num_cycles, tau with its 95 % interval over questions,
tau_macro, tau_published_eagle, tau_published_hass (defined in `taps.analysis.measures`), seconds, tokens_per_s; null
where a file does not tell.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taps.plumbing.atomic import write_text
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.errors import TapsError

if TYPE_CHECKING:
    import pandas as pd


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.audit", __doc__)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="answer file (.jsonl)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="where to write the list of results")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    results = [audit(path) for path in args.files]
    print(f"{'questions':>9} {'tokens':>8} {'cycles':>8} {'tau':>7} {'95 % interval':>17} {'as published':>13}  file")
    for result in results:
        bounds = "-" if result["tau_low"] is None else f"{result['tau_low']:.3f} to {result['tau_high']:.3f}"
        published = result["tau_published_hass"] or result["tau_published_eagle"] or math.nan
        print(
            f"{result['num_questions']:>9} {result['num_tokens']:>8} {result['num_cycles']:>8} {result['tau']:>7.3f} "
            f"{bounds:>17} {published:>13.3f}  {result['file']}"
        )
    if args.json:
        write_text(args.json, json.dumps(results, indent=1, ensure_ascii=False) + "\n")


def audit(path: Path) -> dict[str, Any]:
    """Returns the results of one file.

    Raises:
        TapsError: missing, empty, or a malformed record, named by its line.
    """
    from taps.analysis.measures import DEFINITIONS, value
    from taps.analysis.ratios import ratios

    sums = read_answers(path)
    quantities = ratios(sums.reset_index().assign(benchmark=path.name), ["benchmark"], "tokens", "cycles")
    row = quantities.frame("tau", "tau_low", "tau_high").iloc[0]
    seconds = float(sums["seconds"].sum(skipna=False))
    result = {
        "file": str(path),
        "num_questions": len(sums),
        "num_answers": int(sums["answers"].sum()),
        "num_tokens": int(sums["tokens"].sum()),
        "num_cycles": int(sums["cycles"].sum()),
        **{name: value(name, sums) for name in DEFINITIONS},
        "tau_low": float(row["tau_low"]),
        "tau_high": float(row["tau_high"]),
        "seconds": seconds,
        "tokens_per_s": int(sums["tokens"].sum()) / seconds if seconds > 0 else math.nan,
    }
    return {name: None if isinstance(fact, float) and math.isnan(fact) else fact for name, fact in result.items()}


def read_answers(path: Path) -> pd.DataFrame:
    """Returns sums per question, indexed by its id: tokens, cycles, answers, accepted and seconds (NaN: not recorded).

    `accepted` is the mean accepted length times `cycles`, so that `accepted / cycles` is that mean.

    Raises:
        TapsError: missing, empty, or a malformed record, named by its line.
    """
    import pandas as pd

    rows = list(_answers(path))
    if not rows:
        raise TapsError(path, "no answers", expected="one JSON object a line")
    frame = pd.DataFrame(rows).groupby("question", sort=True)
    sums = frame[["tokens", "cycles", "answers"]].sum()
    lengths = frame[["lengths", "num_lengths"]].sum()
    sums["accepted"] = lengths["lengths"] / lengths["num_lengths"].where(lengths["num_lengths"] > 0) * sums["cycles"]
    sums["seconds"] = frame["seconds"].sum(min_count=1)
    return sums


def _answers(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the counts of each choice of each record."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise TapsError(path, f"cannot be read ({error.strerror})", expected="an answer file") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            for choice in record["choices"]:
                yield {"question": str(record["question_id"]), **_count(choice)}
        except KeyError as error:
            raise TapsError(f"{path}:{number}", f"lacks the field {error}") from None
        except (ValueError, TypeError) as error:
            raise TapsError(f"{path}:{number}", f"malformed record ({error})") from None


def _count(choice: dict[str, Any]) -> dict[str, Any]:
    """Returns the counts of one choice: all its turns.

    Raises:
        KeyError, TypeError, ValueError: a field is missing or not what it should be.
    """
    last_cycles, new_tokens = (_numbers(choice[name], name, whole=True) for name in ("idxs", "new_tokens"))
    seconds = _numbers(choice.get("wall_time") or [], "wall_time")
    if not last_cycles or len(last_cycles) != len(new_tokens):
        raise ValueError(f"idxs has {len(last_cycles)} turns, new_tokens {len(new_tokens)}")
    if seconds and len(seconds) != len(new_tokens):
        raise ValueError(f"wall_time has {len(seconds)} turns, new_tokens {len(new_tokens)}")
    lengths = _numbers(_flat(choice.get("accept_length") or []), "accept_length")
    return {
        "tokens": sum(new_tokens),
        "cycles": sum(last_cycles) + len(last_cycles),
        "answers": len(last_cycles),
        "lengths": sum(lengths),
        "num_lengths": len(lengths),
        "seconds": sum(seconds) if seconds else math.nan,
    }


def _numbers(values: Any, name: str, *, whole: bool = False) -> list[Any]:
    def is_number(x: Any) -> bool:
        return isinstance(x, int if whole else int | float) and not isinstance(x, bool) and x >= 0

    if not isinstance(values, list) or not all(map(is_number, values)):
        raise ValueError(f"{name} is not a list of {'whole ' if whole else ''}numbers from 0 on")
    return values


def _flat(values: Any) -> Any:
    if isinstance(values, list) and any(isinstance(part, list) for part in values):
        return [number for part in values for number in (part if isinstance(part, list) else [part])]
    return values


if __name__ == "__main__":
    run(main)
