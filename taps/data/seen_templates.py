"""Which templates of generated problems a training corpus knows: the problem they were written after, or their own.

One problem of a template may look too different from another, or from the original, to be taken for its twin: tea for
milk, a bakery for a shop. Of eighty of them one is like enough: so 81 of the 85 templates find the GSM8K question that
they were written after, the other four find none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from taps.data.generated import TEMPLATES_OF, known_templates, stream_generated
from taps.data.overlap import find_twins

PROBES = 80
_SEED = 2**20  # of the probes: no study's own


def seen_templates(conversations: Iterable[Mapping[str, Any]], templates: Collection[int] | None = None) -> list[int]:
    """Returns the numbers of gsm_symbolic's templates of which a problem has a twin in training, ascending.

    Args:
        conversations: {"id", "turns"} of the training corpora.
        templates: To look at; all by default.
    """
    looked_at = sorted(known_templates() & set(known_templates() if templates is None else templates))
    probes = [
        {"id": f"{template}", "turns": [record.value["question"]]}
        for template in looked_at
        for record in stream_generated(TEMPLATES_OF, rows=PROBES, seed=_SEED, templates={template})
    ]
    (twins,) = find_twins([probes], conversations)
    return sorted({int(twin.prompt) for twin in twins})
