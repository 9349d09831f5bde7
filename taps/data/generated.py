"""Problems with worked solutions from reasoning-gym's generators: as many as wanted, from a seed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator
from itertools import count, islice
from typing import Any

from taps.data.json_stream import Record
from taps.plumbing.errors import TapsError

TEMPLATES_OF = "gsm_symbolic"
"""The task whose problems are made from numbered templates, each of them written after one GSM8K test question."""


def stream_generated(task: str, *, rows: int, seed: int, templates: Collection[int] | None = None) -> Iterator[Record]:
    """Yields {"id", "question", "answer", "output"} records; more rows extend fewer.

    `output` is the worked solution, None where the generator writes none; `answer` is the bare result.
    reasoning-gym seeds item i with seed + i, so seeds that lie close together share most items: ours are spread out
    first, and a benchmark generated with another seed than a corpus is disjoint from it.

    Args:
        task: Name of a task of reasoning-gym.
        rows: How many problems are wanted.
        seed: Decides the problems, whatever `rows` is.
        templates: Those that problems may be made from; all by default.

    Raises:
        TapsError: reasoning-gym has no such task, or the task no such templates.
    """
    from reasoning_gym.factory import DATASETS

    if task not in DATASETS:
        similar = sorted(name for name in DATASETS if name[:3] == task[:3])
        raise TapsError(
            f"--task {task}", "not a task of reasoning-gym", expected=f"e.g. {similar or sorted(DATASETS)[:5]}"
        )
    for index, item in islice(_items(task, rows=rows, seed=seed, templates=templates), rows):
        record = {"id": f"{task}-{seed}-{index}", "question": item["question"], "answer": str(item["answer"])}
        yield Record(index=index, value={**record, "output": item["metadata"].get("answer_cot")})


def _items(
    task: str, *, rows: int, seed: int, templates: Collection[int] | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (number, problem); with chosen templates, as many as wanted of an endless sequence."""
    import reasoning_gym

    spread = int.from_bytes(hashlib.sha256(f"{task}:{seed}".encode()).digest()[:6], "big")
    if templates is None:
        yield from enumerate(reasoning_gym.create_dataset(task, size=rows, seed=spread))
        return
    _check_templates(task, templates)
    start = 0
    for size in (1000 * 4**power for power in count()):  # a longer sequence begins like a shorter one
        problems = reasoning_gym.create_dataset(task, size=size, seed=spread)
        for index in range(start, size):
            if problems.task_indices[index] in templates:
                yield index, problems[index]
        start = size


def _check_templates(task: str, templates: Collection[int]) -> None:
    if task != TEMPLATES_OF:
        raise TapsError(f"--templates with --task {task}", "has no templates", expected=f"--task {TEMPLATES_OF}")
    if not set(templates) & known_templates():
        known = ", ".join(map(str, sorted(known_templates())))
        raise TapsError("--templates", "none that works", expected=f"some of {known}", found=sorted(templates))


def known_templates() -> frozenset[int]:
    """Returns the numbers of gsm_symbolic's templates."""
    from reasoning_gym.arithmetic.gsm_symbolic.gsm_symbolic import tasks_ok

    return frozenset(tasks_ok)


def parse_templates(text: str) -> frozenset[int]:
    """Returns the numbers that `0-49,60` names.

    Raises:
        TapsError: not numbers and ranges.
    """
    if not re.fullmatch(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*", text):
        raise TapsError(f"--templates {text}", "not numbers and ranges", expected="e.g. 0-49,60")
    bounds = [[int(number) for number in item.split("-")] for item in text.split(",")]
    return frozenset(number for ends in bounds for number in range(ends[0], ends[-1] + 1))
