"""Replay files as one frame: how many cycles of which kind were replayed, under which method, benchmark and seed.

A replay file says itself what it holds: its parquet metadata carries the envelope of `taps.plumbing.artefacts` under
the key `taps`, whose `meta` names method, benchmark, temperature and seed. Folders and file names mean nothing here. A
missing benchmark, seed or strategy is simply absent from the frame (`missing` says which).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from taps.analysis.counted import WEIGHT, count_cycles, count_nodes
from taps.analysis.labels import AT_DEPTH
from taps.plumbing.errors import ArtefactError, TapsError
from taps.plumbing.hashes import sha256_of
from taps.plumbing.lineage import check_equal
from taps.plumbing.parquet import read_parquet_envelope
from taps.plumbing.remedies import rebuild_command

CONDITION = ["temperature", "method", "benchmark", "training_seed", "seed"]  # what one replay file was made under
ROW = ["strategy", "drafters", "num_draft_tokens"]  # what one replayed variant is
COUNTS = ["accepted", "emitted", "num_nodes", "num_drafted", "num_levels"]
CYCLE_COLUMNS = [*ROW, "tree_depth", "question", "cycle", *COUNTS, "chosen"]  # what the tables tell cycles apart by
NODE_COLUMNS = [*ROW[1:], "question", "kind"]
NODE_MEANS = ["entropy", "confidence", "conditional_confidence"]


@dataclass(frozen=True, kw_only=True)
class ReplayFile:
    """One replay file and what it says about itself.

    Attributes:
        path: The parquet file of cycles.
        temperature, method, benchmark, training_seed, seed: The condition.
        meta: All facts of the envelope.
        inputs: Name -> digest of what it was replayed from.
    """

    path: Path
    temperature: float
    method: str
    benchmark: str
    training_seed: int
    seed: int
    meta: dict[str, Any]
    inputs: dict[str, str]

    @property
    def nodes_path(self) -> Path:
        """The file of evaluated nodes beside the cycles; it may be absent."""
        return self.path.with_suffix(".nodes.parquet")

    @property
    def run(self) -> str:
        """Method and training seed as folders name them, e.g. `eagle2/seed0`."""
        return f"{self.method}/seed{self.training_seed}"

    @property
    def condition(self) -> dict[str, Any]:
        """Returns the values of CONDITION."""
        return {name: getattr(self, name) for name in CONDITION}


def find_replays(paths: Iterable[Path]) -> list[ReplayFile]:
    """Returns the replay files among `paths`, folders searched to any depth, sorted by condition.

    Raises:
        TapsError: a path is missing, nothing was found, or two files hold the same condition.
    """
    files: list[ReplayFile] = []
    for path in map(Path, paths):
        if not path.exists():
            raise TapsError(path, "missing", expected="a replay file or a folder of them")
        found = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        files += [_describe(file) for file in found if not file.name.endswith(".nodes.parquet")]
    if not files:
        raise TapsError(
            ", ".join(map(str, paths)), "no replay file (*.parquet) found", remedy="run the replay stage first"
        )
    files.sort(key=lambda file: tuple(file.condition.values()))
    for one, two in itertools.pairwise(files):
        if one.condition == two.condition:
            raise TapsError(two.path, f"holds the same condition as {one.path}", found=two.condition)
    return files


def load_cycles(files: Sequence[ReplayFile]) -> pd.DataFrame:
    """Returns the replayed cycles, like ones counted: CONDITION + CYCLE_COLUMNS + `weight`, names as categories.

    `cycle` is 1 for the first cycle of an answer and 2 for any later one. A row of trees of another depth than the
    banks' is a strategy of its own, e.g. `merged_matched_depth2`.
    """
    cycles = _joined([_counted(file) for file in files], [*CONDITION, *CYCLE_COLUMNS, WEIGHT])
    usual = max((int(file.meta["depth"]) for file in files), default=0)
    other = cycles["tree_depth"].ne(usual)
    if other.any():
        names = cycles["strategy"].astype(str)
        named = names.where(~other, names + AT_DEPTH + cycles["tree_depth"].astype(str))
        cycles = cycles.assign(strategy=named.astype("category"))
    return cycles


def load_nodes(files: Sequence[ReplayFile]) -> pd.DataFrame:
    """Returns the evaluated nodes, counted: CONDITION + NODE_COLUMNS + count + NODE_MEANS; absent files are skipped.

    Entropy (nats) and both confidences (of the path, of the node given its parent) are means over a row's `count`
    nodes; `taps.decoding.node_groups` defines the kinds.
    """
    held = [file for file in files if file.nodes_path.exists()]
    for file in held:
        made = read_parquet_envelope(file.nodes_path, kind="replay_nodes")["provenance"].get("inputs", {})
        for name in made.keys() | file.inputs.keys():
            check_equal(
                file.nodes_path, name, made.get(name), file.inputs.get(name), wanted_by=file.path, kind="replay_nodes"
            )
    tables = [_counted_nodes(file) for file in held]
    return _joined(tables, [*CONDITION, *NODE_COLUMNS, "count", *NODE_MEANS])


def sources(files: Sequence[ReplayFile]) -> pd.DataFrame:
    """Returns one row per replay file: its condition, path and sha256: what a table's cell is traced by."""
    rows = [{**file.condition, "file": str(file.path), "sha256": sha256_of(file.path)} for file in files]
    return pd.DataFrame(rows, columns=[*CONDITION, "file", "sha256"])


def missing(
    cycles: pd.DataFrame,
    *,
    expected: Sequence[tuple[float, str, str, int, int]] | None = None,
    files: Sequence[ReplayFile] = (),
) -> pd.DataFrame:
    """Returns the combinations that a complete study would hold and this one does not.

    A condition is missing if it is `expected` and not there. Without that, a condition (method, benchmark, temperature,
    seeds) is missing when its neighbours exist: every benchmark under every (method, temperature) that has any, with
    every training seed of the method and every seed that another cell of that temperature has. A row (strategy,
    drafters, budget) is missing from a condition when another benchmark of the same method, training seed and
    temperature has it. A replay file whose evaluated nodes are not beside it lacks those.

    Args:
        cycles: As `load_cycles` returns them.
        expected: Values of CONDITION that the study replays.
        files: Where the cycles come from.

    Returns columns: temperature, method, benchmark, training_seed and seed (-1: all), strategy, drafters ("" for all of
    them), what.
    """
    held = cycles[[*CONDITION, *ROW]].drop_duplicates()
    gaps = [*(_missing_conditions(held) if expected is None else _not_held(held, expected)), *_missing_rows(held)]
    gaps += [
        (*file.condition.values(), "", "", f"{file.nodes_path.name} is missing")
        for file in files
        if not file.nodes_path.exists()
    ]
    return pd.DataFrame(gaps, columns=[*CONDITION, *ROW[:2], "what"])


def _missing_conditions(held: pd.DataFrame) -> list[tuple[Any, ...]]:
    have = set(held[CONDITION].drop_duplicates().itertuples(index=False, name=None))
    gaps: list[tuple[Any, ...]] = []
    pairs = sorted(set(held[CONDITION[:2]].itertuples(index=False, name=None)))  # controls lack temperatures by design
    for (temperature, method), benchmark in itertools.product(pairs, sorted(set(held["benchmark"]))):
        trained = sorted(set(held.loc[held["method"] == method, "training_seed"]))
        seeds = list(itertools.product(trained, sorted(set(held.loc[held["temperature"] == temperature, "seed"]))))
        absent = [pair for pair in seeds if (temperature, method, benchmark, *pair) not in have]
        if len(absent) == len(seeds):
            gaps.append((temperature, method, benchmark, -1, -1, "", "", "benchmark not replayed"))
        else:
            gaps += [(temperature, method, benchmark, *pair, "", "", "seed not replayed") for pair in absent]
    return gaps


def _not_held(held: pd.DataFrame, expected: Sequence[tuple[float, str, str, int, int]]) -> list[tuple[Any, ...]]:
    have = set(held[CONDITION].drop_duplicates().itertuples(index=False, name=None))
    return [(*condition, "", "", "not replayed") for condition in expected if condition not in have]


def _missing_rows(held: pd.DataFrame) -> list[tuple[Any, ...]]:
    gaps: list[tuple[Any, ...]] = []
    kind = ["temperature", "method", "training_seed"]  # the sweep is done with one training seed
    for (temperature, method, training_seed), group in held.groupby(kind, observed=True):
        rows = set(group[ROW].itertuples(index=False, name=None))
        for (benchmark, seed), part in group.groupby(["benchmark", "seed"], observed=True):
            for strategy, drafters, budget in sorted(rows - set(part[ROW].itertuples(index=False, name=None))):
                what = f"not replayed at {budget} draft tokens"
                gaps.append((temperature, method, benchmark, training_seed, seed, strategy, drafters, what))
    return gaps


def _describe(path: Path) -> ReplayFile:
    envelope = read_parquet_envelope(path, kind="replay")
    meta = envelope["meta"]
    try:
        return ReplayFile(
            path=path,
            temperature=float(meta["temperature"]),
            method=str(meta["method"]),
            benchmark=str(meta["benchmark"]),
            training_seed=int(meta.get("training_seed", 0)),
            seed=int(meta["seed"]),
            meta=meta,
            inputs=envelope["provenance"].get("inputs", {}),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise ArtefactError(path, f"not a replay file ({error})", remedy=rebuild_command(path, "replay")) from None


def _counted(file: ReplayFile) -> pa.Table:
    table = _read(file.path, [*CYCLE_COLUMNS], "replay")
    return _with_condition(count_cycles(table, CYCLE_COLUMNS), file)


def _counted_nodes(file: ReplayFile) -> pa.Table:
    columns = [name for name in NODE_COLUMNS if name != "question"]
    nodes = _read(file.nodes_path, [*columns, "sequence", "count", *NODE_MEANS], "replay_nodes")
    questions = _read(file.path, ["sequence", "question"], "replay")
    return _with_condition(count_nodes(nodes, questions, NODE_COLUMNS, NODE_MEANS), file)


def _joined(tables: Sequence[pa.Table], columns: list[str]) -> pd.DataFrame:
    """Returns tables in one frame; strings as unordered categories, in the order in which they first appear."""
    if not tables:
        return pd.DataFrame(columns=columns)
    return pa.concat_tables(tables, promote_options="permissive").unify_dictionaries().to_pandas()


def _with_condition(table: pa.Table, file: ReplayFile) -> pa.Table:
    """Returns the table with the file's condition in front."""
    for name, value in reversed(file.condition.items()):
        table = table.add_column(0, name, pa.repeat(pa.scalar(value), table.num_rows))
    return _as_categories(table)


def _read(path: Path, columns: Sequence[str], kind: str) -> pa.Table:
    """Returns columns of a file; strings as dictionaries."""
    try:
        held = pq.read_schema(path).names
        if absent := [name for name in columns if name not in held]:
            raise ArtefactError(path, f"lacks the columns {', '.join(absent)}", remedy=rebuild_command(path, kind))
        return _as_categories(pq.read_table(path, columns=list(columns), page_checksum_verification=True))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ArtefactError(path, f"cannot be read ({error})", remedy=rebuild_command(path, kind)) from None


def _as_categories(table: pa.Table) -> pa.Table:
    """Returns the table with every column of strings as a dictionary with 32-bit codes, whatever the file chose."""
    for index, field in enumerate(table.schema):
        column = table.column(index)
        if pa.types.is_dictionary(field.type):
            column = column.cast(field.type.value_type)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = column.cast(pa.string()).dictionary_encode()
        table = table.set_column(index, field.name, column)
    return table
