"""What an answer has shown before its next cycle: the only memory a strategy has, in replay and in live decoding.

Shape letters: P answers (rows), K drafters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

MERGED = -1  # "drafter" of a tree that belongs to no single one


@dataclass(frozen=True, kw_only=True)
class Hindsight:
    """What only a finished recording can tell, per row and drafter.

    Attributes:
        num_accepted: int [P, K] tokens that each drafter's tree would have accepted in this very cycle.
        confidence: float [P, K] mean confidence of each drafter over its own cycles of this question.
        tau: float [P, K] acceptance length of each drafter alone over the benchmark.
    """

    num_accepted: np.ndarray
    confidence: np.ndarray
    tau: np.ndarray

    def rows(self, index: np.ndarray) -> Hindsight:
        """Returns the rows `index`."""
        return Hindsight(num_accepted=self.num_accepted[index], confidence=self.confidence[index], tau=self.tau[index])


@dataclass(frozen=True, kw_only=True)
class History:
    """What an answer has shown before the coming cycle, one row per answer.

    Attributes:
        sequences: int64 [P] index of the answer among the prompts (seeds `random`).
        num_cycles: int64 [P] cycles done, 0 at the start.
        num_accepted: float64 [P, K] decayed sum of the tokens that each drafter's trees would have accepted, verified
            or not, as far as the emitted tokens show.
        choice: int64 [P] drafter of the first cycle, MERGED if none or not yet.
        hindsight: What only a replay can know; None live.
        prompt_features: float32 [P, h] the target's feature of the prompt's last token, for strategies that read it.
    """

    sequences: np.ndarray
    num_cycles: np.ndarray
    num_accepted: np.ndarray
    choice: np.ndarray
    hindsight: Hindsight | None = None
    prompt_features: np.ndarray | None = None

    @staticmethod
    def start(
        sequences: np.ndarray,
        num_drafters: int,
        hindsight: Hindsight | None = None,
        prompt_features: np.ndarray | None = None,
    ) -> History:
        """Returns the history of answers that have only just begun."""
        return History(
            sequences=np.asarray(sequences, dtype=np.int64),
            num_cycles=np.zeros(len(sequences), dtype=np.int64),
            num_accepted=np.zeros((len(sequences), num_drafters)),
            choice=np.full(len(sequences), MERGED, dtype=np.int64),
            hindsight=hindsight,
            prompt_features=prompt_features,
        )

    def updated(
        self, *, num_accepted: np.ndarray, num_emitted: np.ndarray, chosen: np.ndarray, decay: float
    ) -> History:
        """Returns the history after one more cycle.

        Args:
            num_accepted: int [P, K] longest path of each drafter's tree that agrees with the text. Only emitted tokens
                are known by now, so lengths beyond `num_emitted` are cut to it, in replay as in live decoding.
            num_emitted: int [P] tokens this cycle emitted.
            chosen: int [P] `Proposal.chosen` of the cycle.
            decay: `Options.decay`.
        """
        known = np.minimum(num_accepted, num_emitted[:, None])
        return replace(
            self,
            num_cycles=self.num_cycles + 1,
            num_accepted=decay * self.num_accepted + known,
            choice=np.where(self.num_cycles == 0, chosen, self.choice),
        )

    def rows(self, index: np.ndarray) -> History:
        """Returns the rows `index`."""
        return History(
            sequences=self.sequences[index],
            num_cycles=self.num_cycles[index],
            num_accepted=self.num_accepted[index],
            choice=self.choice[index],
            hindsight=self.hindsight and self.hindsight.rows(index),
            prompt_features=None if self.prompt_features is None else self.prompt_features[index],
        )
