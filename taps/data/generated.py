"""Problems with worked solutions from reasoning-gym's generators: as many as wanted, from a seed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from taps.data.json_stream import Record
from taps.plumbing.errors import TapsError


def stream_generated(task: str, *, rows: int, seed: int) -> Iterator[Record]:
    """Yields {"id", "question", "answer", "output"} records; more rows extend fewer.

    `output` is the worked solution, None where the generator writes none; `answer` is the bare result.
    reasoning-gym seeds item i with seed + i, so seeds that lie close together share most items: ours are spread out
    first, and a benchmark generated with another seed than a corpus is disjoint from it.

    Raises:
        TapsError: reasoning-gym has no such task.
    """
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    if task not in DATASETS:
        similar = sorted(name for name in DATASETS if name[:3] == task[:3])
        raise TapsError(
            f"--task {task}", "not a task of reasoning-gym", expected=f"e.g. {similar or sorted(DATASETS)[:5]}"
        )
    spread = int.from_bytes(hashlib.sha256(f"{task}:{seed}".encode()).digest()[:6], "big")
    for index, item in enumerate(reasoning_gym.create_dataset(task, size=rows, seed=spread)):
        record = {"id": f"{task}-{seed}-{index}", "question": item["question"], "answer": str(item["answer"])}
        yield Record(index=index, value={**record, "output": item["metadata"].get("answer_cot")})
