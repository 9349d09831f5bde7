"""Random draft trees and recorded text, and a slow walk in plain Python that the fast one is checked against."""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from taps.decoding.trees import PAD_TOKEN, ROOT, Trees
from taps.plumbing.artefacts import write_tensors
from taps.plumbing.provenance import digest_of

seeds = st.integers(0, 2**32 - 1)


def random_trees(rng: np.random.Generator, num_rows: int, num_nodes: int, *, vocab: int = 4, depth: int = 3) -> Trees:
    """Returns the best `num_nodes` paths of a random language model per row; some rows hold fewer nodes than asked."""
    rows = [_random_tree(rng, num_nodes, vocab, depth) for _ in range(num_rows)]
    dtypes = (np.int32, np.int16, np.float32, np.float32)
    arrays = [np.array([row[i] for row in rows], dtype).reshape(num_rows, num_nodes) for i, dtype in enumerate(dtypes)]
    return Trees(tokens=arrays[0], parents=arrays[1], scores=arrays[2], entropies=arrays[3])


def _random_tree(rng: np.random.Generator, num_nodes: int, vocab: int, depth: int) -> tuple[list[Any], ...]:
    columns: tuple[list[Any], ...] = ([], [], [], [])
    queue: list[tuple[Any, ...]] = []

    def expand(parent: int, score: np.float32, level: int) -> None:
        probs = rng.dirichlet(np.full(vocab, 0.5))
        if rng.random() < 0.1:
            probs = np.eye(vocab)[rng.integers(vocab)]  # a certain token: child and parent have equal scores
        entropy = -sum(p * np.log(p) for p in probs if p > 0)
        for token in np.flatnonzero(probs > 1e-6):
            child = np.float32(score + np.float32(min(np.log(probs[token]), 0)))
            heapq.heappush(queue, (-child, level, len(queue), int(token), parent, entropy))

    limit = num_nodes if rng.random() < 0.8 else int(rng.integers(0, num_nodes + 1))
    expand(ROOT, np.float32(0), 1)
    while queue and len(columns[0]) < limit:
        negative, level, _, token, parent, entropy = heapq.heappop(queue)
        for column, value in zip(columns, (token, parent, -negative, entropy), strict=True):
            column.append(value)
        if level < depth:
            expand(len(columns[0]) - 1, -negative, level + 1)
    missing = num_nodes - len(columns[0])
    pads = (PAD_TOKEN, ROOT, -np.inf, 0.0)
    return tuple([*column, *[pad] * missing] for column, pad in zip(columns, pads, strict=True))


def paths(trees: Trees, row: int) -> list[tuple[int, ...]]:
    """Returns the tokens on the path to every node of one tree, in order of nodes."""
    result: list[tuple[int, ...]] = []
    for token, parent in zip(trees.tokens[row].tolist(), trees.parents[row].tolist(), strict=True):
        if token != PAD_TOKEN:
            result.append((*(result[parent] if parent != ROOT else ()), token))
    return result


def longest(trees: Trees, row: int, future: list[int]) -> int:
    """Returns the length of the longest path of one tree that `future` starts with."""
    return max((len(path) for path in paths(trees, row) if tuple(future[: len(path)]) == path), default=0)


class Recorded:
    """Random answers of a few prompts, as a trace holds them, and random banks along them.

    Answers have 0, 1, 2 ... tokens, so that every edge of a text occurs.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        *,
        lengths: list[int],
        drafters: int = 2,
        num_nodes: int = 6,
        vocab: int = 3,
        depth: int = 3,
    ) -> None:
        self.depth = depth
        self.answers = [rng.integers(0, vocab, length).tolist() for length in lengths]
        prompts = [rng.integers(0, vocab, rng.integers(1, 4)).tolist() for _ in lengths]
        rows = [prompt + answer for prompt, answer in zip(prompts, self.answers, strict=True)]
        self.tokens = np.array([token for row in rows for token in row], dtype=np.int32)
        self.offsets = np.cumsum([0, *map(len, rows)])
        self.prompt_lengths = np.array([len(prompt) for prompt in prompts], dtype=np.int32)
        self.starts = np.cumsum([0, *(max(length - 1, 0) for length in lengths)])
        self.trees = [
            random_trees(rng, int(self.starts[-1]), num_nodes, vocab=vocab, depth=depth) for _ in range(drafters)
        ]

    def future(self, sequence: int, start: int) -> list[int]:
        """Returns the tokens behind root g_start."""
        return self.answers[sequence][start + 1 :]

    def write(self, folder: Path, names: tuple[str, ...], *, ids: list[str], turns: list[int], **facts: Any) -> Any:
        """Writes trace.safetensors and one <drafter>.safetensors per name; returns (trace, {name: bank})."""
        sampling = {"temperature": 0.0, "top_p": 1.0, "top_k": 0}
        meta = {"ids": ids, "turns": turns, "sampling": sampling, "seed": 0}
        trace = folder / "trace.safetensors"
        features = np.random.default_rng(len(self.tokens)).normal(size=(len(self.tokens), 4)).astype(np.float32)
        arrays = {"tokens": self.tokens, "offsets": self.offsets, "prompt_lengths": self.prompt_lengths}
        arrays["features"] = features
        write_tensors(trace, arrays, kind="trace", provenance={}, meta=meta)
        banks = {}
        for name, trees in zip(names, self.trees, strict=True):
            banks[name] = folder / f"{name}.safetensors"
            drafting = {"depth": self.depth - 1, "top_k": 3, "num_nodes": trees.num_nodes, "draft_vocab_size": None}
            write_tensors(
                banks[name],
                {**vars(trees), "offsets": self.starts},
                kind="bank",
                provenance={},
                meta={"drafter": name, "trace": digest_of(trace), **drafting, **facts},
            )
        return trace, banks
