"""Routing by the prompt: which drafter drafts is decided before any has drafted.

Shape letters: P trees (positions), K drafters, h hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taps.decoding.choice import one_hot, tree_of
from taps.decoding.history import History
from taps.decoding.strategy import Kind, Options, Proposal, strategy
from taps.decoding.trees import Trees


def prompt_logits(history: History, options: Options) -> np.ndarray:
    """Returns float64 [P, K]: what the router says of each drafter, larger for the better one."""
    assert history.prompt_features is not None, "walks and live decoding read them for strategies with `uses_prompt`"
    router = np.asarray(options.router, dtype=np.float64)
    return history.prompt_features.astype(np.float64) @ router[:, 1:].T + router[:, 0]


def _by_prompt(history: History, options: Options) -> np.ndarray:
    return one_hot(prompt_logits(history, options).argmax(axis=1), history)


@strategy(title="routed by prompt", kind=Kind.ROUTED, look=("#542788", "X"), uses_prompt=True, drafts=_by_prompt)
def routed_prompt(trees: Sequence[Trees], history: History, options: Options) -> Proposal:
    """Returns the tree of the drafter that the target's feature of the prompt's last token speaks for.

    One decision per turn, from what prefill has computed anyway; the other drafters never draft.
    """
    signals = prompt_logits(history, options)
    return tree_of(signals.argmax(axis=1), trees, signals)
