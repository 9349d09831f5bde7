"""The law of what comes out at temperature > 0, by enumeration: it is the target's, and that of EAGLE's rule.

EAGLE's rule for deterministic trees, written here from the paper's description: at a node with the target's law p, its
children x are tried in order; x is accepted with probability p(x); if not, p(x) is set to zero and p renormalised. When
no child is left, the next token is drawn from what remains of p.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pytest
import torch

from taps.decoding.history import History
from taps.decoding.strategy import Options, find
from taps.decoding.trees import ROOT, Trees, path_to
from taps.decoding.verification import Tree, follow, one_tree
from taps.model.sampling import Draws, Sampling, next_tokens, target_probs
from tests.support.live_fixtures import StubDrafter, run, tiny_target, tree_of_paths
from tests.support.random_trees import random_trees

VOCAB = 5
# the two drafters agree on (0,) and (0, 1) and both go on from (0,) in their own way
FIRST = tree_of_paths([(0,), (1,), (0, 1), (0, 2), (1, 1), (0, 1, 3)])
SECOND = tree_of_paths([(3,), (0,), (3, 3), (0, 4), (0, 1), (0, 1, 2)])
TREES = {
    "single": [FIRST],
    "merged_concat": [FIRST, SECOND],
    "merged_dedup": [FIRST, SECOND],
    "merged_matched": [FIRST, SECOND],
    "merged_adaptive": [FIRST, SECOND],
    "routed_confidence_step": [FIRST, SECOND],
    "routed_entropy_step": [FIRST, SECOND],
}
SAMPLINGS = [
    Sampling(temperature=1.0),
    Sampling(temperature=0.7),
    Sampling(temperature=1.0, top_p=0.8),
    Sampling(temperature=0.7, top_p=0.6),
]
Law = dict[tuple[int, tuple[int, ...]], float]  # (number accepted, emitted tokens) -> probability


class UndecidedError(Exception):
    """Raised with the path at which one more token is to be drawn."""


@lru_cache
def logits_behind(path: tuple[int, ...]) -> torch.Tensor:
    """Returns float [5], the hand of a small invented target: it depends on the whole path."""
    return torch.from_numpy(np.random.default_rng([7, len(path), *path]).normal(0, 1.2, VOCAB))


def law_behind(path: tuple[int, ...], sampling: Sampling) -> np.ndarray:
    """Returns float [5], the target's law, warped in plain numpy."""
    probs = np.exp(logits_behind(path).numpy() / sampling.temperature)
    probs /= probs.sum()
    order = np.argsort(-probs)
    size = int(np.searchsorted(probs[order].cumsum(), sampling.top_p - 1e-12)) + 1  # smallest set that reaches top_p
    kept = np.where(np.isin(np.arange(VOCAB), order[:size]), probs, 0)
    return kept / kept.sum()


def noise_for(token: int) -> torch.Tensor:
    """Returns noise [1, 5] under which a token comes out, if it can at all."""
    return 100.0 * torch.nn.functional.one_hot(torch.tensor([token]), VOCAB).double()


def proposed(name: str) -> Tree:
    """Returns the tree that a strategy proposes of the drafters' trees."""
    trees = TREES[name]
    history = History.start(np.array([0]), len(trees))
    proposal = find(name)(trees, history, Options(num_draft_tokens=FIRST.num_nodes))
    return one_tree(proposal.trees, max_depth=9)


def paths_of(tree: Tree) -> list[tuple[int, ...]]:
    """Returns the tokens on the path to each node."""
    return [tuple(int(tree.tokens[n]) for n in path_to(tree.parents, node)) for node in range(len(tree.tokens))]


def engines_law(tree: Tree, sampling: Sampling) -> Law:
    """Returns the law of one cycle of `follow` and `next_tokens`, enumerating the noise they consume.

    Noise matters only through the token it makes the largest, and does so for each with the target's probability
    (tests/model/test_sampling.py): one that favours the token stands for all, weighted by that probability.
    """
    paths = paths_of(tree)
    law: defaultdict[tuple[int, tuple[int, ...]], float] = defaultdict(float)

    def explore(draws: list[int], weight: float) -> None:
        def say(node: int, step: int) -> int:
            path = paths[node] if node != ROOT else ()
            if step == len(draws):
                raise UndecidedError(path)
            return int(next_tokens(logits_behind(path)[None], sampling, noise_for(draws[step])))

        try:
            accepted, emitted = follow(tree, say, room=9, stop_ids=())
        except UndecidedError as undecided:
            probs = law_behind(undecided.args[0], sampling)
            for token in np.flatnonzero(probs).tolist():
                explore([*draws, token], weight * probs[token])
        else:
            law[len(accepted), tuple(emitted)] += weight

    explore([], 1.0)
    return dict(law)


def eagles_law(tree: Tree, sampling: Sampling) -> Law:
    """Returns the law of one cycle under accept, or zero and renormalise."""
    candidates = paths_of(tree)
    law: defaultdict[tuple[int, tuple[int, ...]], float] = defaultdict(float)

    def descend(path: tuple[int, ...], weight: float) -> None:
        left = law_behind(path, sampling).copy()
        for candidate in candidates:
            if len(candidate) != len(path) + 1 or candidate[:-1] != path:
                continue
            token = candidate[-1]
            if left[token] > 0:
                descend(candidate, weight * left[token])
                weight *= 1 - left[token]
                left[token] = 0
                left = left / left.sum() if left.sum() > 0 else left
        for token in np.flatnonzero(left).tolist():
            law[len(path), (*path, token)] += weight * left[token]

    descend((), 1.0)
    return dict(law)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("name", TREES)
def test_one_cycle_has_the_law_of_eagles_rule(name, sampling):
    tree = proposed(name)
    ours, eagles = engines_law(tree, sampling), eagles_law(tree, sampling)
    assert sum(ours.values()) == pytest.approx(1)
    assert {outcome for outcome, p in eagles.items() if p > 1e-12} == ours.keys()
    for outcome, probability in ours.items():
        assert probability == pytest.approx(eagles[outcome], abs=1e-12)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("name", TREES)
def test_emitted_tokens_have_the_targets_law(name, sampling):
    """The tokens of a cycle are as likely as in plain decoding: the product of the target's own probabilities."""
    for (num_accepted, tokens), probability in engines_law(proposed(name), sampling).items():
        plain = np.prod([law_behind(tokens[:n], sampling)[token] for n, token in enumerate(tokens)])
        assert probability == pytest.approx(plain, abs=1e-12)
        assert len(tokens) == num_accepted + 1


def test_duplicated_paths_are_one_path():
    """Behind (0, 1) each drafter has its own child: the published concatenation must find both."""
    concat, dedup = proposed("merged_concat"), proposed("merged_dedup")
    assert len(concat.tokens) == 12
    assert len(dedup.tokens) == 12 - 2  # (0,) and (0, 1)
    for sampling in SAMPLINGS:
        first, second = engines_law(concat, sampling), engines_law(dedup, sampling)
        assert first == pytest.approx(second)
    accepted = {tokens[:3] for num_accepted, tokens in engines_law(concat, SAMPLINGS[0]) if num_accepted == 3}
    assert accepted == {(0, 1, 3), (0, 1, 2)}


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_noise_picks_every_token_of_the_law_and_no_other(sampling):
    for path in [(), (0,), (0, 1), (3, 3)]:
        probs = law_behind(path, sampling)
        np.testing.assert_allclose(target_probs(logits_behind(path), sampling).numpy(), probs, atol=1e-12)
        for token in range(VOCAB):
            drawn = int(next_tokens(logits_behind(path)[None], sampling, noise_for(token)))
            assert drawn == token if probs[token] > 0 else probs[drawn] > 0


# --- the whole engine on a tiny target -------------------------------------------------------------------------------

PROMPT = [2, 0, 4]
LENGTH = 3


def _drafters() -> list[StubDrafter]:
    def make(salt: int) -> StubDrafter:
        return StubDrafter(
            lambda root, n: random_trees(np.random.default_rng([salt, root]), 1, n, vocab=VOCAB, depth=2)
        )

    return [make(0), make(1)]


class _Favouring:
    """Random numbers, as `Draws`, under which a text comes out."""

    def __init__(self, text: Sequence[int]) -> None:
        self.text = text

    def noise(self, position: int, vocab_size: int, device: torch.device | str = "cpu") -> torch.Tensor:
        return noise_for(self.text[position])


def _law_of_texts(target, sampling: Sampling) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """Returns all texts of LENGTH tokens and their probabilities."""
    texts = list(itertools.product(range(VOCAB), repeat=LENGTH))
    inputs = torch.tensor([[*PROMPT, *text] for text in texts])
    probs = target_probs(target.model(inputs).logits[:, len(PROMPT) - 1 : -1], sampling).numpy()
    picked = np.take_along_axis(probs, np.array(texts)[:, :, None], axis=2)[:, :, 0]
    return texts, picked.prod(axis=1)


@pytest.mark.parametrize("name", ["single", "merged_concat", "routed_confidence_step"])
@pytest.mark.parametrize("sampling", [Sampling(temperature=1.0), Sampling(temperature=0.7, top_p=0.9)], ids=str)
def test_every_text_comes_out_for_its_own_noise(name, sampling):
    """Over several cycles: each text of positive probability comes from the noise that favours its tokens."""
    target = tiny_target(vocab=VOCAB)
    texts, probs = _law_of_texts(target, sampling)
    assert probs.sum() == pytest.approx(1)
    num_accepted = 0
    for text, probability in zip(texts, probs, strict=True):
        if probability > 0:
            draws = _Favouring(text)
            decoded = run(target, _drafters(), PROMPT, name, sampling=sampling, draws=draws, max_new_tokens=LENGTH)
            assert tuple(decoded.tokens) == text
            num_accepted += sum(cycle.accepted for cycle in decoded.cycles)
    assert num_accepted > 0


def test_sampled_texts_have_the_targets_frequencies():
    """Chi-square over all texts of several cycles; a right engine would fail for one seed in a million."""
    target, sampling, num_samples = tiny_target(vocab=VOCAB), Sampling(temperature=1.0), 600
    texts, probs = _law_of_texts(target, sampling)
    drafters, counts = _drafters(), dict.fromkeys(texts, 0)
    for seed in range(num_samples):
        decoded = run(
            target,
            drafters,
            PROMPT,
            "merged_dedup",
            sampling=sampling,
            draws=Draws(seed, "prompt", 0),
            max_new_tokens=LENGTH,
        )
        counts[tuple(decoded.tokens.tolist())] += 1
    expected, observed = probs * num_samples, np.array([counts[text] for text in texts])
    common = expected >= 5  # the rare ones are pooled
    expected = np.append(expected[common], expected[~common].sum())
    observed = np.append(observed[common], observed[~common].sum())
    statistic = float(((observed - expected) ** 2 / expected).sum())
    freedom = len(expected) - 1
    assert freedom >= 10
    p_value = torch.special.gammaincc(torch.tensor(freedom / 2), torch.tensor(statistic / 2)).item()
    assert p_value > 1e-6


# --- one tree --------------------------------------------------------------------------------------------------------


def test_padding_and_depth_are_cut():
    trees = Trees(
        tokens=np.array([[4, -1, 2, 3, 1]], dtype=np.int32),
        parents=np.array([[ROOT, ROOT, 0, 2, 0]], dtype=np.int16),
        scores=np.array([[-1.0, -np.inf, -2.0, -3.0, -4.0]], dtype=np.float32),
        entropies=np.zeros((1, 5), dtype=np.float32),
    )
    tree = one_tree(trees, max_depth=2)
    assert tree.tokens.tolist() == [4, 2, 1]
    assert tree.parents.tolist() == [ROOT, 0, 0]
    assert tree.depths.tolist() == [1, 2, 2]
    assert len(one_tree(trees, max_depth=0).tokens) == 0


def test_following_stops_at_the_end_token_and_at_the_room_left():
    tree = one_tree(tree_of_paths([(1,), (1, 2), (1, 2, 3)]), max_depth=9)

    def say(node: int, step: int) -> int:
        return [1, 2, 3, 4][step]

    assert follow(tree, say, room=9, stop_ids=()) == ([0, 1, 2], [1, 2, 3, 4])
    assert follow(tree, say, room=9, stop_ids=(2,)) == ([0, 1], [1, 2])
    assert follow(tree, say, room=1, stop_ids=()) == ([0], [1])
