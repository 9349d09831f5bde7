"""What a run could not make because jobs failed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

Job = TypeVar("Job")


def blocked(failed: Collection[Job], needs: Mapping[Job, Iterable[Job]]) -> set[Job]:
    """Returns the failed jobs and all that need one of them, however indirectly.

    Args:
        failed: Jobs.
        needs: Job -> the jobs whose outputs it reads, of all that are not done.
    """
    found, grown = set(failed), True
    while grown:
        more = {job for job, needed in needs.items() if job not in found and not found.isdisjoint(needed)}
        found |= more
        grown = bool(more)
    return found
