"""The batched tree builder against a naive one that re-runs the whole path of every node."""

import numpy as np
import pytest
import torch

from taps.decoding.drafting import DraftOptions, draft_trees
from taps.decoding.trees import ROOT, path_to
from taps.model.target_head import TargetHead
from taps.model.top_k import top_k_rows
from tests.support.draft_models import naive_output, tiny_drafter


@pytest.fixture(scope="module")
def drafter():
    return tiny_drafter()


@pytest.fixture(scope="module")
def sequence():
    torch.manual_seed(1)
    return torch.randint(0, 300, (12,)), torch.randn(12, 32)


def naive_tree(model, head, tokens, features, options):
    """Candidates as (path, score, entropy), expanded level by level with plain lists."""

    def children(path, score):
        log_probs = head.logits(naive_output(model, head, tokens, features, path)).log_softmax(-1)
        entropy = -(log_probs.exp() * log_probs).sum().item()
        top, columns = log_probs.topk(options.top_k)
        return [
            ((*path, head.token_ids[c].item()), score + s, entropy) for s, c in zip(top.tolist(), columns, strict=True)
        ]

    level = children((), 0.0)
    candidates = list(level)
    for _ in range(options.depth):
        beam = sorted(level, key=lambda node: -node[1])[: options.top_k]
        level = [child for path, score, _ in beam for child in children(path, score)]
        candidates += level
    return sorted(candidates, key=lambda node: -node[1])[: options.num_nodes]


@pytest.mark.parametrize("num_nodes", [5, 20, 39])
def test_equals_the_naive_construction(drafter, sequence, num_nodes):
    model, head = drafter
    tokens, features = sequence
    options = DraftOptions(depth=3, top_k=3, num_nodes=num_nodes)
    with torch.inference_mode():
        hidden, keys, values = model(head.embed(tokens[1:]), features[:-1], [len(tokens) - 1])
    roots = torch.tensor([4, 7, 11])  # index of the root token of each tree
    trees = draft_trees(
        model, head, keys=keys, values=values, hidden=hidden[roots - 1], num_seen=roots, options=options
    )
    for row, root in enumerate(roots.tolist()):
        with torch.inference_mode():
            expected = naive_tree(model, head, tokens[: root + 1], features, options)
        nodes = np.flatnonzero(trees.exists()[row])
        paths = [tuple(int(trees.tokens[row, m]) for m in path_to(trees.parents[row], int(n))) for n in nodes]
        assert paths == [path for path, _, _ in expected]
        np.testing.assert_allclose(trees.scores[row, nodes], [s for _, s, _ in expected], atol=1e-5)
        np.testing.assert_allclose(trees.entropies[row, nodes], [e for _, _, e in expected], atol=1e-4)


def test_every_prefix_is_a_tree_and_smaller_budgets_are_prefixes(drafter, sequence):
    model, head = drafter
    tokens, features = sequence
    with torch.inference_mode():
        hidden, keys, values = model(head.embed(tokens[1:]), features[:-1], [len(tokens) - 1])
    roots = torch.arange(1, 12)
    common = {"keys": keys, "values": values, "hidden": hidden[roots - 1], "num_seen": roots}
    large = draft_trees(model, head, **common, options=DraftOptions(depth=4, top_k=4, num_nodes=60))
    small = draft_trees(model, head, **common, options=DraftOptions(depth=4, top_k=4, num_nodes=17))
    assert (large.parents < np.arange(60)).all()
    np.testing.assert_array_equal(large.prefix(17).tokens, small.tokens)
    np.testing.assert_array_equal(large.prefix(17).parents, small.parents)


def test_a_vocabulary_smaller_than_top_k_is_padded(drafter, sequence):
    model, _ = drafter
    tokens, features = sequence
    embedding = torch.randn(300, 32)
    head = TargetHead(embedding=embedding, head=embedding[:3], token_ids=torch.arange(3), config={})
    with torch.inference_mode():
        hidden, keys, values = model(head.embed(tokens[1:]), features[:-1], [len(tokens) - 1])
    options = DraftOptions(depth=1, top_k=4, num_nodes=30)
    trees = draft_trees(
        model, head, keys=keys, values=values, hidden=hidden[-1:], num_seen=torch.tensor([11]), options=options
    )
    assert trees.num_nodes == 30
    assert trees.exists()[0].sum() == 3 + 3 * 3
    assert (trees.parents[~trees.exists()] == ROOT).all()
    assert np.isneginf(trees.scores[~trees.exists()]).all()


def test_blocked_top_k_equals_topk():
    scores = torch.randn(7, 2048)
    values, columns = top_k_rows(scores, 8)
    expected = scores.topk(8)
    torch.testing.assert_close(values, expected.values, rtol=0, atol=0)
    assert torch.equal(columns, expected.indices)
