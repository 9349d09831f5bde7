"""A draft family says which hidden states of the target it reads; stages record them, and nobody else sees them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from taps import features, train
from taps.model.drafter import DrafterConfig, DraftModel
from taps.model.family import FAMILIES, Family
from taps.model.feature_store import FeatureStore
from taps.model.hidden_states import FINAL, layer_of, recorded, select
from taps.plumbing.errors import TapsError
from taps.study.features import hidden_state_flags
from tests.support.families import finish, prepare
from tests.support.live_fixtures import tiny_target
from tests.support.training_fixtures import Study, make_study, weights

READS = ("0", "middle")
FLAGS = [word for name in READS for word in ("--hidden-state", name)]
TOKENS = torch.tensor([[5, 1, 9, 4, 4, 2]])


class TwoStates(DraftModel):
    """A draft model that reads two hidden states of the target at the text, and its own predictions below it."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__(config)
        self.narrow = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)

    def inputs(self, embeddings: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        of_target = features.shape[-1] == 2 * self.config.hidden_size
        return super().inputs(embeddings, self.narrow(features) if of_target else features)


@pytest.fixture
def layered() -> Iterator[Family]:
    """Returns a family, catalogued for one test, that does not read the final state."""

    class Layered(Family):
        name = "layered"
        title = "Layered"
        features = READS
        flavours = ()

        def new_model(self, config: DrafterConfig) -> DraftModel:
            return TwoStates(config)

    yield FAMILIES["layered"]
    FAMILIES.forget("layered")


def test_the_families_here_read_the_final_state() -> None:
    assert {family.features for family in FAMILIES.values()} == {(FINAL,)}


@pytest.mark.parametrize(("name", "layer"), [("0", 0), ("2", 2), ("-1", 5), ("-6", 0), ("middle", 3)])
def test_a_name_is_that_of_a_layer(name: str, layer: int) -> None:
    assert layer_of(name, 6) == layer


@pytest.mark.parametrize("name", ["6", "-7", "last", "1.5", ""])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(TapsError):
        layer_of(name, 6)


def test_the_final_state_is_recorded_first_and_each_once() -> None:
    assert recorded([(FINAL,), ("2", "middle"), ("middle", FINAL, "-3")]) == (FINAL, "2", "middle", "-3")
    assert recorded([]) == (FINAL,)


def test_features_hold_the_hidden_states_side_by_side() -> None:
    plain = tiny_target()
    wide = replace(plain, hidden_states=(FINAL, "1", "0"))
    with torch.no_grad():
        told = plain.model(input_ids=TOKENS, output_hidden_states=True)
        found = wide.features(TOKENS)
        assert found.shape[-1] == wide.width == 96
        assert torch.equal(wide.final(found), plain.features(TOKENS))
        assert torch.equal(select(found, wide.hidden_states, ("0", "1")), torch.cat(told.hidden_states[:2], dim=-1))
        assert torch.equal(wide.logits(found), plain.logits(plain.features(TOKENS)))
        cache = wide.new_cache()
        parts = [wide.features(TOKENS[:, :4], cache=cache), wide.features(TOKENS[:, 4:], cache=cache)]
        torch.testing.assert_close(torch.cat(parts, dim=1), found, atol=1e-5, rtol=1e-5)


def test_select_is_free_where_nothing_is_to_do_and_says_what_is_missing() -> None:
    found = torch.randn(3, 8)
    assert select(found, (FINAL, "1"), (FINAL, "1")) is found
    with pytest.raises(TapsError, match=r"lack hidden states .*: 2"):
        select(found, (FINAL, "1"), (FINAL, "2"))


def test_a_family_that_reads_other_states_goes_to_the_end(tmp_path: Path, layered: Family) -> None:
    assert prepare("llama", tmp_path) is None
    more: dict[str, list[object]] = {
        "features": [*FLAGS],
        "trace": [*FLAGS],
        "train": ["--family", "layered", "--alignment-passes", 1],
    }

    def call(stage: str, flags: Sequence[object]) -> None:
        importlib.import_module(f"taps.{stage}").main([str(flag) for flag in (*flags, *more.get(stage, []))])

    outcome = finish(tmp_path, call=call)
    assert outcome.what == "finished", outcome
    assert FeatureStore(tmp_path / "features").row(0).shape[-1] == 96
    assert "narrow.weight" in weights(tmp_path / "math")


def _wide(study: Study, folder: Path) -> Path:
    """Returns a folder of the study's features that holds more than the final state."""
    for corpus in ("math", "chat"):
        flags = ["--target", study.target, "--tokens", study.tokens(corpus), "--output", folder / corpus, *FLAGS]
        features.main([str(flag) for flag in flags])
    return folder


def test_what_other_families_read_changes_no_weight(tmp_path: Path, layered: Family) -> None:
    study = make_study(tmp_path / "study")
    train.main(study.flags(tmp_path / "narrow", "--epochs", 2))
    with pytest.raises(TapsError, match=r"lack hidden states .*: 0, middle"):
        train.main(study.flags(tmp_path / "refused", "--epochs", 2, "--family", "layered"))
    (study.folder / "features").rename(tmp_path / "old")
    _wide(study, study.folder / "features")
    train.main(study.flags(tmp_path / "wide", "--epochs", 2))
    narrow, wide = weights(tmp_path / "narrow"), weights(tmp_path / "wide")
    assert narrow.keys() == wide.keys()
    assert all(torch.equal(narrow[name], wide[name]) for name in narrow)
    train.main(study.flags(tmp_path / "stored", "--epochs", 1, "--family", "layered"))
    online = study.flags(tmp_path / "online", "--epochs", 1, "--family", "layered", online=("math", "chat"))
    train.main(online)
    for name, tensor in weights(tmp_path / "stored").items():  # features of other batches, in their last bits
        torch.testing.assert_close(tensor, weights(tmp_path / "online")[name], atol=1e-4, rtol=1e-3)


def test_a_study_records_what_its_families_read(layered: Family) -> None:
    methods = {"eagle2": {"family": None}, "mine": {"family": "layered"}}
    assert hidden_state_flags({"methods": methods}) == FLAGS
    assert hidden_state_flags({"methods": {"eagle2": {"family": None}}}) == []
