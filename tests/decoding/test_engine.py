"""Tests of live decoding: the text is the target's whatever is drafted; lengths are right at every edge."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.decoding.engine import Decoding, decode
from taps.decoding.live_checking import take_turns
from taps.decoding.live_drafter import LiveDrafter
from taps.decoding.plain import PlainDecoding
from taps.decoding.strategy import Options, find
from taps.decoding.timing import Clock
from taps.decoding.trees import Trees
from taps.decoding.verification import NodeLogits, TargetText, one_tree
from taps.model.sampler import continue_batch
from taps.model.sampling import Draws, Sampling
from taps.plumbing.errors import TapsError
from tests.support.live_fixtures import (
    DEPTH,
    FAMILIES,
    LIVE_STRATEGIES,
    OPTIONS,
    StubDrafter,
    chain,
    draft_model,
    drafters_of,
    greedy,
    head_of,
    run,
    tiny_target,
    tree_of_paths,
)
from tests.support.random_trees import random_trees

PROMPTS = [[1, 2, 3], [7], [4, 4, 9, 0, 2, 11, 5, 8]]
NO_NODES = tree_of_paths([], 4)


@pytest.fixture(scope="module")
def target():
    return tiny_target()


@pytest.fixture(scope="module")
def answer(target):
    """The first prompt and what the target says to it."""
    return PROMPTS[0] + greedy(target, PROMPTS[0], 40)


# --- lossless --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LIVE_STRATEGIES)
def test_every_strategy_gives_the_greedy_text(target, name):
    drafters, accepted = drafters_of(target), 0
    for prompt in PROMPTS:
        decoded = run(target, drafters, prompt, name)
        assert decoded.tokens.tolist() == greedy(target, prompt, 24)
        assert sum(cycle.emitted for cycle in decoded.cycles) == len(decoded.tokens) - 1
        assert 1 <= decoded.tau <= DEPTH + 2
        accepted += sum(cycle.accepted for cycle in decoded.cycles)
    assert accepted > 0  # else nothing was at stake


@pytest.mark.parametrize("family", [*FAMILIES, "GPT2Config"])
def test_any_model_with_full_attention_is_a_target(family):
    target = tiny_target(family, seed=3)
    for prompt in PROMPTS:
        text = prompt + greedy(target, prompt, 40)
        often_right = StubDrafter(partial(_often_right, text))
        decoded = run(target, [often_right], prompt, "single")
        assert decoded.tokens.tolist() == text[len(prompt) :][:24]
        assert decoded.tau > 1.5


def _often_right(text: list[int], root: int, num_nodes: int) -> Trees:
    """Returns a wrong chain and a chain that is right, at every third root only its first token."""
    future = text[root + 1 :]
    good = future[:3] if root % 3 else [*future[:1], (future[1] + 1) % 12]
    wrong = [(future[0] + 1) % 12, *future[:1]]
    paths = [tuple(wrong[:1]), tuple(good[:1]), tuple(wrong), *(tuple(good[: n + 1]) for n in range(1, len(good)))]
    return tree_of_paths(paths, num_nodes)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from(LIVE_STRATEGIES), prompt=st.sampled_from(PROMPTS))
def test_greedy_text_for_any_draft(target, seed, name, prompt):
    rng = np.random.default_rng(seed)
    drafters = [StubDrafter(lambda _, n: random_trees(rng, 1, n, vocab=12, depth=4)) for _ in range(2)]
    assert run(target, drafters, prompt, name, max_new_tokens=9).tokens.tolist() == greedy(target, prompt, 9)


def test_a_drafter_that_is_always_or_never_right(target, answer):
    always = StubDrafter(lambda root, n: chain(answer[root + 1 : root + 4], n))
    never = StubDrafter(lambda root, n: chain([(answer[root + 1] + 1) % 12], n))
    nothing = StubDrafter(lambda root, n: NO_NODES)
    right = run(target, [always], PROMPTS[0], "single", max_new_tokens=25)
    assert [cycle.emitted for cycle in right.cycles] == [4] * 6
    assert right.tau == 4
    for drafter in (never, nothing):
        wrong = run(target, [drafter], PROMPTS[0], "single", max_new_tokens=25)
        assert wrong.tokens.tolist() == right.tokens.tolist() == answer[3:28]
        assert wrong.tau == 1
        assert {cycle.accepted for cycle in wrong.cycles} == {0}


@pytest.mark.parametrize("name", ["single", "merged_concat", "merged_adaptive", "routed_history", "random"])
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0),
        Sampling(temperature=0.7),
        Sampling(temperature=1.0, top_p=0.8),
        Sampling(temperature=1.3, top_k=3),
    ],
    ids=str,
)
def test_sampled_text_is_that_of_plain_decoding(target, name, sampling):
    draws = [Draws(0, str(index), 0) for index in range(len(PROMPTS))]
    plain = continue_batch(target, PROMPTS, sampling=sampling, draws=draws, max_new_tokens=24)
    for prompt, own, expected in zip(PROMPTS, draws, plain, strict=True):
        decoded = run(target, drafters_of(target), prompt, name, sampling=sampling, draws=own)
        assert decoded.tokens.tolist() == expected.tokens.tolist()


# --- edges -----------------------------------------------------------------------------------------------------------


def test_end_token_inside_an_accepted_path(answer):
    end = answer[3 + 6]  # generated token 6
    first = answer[3:].index(end)
    target = tiny_target(eos_ids=[end])
    drafter = StubDrafter(lambda root, n: chain(answer[root + 1 : root + 5], n))
    decoded = run(target, [drafter], PROMPTS[0], "single")
    assert decoded.tokens.tolist() == answer[3 : 3 + first + 1] == greedy(target, PROMPTS[0], 24)
    assert decoded.finish == "eos"
    assert decoded.cycles[-1].accepted >= 1
    assert decoded.cycles[-1].emitted == min(decoded.cycles[-1].accepted + 1, first - decoded.cycles[-1].start)


def test_other_stop_tokens(target, answer):
    drafter = StubDrafter(lambda root, n: chain(answer[root + 1 : root + 4], n))
    stop = answer[3 + 4]
    decoded = run(target, [drafter], PROMPTS[0], "single", stop_ids=[stop])
    assert decoded.tokens.tolist() == answer[3 : 3 + answer[3:].index(stop) + 1]


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 5, 6])
def test_limit_inside_an_accepted_path(target, answer, limit):
    drafter = StubDrafter(lambda root, n: chain(answer[root + 1 : root + 4], n))
    decoded = run(target, [drafter], PROMPTS[0], "single", max_new_tokens=limit)
    assert decoded.tokens.tolist() == answer[3 : 3 + limit]
    assert decoded.finish == "length"
    if limit < 2:
        assert decoded.cycles == []
        assert np.isnan(decoded.tau)
    for cycle in decoded.cycles:
        remaining = limit - 1 - cycle.start
        assert cycle.emitted == min(cycle.accepted + 1, remaining)
        assert cycle.accepted == min(3, remaining)
        assert cycle.num_nodes <= remaining  # a chain: deeper nodes could not be emitted


@pytest.mark.parametrize("family", ["LlamaConfig", "GPT2Config"])  # learned positions would overflow
@pytest.mark.parametrize("room", [0, 1, 2, 3, 7])
def test_the_context_is_a_limit(family, room):
    target = tiny_target(family, positions=40)
    prompt = [(7 * i) % 12 for i in range(40 - room)]
    drafters = [
        StubDrafter(lambda root, n: random_trees(np.random.default_rng(root), 1, n, vocab=12, depth=6))
        for _ in range(2)
    ]
    for name in ("single", "merged_dedup"):
        decoded = run(target, drafters, prompt, name)
        assert len(decoded.tokens) == room
        assert decoded.finish == "context"
        if room:
            plain = continue_batch(target, [prompt], sampling=Sampling(), draws=None, max_new_tokens=24)[0]
            assert decoded.tokens.tolist() == plain.tokens.tolist()
            assert plain.finish == "context"


def test_a_long_context_filled_to_the_last_token():
    target = tiny_target(positions=2048)
    drafters = drafters_of(target)
    for room in (0, 5):
        prompt = np.random.default_rng(0).integers(0, 12, 2048 - room).tolist()
        decoded = run(target, drafters, prompt, "merged_adaptive", max_new_tokens=64)
        assert (len(decoded.tokens), decoded.finish) == (room, "context")


def test_refusals(target):
    drafters = drafters_of(target)
    with pytest.raises(TapsError, match="expected 1 to 128 tokens, found 129"):
        run(target, drafters, [1] * 129, "single")
    with pytest.raises(TapsError, match="found 0"):
        run(target, drafters, [], "single")
    with pytest.raises(TapsError, match="expected two or more drafters, found 1"):
        run(target, drafters[:1], [1], "merged_dedup")
    options = Options(num_draft_tokens=4)
    with pytest.raises(TapsError, match="expected one drafter, found 2"):
        decode(target, drafters, [1], strategy=find("single"), options=options, max_new_tokens=4)
    with pytest.raises(TapsError, match="replay only"):
        find("oracle", live=True)


# --- how it gets there -----------------------------------------------------------------------------------------------


def test_tokens_are_streamed_as_they_come(target):
    parts: list[list[int]] = []
    decoded = run(target, drafters_of(target), PROMPTS[0], "merged_dedup", on_tokens=parts.append)
    assert [token for part in parts for token in part] == decoded.tokens.tolist()
    assert [len(part) for part in parts] == [1, *(cycle.emitted for cycle in decoded.cycles)]


def test_only_the_drafters_that_are_needed_draft(target, answer):
    drafters = [StubDrafter(lambda root, n: chain(answer[root + 1 : root + 2], n)) for _ in range(2)]
    decoded = run(target, drafters, PROMPTS[0], "routed_confidence_turn")
    assert [drafter.num_drafts for drafter in drafters] == [len(decoded.cycles), 1]
    assert [cycle.num_drafted for cycle in decoded.cycles] == [2] + [1] * (len(decoded.cycles) - 1)


def test_the_same_drafters_serve_one_answer_after_another(target):
    drafters = drafters_of(target)
    fresh = [run(target, drafters_of(target), prompt, "merged_adaptive").cycles for prompt in PROMPTS]
    again = [run(target, drafters, prompt, "merged_adaptive").cycles for prompt in PROMPTS]
    assert [[(c.start, c.accepted) for c in cycles] for cycles in fresh] == [
        [(c.start, c.accepted) for c in cycles] for cycles in again
    ]


def test_kept_cache_is_that_of_one_pass(target):
    text, prompt = TargetText(target), PROMPTS[2]
    text.read(prompt)
    tree = one_tree(tree_of_paths([(3,), (5,), (3, 1), (5, 2), (5, 4), (5, 4, 6)]), max_depth=9)
    features = text.verify(7, tree)
    logits = NodeLogits(target, features, tree)
    text.keep([1, 4, 5])
    whole = TargetText(target)
    expected = whole.read([*prompt, 7, 5, 4, 6])
    torch.testing.assert_close(features[[0, 2, 5, 6]], expected[len(prompt) :], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(logits.at(1), target.logits(expected[len(prompt) + 1]), atol=1e-5, rtol=1e-5)
    assert text.length == whole.length
    for kept, fresh in zip(text.cache.layers, whole.cache.layers, strict=True):
        for name in ("keys", "values"):
            torch.testing.assert_close(getattr(kept, name), getattr(fresh, name), atol=1e-5, rtol=1e-5)


def test_a_followed_text_equals_one_pass(target, answer):
    """Whatever the sizes of the steps, keys and trees are those of one pass over the text."""
    head, tokens = head_of(target), torch.tensor(answer)
    with torch.inference_mode():
        features = TargetText(target).read(answer)
    stepwise = LiveDrafter(draft_model(target, 0), head, depth=DEPTH, top_k=3)
    at_once = LiveDrafter(draft_model(target, 0), head, depth=DEPTH, top_k=3)
    done = 0
    for size, looks in ((5, True), (1, True), (3, False), (2, True), (7, True)):
        stepwise.read(tokens[done + 1 : done + size + 1], features[done : done + size])
        done += size
        if not looks:
            continue
        at_once.begin()
        at_once.read(tokens[1 : done + 1], features[:done])
        stepped, fresh = stepwise.draft(12), at_once.draft(12)
        with torch.inference_mode():
            _, keys, values = at_once.model(head.embed(tokens[1 : done + 1]), features[:done], [done])
        torch.testing.assert_close(stepwise.keys, keys, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(stepwise.values, values, atol=1e-5, rtol=1e-5)
        np.testing.assert_array_equal(stepped.tokens, fresh.tokens)
        np.testing.assert_array_equal(stepped.parents, fresh.parents)
        np.testing.assert_allclose(stepped.scores, fresh.scores, atol=1e-5)


def test_time_is_accounted_for(target):
    seconds = run(target, drafters_of(target), PROMPTS[0], "merged_dedup").seconds
    assert min(seconds.prefill, seconds.drafting, seconds.target, seconds.outside) > 0
    both = seconds + seconds
    assert both.decoding == pytest.approx(2 * (seconds.drafting + seconds.target + seconds.outside))
    assert both.outside_share == pytest.approx(seconds.outside_share)


def test_answers_that_take_turns_are_those_of_answers_alone(target, monkeypatch):
    """Every answer has a text, caches and a clock of its own; drafters share the models."""
    names = ("single", "merged_dedup", "routed_confidence_step")
    drafters = {name: drafters_of(target, 1 if name == "single" else 2) for name in names}
    decodings = [
        Decoding(target, drafters[name], PROMPTS[0], strategy=find(name), options=OPTIONS, max_new_tokens=24)
        for name in names
    ]
    plain = PlainDecoding(target, PROMPTS[0], max_new_tokens=24)
    every: list[Decoding | PlainDecoding] = [plain, *decodings]
    gaps = []

    def step(decoding):
        counts = [len(other.tokens) for other in every if not other.is_complete()]
        gaps.append(max(counts) - min(counts))
        return steps[type(decoding)](decoding)

    steps = {kind: kind.step for kind in (Decoding, PlainDecoding)}
    for kind in steps:
        monkeypatch.setattr(kind, "step", step)
    take_turns(every)
    assert len(gaps) > 24
    assert max(gaps) <= DEPTH + 2  # never further apart than a cycle emits
    assert plain.result().tokens.tolist() == greedy(target, PROMPTS[0], 24)
    monkeypatch.undo()
    for name, decoding in zip(names, decodings, strict=True):
        alone = run(target, drafters[name], PROMPTS[0], name, options=OPTIONS)
        assert decoding.result().tokens.tolist() == alone.tokens.tolist()
        np.testing.assert_equal(list(map(asdict, decoding.result().cycles)), list(map(asdict, alone.cycles)))


def test_a_clock_stands_still_between_steps(monkeypatch):
    seconds = iter([0, 1, 3, 4, 100, 102, 103, 107])
    monkeypatch.setattr("taps.decoding.timing.now", lambda device: next(seconds))
    clock = Clock(torch.device("cpu"))
    for _ in range(2):
        with clock.running(), clock.phase("target"):
            pass
    assert (clock.seconds().target, clock.seconds().outside) == (2 + 1, 2 + 6)


def test_a_draft_models_reading_of_the_prompt_is_prefill(target, monkeypatch):
    """So that the time of a cycle does not depend on the prompt's length, measured as predicted."""
    drafter, elapsed = drafters_of(target, 1)[0], [0]
    extend = drafter._extend

    def take_a_second_per_token(tokens, features):
        elapsed[0] += len(tokens)
        extend(tokens, features)

    monkeypatch.setattr(drafter, "_extend", take_a_second_per_token)
    monkeypatch.setattr("taps.decoding.timing.now", lambda device: elapsed[0])
    decoded = run(target, [drafter], PROMPTS[2], "single")
    assert decoded.seconds.prefill == len(PROMPTS[2])
    assert decoded.seconds.drafting == sum(cycle.emitted for cycle in decoded.cycles[:-1]) > 0
    assert decoded.seconds.target == decoded.seconds.outside == 0
