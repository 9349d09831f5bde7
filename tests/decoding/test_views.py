"""Views of a bank's trees against trees drafted anew with the smaller shape, node for node."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.decoding.drafting import DraftOptions, draft_trees
from taps.decoding.merging import merge
from taps.decoding.trees import Trees, depths
from taps.decoding.views import Shape, is_exact, keep_first, view
from taps.model.target_head import TargetHead
from tests.support.draft_models import tiny_drafter
from tests.support.random_trees import paths, random_trees, seeds

BANK = DraftOptions(depth=3, top_k=4, num_nodes=24)
SHAPES = [Shape(depth=depth, num_nodes=nodes) for depth in range(4) for nodes in (1, 2, 4, 7, 12, 24, 60)]


class Drafted:
    """Drafts along one random text. With `ties`, tokens come in pairs that no logit tells apart."""

    def __init__(self, seed: int, *, ties: bool) -> None:
        model, head = tiny_drafter(seed)
        self.model = model.double()  # so that the number of rows in a product cannot swap two nodes
        embedding = head.embedding.double()
        if ties:
            embedding[1::2] = embedding[::2]
        self.head = TargetHead(embedding=embedding, head=embedding[:256] * 0.6, token_ids=None, config={})
        rng = torch.Generator().manual_seed(seed)
        tokens = torch.randint(300, (20,), generator=rng)
        features = torch.randn(20, 32, generator=rng, dtype=torch.float64)
        with torch.inference_mode():
            self.hidden, self.keys, self.values = self.model(self.head.embed(tokens[1:]), features[:-1], [19])

    def __call__(self, options: DraftOptions) -> Trees:
        seen = torch.arange(5, 20)
        return draft_trees(
            self.model,
            self.head,
            keys=self.keys,
            values=self.values,
            hidden=self.hidden[seen - 1],
            num_seen=seen,
            options=options,
        )


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_an_exact_view_is_the_tree_drafted_anew(seed: int, ties: bool) -> None:
    drafted = Drafted(seed, ties=ties)
    bank = drafted(BANK)
    num_exact = 0
    for shape in SHAPES:
        fresh = drafted(DraftOptions(depth=shape.depth, top_k=BANK.top_k, num_nodes=shape.num_nodes))
        seen = view(bank, shape.depth + 1, shape.num_nodes)
        exact = is_exact(bank, shape, top_k=BANK.top_k, bank_depth=BANK.depth)
        for name in ("tokens", "parents", "scores", "entropies"):
            mine, theirs = getattr(seen, name)[exact], getattr(fresh, name)[exact]
            if name == "entropies":  # of padding: whatever the candidate had
                mine, theirs = mine * seen.exists()[exact], theirs * fresh.exists()[exact]
            np.testing.assert_allclose(mine, theirs, atol=1e-6, err_msg=f"{shape} {name}")
        held = (bank.exists() & (depths(bank.parents) <= shape.depth + 1)).sum(axis=1)
        wanted = fresh.exists().sum(axis=1)
        assert not exact[held < np.minimum(wanted, shape.num_nodes)].any()  # never said of a tree that lacks nodes
        num_exact += exact.sum()
    assert num_exact > len(SHAPES) * len(bank) / 3


@pytest.mark.parametrize("ties", [False, True])
def test_merged_views_are_merged_trees(ties: bool) -> None:
    first, second = Drafted(1, ties=ties), Drafted(2, ties=ties)
    banks = first(BANK), second(BANK)
    shape = Shape(depth=1, num_nodes=4)
    options = DraftOptions(depth=1, top_k=BANK.top_k, num_nodes=4)
    exact = np.logical_and(*(is_exact(bank, shape, top_k=BANK.top_k, bank_depth=BANK.depth) for bank in banks))
    assert exact.any()
    seen = merge([view(bank, 2, 4).rows(exact) for bank in banks], [0.5, 0.5])
    fresh = merge([first(options).rows(exact), second(options).rows(exact)], [0.5, 0.5])
    for row in range(len(seen)):
        assert paths(seen, row) == paths(fresh, row)
    np.testing.assert_allclose(seen.scores, fresh.scores, atol=1e-6)


def test_chains_need_banks_of_their_own() -> None:
    """A chain of top-k 1 is not a view of a bank of top-k 4: its options are refused by no view but drafted."""
    drafted = Drafted(0, ties=False)
    chain = drafted(DraftOptions(depth=3, top_k=1, num_nodes=4))
    assert (chain.parents == np.arange(-1, 3)).all()
    shorter = drafted(DraftOptions(depth=1, top_k=1, num_nodes=2))
    np.testing.assert_array_equal(view(chain, 2, 2).tokens, shorter.tokens)
    assert is_exact(chain, Shape(depth=1, num_nodes=2), top_k=1, bank_depth=3).all()


def test_a_deeper_shape_than_the_bank_s_is_never_exact() -> None:
    bank = Drafted(0, ties=False)(BANK)
    assert not is_exact(bank, Shape(depth=4, num_nodes=1), top_k=4, bank_depth=3).any()
    assert not is_exact(bank, Shape(depth=3, num_nodes=25), top_k=4, bank_depth=3).any()


@settings(deadline=None)
@given(seed=seeds, limit=st.integers(1, 4), size=st.integers(1, 9), first=st.integers(0, 9))
def test_a_view_is_what_is_shallow_enough(seed: int, limit: int, size: int, first: int) -> None:
    trees = random_trees(np.random.default_rng(seed), 3, 8)
    limits = np.array([limit, 1, 3])
    seen = view(trees, limits, size)
    assert seen.num_nodes == size
    short = keep_first(trees, np.array([first, 0, 8]))
    for row in range(3):
        assert paths(seen, row) == [path for path in paths(trees, row) if len(path) <= limits[row]][:size]
        assert paths(short, row) == paths(trees, row)[: (first, 0, 8)[row]]
