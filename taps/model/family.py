"""What a draft family is: what it reads of the target, its network, how that is trained, by which losses.

Light: torch comes with the methods.

A method of a study names its family; `FAMILIES` finds it. The families themselves are in `taps.model.families`, one
module each: a new one overrides what differs from EAGLE-2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from taps.model.hidden_states import FINAL
from taps.plumbing.catalogue import Catalogue

if TYPE_CHECKING:
    import torch

    from taps.model.drafter import DrafterConfig, DraftModel
    from taps.model.flops import TrainingCost
    from taps.model.losses import Losses, LossWeights


class Family:
    """A draft family; the methods here are EAGLE-2's.

    Attributes:
        name: As in the config.
        title: In print.
        features: Hidden states of the target that its network reads, side by side (`taps.model.hidden_states`); what is
            recorded, stored, and handed to its draft models follows from it.
        training: Flags of `taps.train` that differ from its defaults, by name.
        flavours: Servers that read its exported checkpoints, as in `taps.model.flavours`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    features: ClassVar[tuple[str, ...]] = (FINAL,)
    training: ClassVar[Mapping[str, Any]] = {}
    flavours: ClassVar[tuple[str, ...]] = ("eagle", "vllm", "sglang")

    def __init_subclass__(cls) -> None:
        FAMILIES.register(cls.name, cls(), module=cls.__module__)

    def new_model(self, config: DrafterConfig) -> DraftModel:
        """Returns an untrained draft model of this shape; its parameter names are those of its checkpoints."""
        from taps.model.drafter import DraftModel

        return DraftModel(config)

    def predictions(
        self,
        model: DraftModel,
        embeddings: torch.Tensor,
        features: torch.Tensor,
        lengths: Sequence[int],
        *,
        num_passes: int,
        attention: str,
    ) -> list[torch.Tensor]:
        """Returns the predicted final states [T, h] of each training pass; arguments as in `aligned_passes`.

        `features` are [T, h] for each hidden state that the family reads.
        """
        from taps.model.alignment import aligned_passes

        return aligned_passes(model, embeddings, features, lengths, num_passes=num_passes, attention=attention)

    def losses(
        self, predictions: torch.Tensor, features: torch.Tensor, head: torch.Tensor, weights: LossWeights
    ) -> Losses:
        """Returns the losses of S passes [S, M, h] against the target's final states [M, h]; see `draft_losses`."""
        from taps.model.losses import draft_losses

        return draft_losses(predictions, features, head, weights)

    def training_cost(self, config: DrafterConfig, *, head_columns: int, num_passes: int) -> TrainingCost:
        """Returns the floating point operations of training; see `taps.model.flops.training_cost`."""
        from taps.model.flops import training_cost

        return training_cost(config, head_columns=head_columns, num_passes=num_passes)


FAMILIES: Catalogue[Family] = Catalogue("taps.model.families", what="draft family")


def features_read_by(config: DrafterConfig) -> tuple[str, ...]:
    """Returns the hidden states of the target that a draft model of this config reads.

    Raises:
        TapsError: no such family.
    """
    return FAMILIES.find(config.family).features


def new_drafter(config: DrafterConfig) -> DraftModel:
    """Returns an untrained draft model: the network of the family that its config names.

    Raises:
        TapsError: no such family.
    """
    return FAMILIES.find(config.family).new_model(config)
