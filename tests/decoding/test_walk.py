"""Tests of taps.decoding.walk: the fast walk against one in plain Python, edges of texts, bounds of strategies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.decoding.history import MERGED, History
from taps.decoding.strategy import STRATEGIES, Options, Proposal, Strategy, find
from taps.decoding.trees import Trees
from taps.decoding.walk import Bank, Cycles, Text, read_text, walk
from tests.support.random_trees import Recorded, longest, paths, random_trees, seeds

BUDGET = 3
OPTIONS = Options(
    num_draft_tokens=BUDGET,
    seed=5,
    inverse_temperatures=(0.8, 1.3),
    target_s=(1.0, 1.1, 1.2, 1.4),
    draft_s=(0.2, 0.3, 0.45),
    overhead_s=0.1,
    router=((0.2, 1.0, -1.0), (0.0, -0.5, 1.0)),
)
lengths = st.lists(st.integers(0, 9), min_size=1, max_size=4)
names = st.sampled_from(sorted(STRATEGIES))


def _load(recorded: Recorded) -> tuple[Text, list[Bank]]:
    text = read_text(recorded.tokens, recorded.offsets, recorded.prompt_lengths, recorded.depth)
    text = replace(text, prompt_features=_prompt_features(recorded))
    return text, [Bank.of(f"d{index}", trees, text) for index, trees in enumerate(recorded.trees)]


def _options(strategy: Strategy) -> Options:
    """Returns OPTIONS with as many temperatures as the strategy takes drafters."""
    return replace(OPTIONS, inverse_temperatures=OPTIONS.inverse_temperatures[: 1 if strategy.one_drafter else 2])


def _prompt_features(recorded: Recorded) -> np.ndarray:
    """Returns float32 [S, 2]: something that belongs to each prompt."""
    return np.random.default_rng(len(recorded.tokens)).normal(size=(len(recorded.answers), 2)).astype(np.float32)


def _plain_walk(strategy: Strategy, recorded: Recorded, options: Options) -> list[tuple[int, ...]]:
    """Walks one answer after the other, one cycle after the other, as live decoding does."""
    rows: list[tuple[int, ...]] = []
    for sequence, answer in enumerate(recorded.answers):
        features = _prompt_features(recorded)[sequence : sequence + 1]
        start, history = 0, History.start(np.array([sequence]), len(recorded.trees), prompt_features=features)
        while start < len(answer) - 1:
            future = recorded.future(sequence, start)
            position = int(recorded.starts[sequence]) + start
            trees = [trees.prefix(strategy.num_nodes(options)).rows(np.array([position])) for trees in recorded.trees]
            proposal = strategy(trees, history, options)
            accepted = longest(proposal.trees, 0, future)
            emitted = min(accepted + 1, len(future))
            rows.append((sequence, int(history.num_cycles[0]) + 1, start, accepted, emitted, int(proposal.chosen[0])))
            history = history.updated(
                num_accepted=np.array([[longest(batch, 0, future) for batch in trees]]),
                num_emitted=np.array([emitted]),
                chosen=proposal.chosen,
                decay=options.decay,
            )
            start += emitted
    return rows


def _rows(cycles: Cycles) -> list[tuple[int, ...]]:
    columns = (cycles.sequence, cycles.cycle, cycles.start, cycles.accepted, cycles.emitted, cycles.chosen)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@settings(deadline=None)
@given(seed=seeds, lengths=lengths, name=names.filter(lambda name: not STRATEGIES[name].needs_future))
def test_equals_a_plain_walk(seed: int, lengths: list[int], name: str) -> None:
    strategy = find(name)
    drafters = 1 if strategy.one_drafter else 2
    recorded = Recorded(np.random.default_rng(seed), lengths=lengths, drafters=drafters)
    text, banks = _load(recorded)
    assert _rows(walk(strategy, banks, text, _options(strategy))) == _plain_walk(strategy, recorded, _options(strategy))


@settings(deadline=None)
@given(seed=seeds, lengths=lengths, name=names)
def test_covers_the_text_within_bounds(seed: int, lengths: list[int], name: str) -> None:
    strategy = find(name)
    recorded = Recorded(np.random.default_rng(seed), lengths=lengths, drafters=1 if strategy.one_drafter else 2)
    text, banks = _load(recorded)
    cycles = walk(strategy, banks, text, _options(strategy))
    for sequence, length in enumerate(lengths):
        mine = cycles.sequence == sequence
        assert cycles.emitted[mine].sum() == max(length - 1, 0)
        assert cycles.cycle[mine].tolist() == list(range(1, mine.sum() + 1))
        np.testing.assert_array_equal(cycles.start[mine], np.cumsum(cycles.emitted[mine]) - cycles.emitted[mine])
    assert ((cycles.emitted == cycles.accepted + 1) | (cycles.emitted == cycles.accepted)).all()
    if len(cycles):
        assert (
            1 <= cycles.emitted.sum() / len(cycles) <= recorded.depth + 1
        )  # depth counts levels here: depth + 2 there
    assert (cycles.num_nodes <= strategy.num_nodes(OPTIONS) * len(banks)).all()
    if "matched" in name or "adaptive" in name or "costed" in name:
        assert (cycles.num_nodes <= BUDGET).all()


@settings(deadline=None)
@given(seed=seeds, length=st.integers(2, 8))
def test_bounds_hold_from_the_same_start(seed: int, length: int) -> None:
    """Every position on its own: what follows it starts a text of its own."""
    recorded = Recorded(np.random.default_rng(seed), lengths=[length])
    text, banks = _load(recorded)
    trees = [bank.trees.prefix(BUDGET) for bank in banks]
    lengths = np.stack([bank.accepted(BUDGET) for bank in banks], axis=1)
    first = {}
    routers = ("routed_confidence_step", "routed_entropy_step", "routed_history", "random")
    for name in ("merged_concat", "merged_dedup", "merged_matched", "oracle", *routers):
        for start in range(length - 1):
            tail = Text(
                offsets=np.array([0, length - 1 - start]), future=text.future[start:], remaining=text.remaining[start:]
            )
            tails = [Bank.of("", bank.trees.rows(slice(start, None)), tail) for bank in banks]
            first[name, start] = walk(find(name), tails, tail, OPTIONS).accepted[0]
    for start in range(length - 1):
        best = max(longest(batch, start, recorded.future(0, start)) for batch in trees)
        assert lengths[start].max() == best
        assert first["merged_dedup", start] == first["merged_concat", start] == first["oracle", start] == best
        assert max(first[name, start] for name in routers) <= best
        assert first["merged_matched", start] <= best


@settings(deadline=None)
@given(seed=seeds, lengths=lengths)
def test_concat_and_dedup_walk_alike(seed: int, lengths: list[int]) -> None:
    text, banks = _load(Recorded(np.random.default_rng(seed), lengths=lengths))
    concat, dedup = (walk(find(f"merged_{form}"), banks, text, OPTIONS) for form in ("concat", "dedup"))
    assert _rows(concat) == _rows(dedup)
    assert (dedup.num_nodes <= concat.num_nodes).all()
    assert (concat.chosen == MERGED).all()


def _tree(*nodes: tuple[int, int]) -> Trees:
    """Returns one tree of (token, parent) nodes."""
    tokens, parents = zip(*nodes, strict=True)
    return Trees(
        tokens=np.array([tokens], dtype=np.int32),
        parents=np.array([parents], dtype=np.int16),
        scores=-np.arange(1, len(nodes) + 1, dtype=np.float32)[None],
        entropies=np.ones((1, len(nodes)), dtype=np.float32),
    )


def _repeat(trees: Trees, count: int) -> Trees:
    return trees.rows(np.zeros(count, dtype=int))


def test_end_of_the_text_inside_an_accepted_path() -> None:
    """A drafter that always drafts 7 7 7: the walk of six 7s, the last of them the end-of-sequence token."""
    text = read_text(np.full(8, 7), np.array([0, 8]), np.array([2]), depth=3)
    assert text.remaining.tolist() == [5, 4, 3, 2, 1]
    bank = Bank.of("sevens", _repeat(_tree((7, -1), (7, 0), (7, 1)), 5), text)
    cycles = walk(find("single"), [bank], text, Options(num_draft_tokens=3))
    assert _rows(cycles) == [(0, 1, 0, 3, 4, 0), (0, 2, 4, 1, 1, 0)]
    shorter = walk(find("single"), [bank], text, Options(num_draft_tokens=1))
    assert shorter.emitted.tolist() == [2, 2, 1]


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_answers_without_a_position(name: str) -> None:
    recorded = Recorded(np.random.default_rng(0), lengths=[0, 1], drafters=1 if STRATEGIES[name].one_drafter else 2)
    text, banks = _load(recorded)
    assert len(walk(find(name), banks, text, _options(find(name)))) == 0


@pytest.mark.parametrize("name", sorted(STRATEGIES.keys() - {"best_single"}))  # that one is chosen over all answers
def test_answers_do_not_influence_each_other(name: str) -> None:
    strategy = find(name)
    recorded = Recorded(np.random.default_rng(3), lengths=[9, 7, 8], drafters=1 if strategy.one_drafter else 2)
    text, banks = _load(recorded)
    together = walk(strategy, banks, text, _options(strategy))
    end = int(text.offsets[1])
    alone = replace(text, offsets=text.offsets[:2], future=text.future[:end], remaining=text.remaining[:end])
    own = [Bank.of(bank.name, bank.trees.rows(slice(end)), alone) for bank in banks]
    first = walk(strategy, own, alone, _options(strategy))
    assert _rows(first) == [row for row in _rows(together) if row[0] == 0]


@settings(deadline=None, max_examples=20)
@given(seed=seeds)
@pytest.mark.parametrize("name", sorted(name for name, found in STRATEGIES.items() if not found.needs_future))
def test_a_position_is_decided_alone(name: str, seed: int) -> None:
    """Live decoding proposes for one position, replay for many at once."""
    strategy, count = find(name), 5
    options = replace(_options(strategy), num_draft_tokens=12, target_s=tuple(1 + 0.05 * nodes for nodes in range(13)))
    generator = np.random.default_rng(seed)
    batches = [random_trees(generator, count, 24) for _ in options.inverse_temperatures]
    batches = [batch.prefix(strategy.num_nodes(options)) for batch in batches]
    features = generator.normal(size=(count, 2)).astype(np.float32)

    def proposed(rows: np.ndarray) -> Proposal:
        history = History.start(rows, len(batches), prompt_features=features[rows])
        return strategy([batch.rows(rows) for batch in batches], history, options)

    together = proposed(np.arange(count))
    for row in range(count):
        alone = proposed(np.array([row]))
        assert paths(alone.trees, 0) == paths(together.trees, row)
        assert alone.chosen[0] == together.chosen[row]
        assert alone.score[0] == pytest.approx(together.score[row], nan_ok=True)
        if together.num_levels is not None:
            assert alone.num_levels is not None
            assert alone.num_levels[0] == together.num_levels[row]


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text, banks = _load(Recorded(np.random.default_rng(3), lengths=[9, 7, 8]))
    strategies = [find(name) for name in ("routed_confidence_step", "merged_matched", "oracle", "posthoc")]
    before = [_rows(walk(strategy, banks, text, OPTIONS)) for strategy in strategies]
    monkeypatch.setattr("taps.decoding.walk._BLOCK", 4)
    assert [_rows(walk(strategy, banks, text, OPTIONS)) for strategy in strategies] == before
