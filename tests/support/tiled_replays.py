"""Replays as large as the paper's study: what they need of memory, and what the tables need that are made of them.

    python -m tests.support.tiled_replays --cycles 18000000
    python -m tests.support.tiled_replays --positions 240000 --drafters 14

Random walks (`tests.support.replay_fixtures`) are copied as often as it takes, each copy with questions of its own;
files of nodes get the groups of unverified nodes that the fixture leaves out, two for each of its own. Prints the peak
memory and the time of `taps.tables` over them, run in a process of its own, and a digest of its tables.

The second is one condition of that study: random trees of 118 nodes at every position of a text, for each drafter.
Prints the same of `taps.replay` over them: every drafter alone, and pairs of them merged and routed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from taps.decoding.node_groups import NODE_KINDS
from taps.plumbing.artefacts import write_json, write_tensors
from taps.plumbing.parquet import categories, read_parquet_envelope, write_parquet
from taps.plumbing.provenance import digest_of
from tests.support.replay_fixtures import write_replays
from tests.support.report_fixtures import COST


def write_tiled(folder: Path, num_cycles: int) -> int:
    """Writes replay files below `folder` with at least so many cycles in all; returns how many there are."""
    with tempfile.TemporaryDirectory() as scratch:
        base = write_replays(Path(scratch), num_questions=6, num_tokens=256)
        files = sorted(base.rglob("*.parquet"))
        held = sum(pq.read_metadata(file).num_rows for file in files if not file.name.endswith(".nodes.parquet"))
        copies = -(-num_cycles // held)
        for file in files:
            tile(file, folder / file.relative_to(base), copies)
    return held * copies


def tile(source: Path, destination: Path, copies: int) -> None:
    """Writes a replay file, or one of nodes, `copies` times over, each with answers and questions of its own."""
    table = pq.read_table(source)
    envelope = read_parquet_envelope(source, kind=None)
    if envelope["kind"] == "replay_nodes":
        column = table.column_names.index("kind")
        rest = table.set_column(column, "kind", categories([2] * len(table), list(NODE_KINDS)))
        own = categories([NODE_KINDS.index(kind) for kind in table.column("kind").to_pylist()], list(NODE_KINDS))
        table = pa.concat_tables([table.set_column(column, "kind", own), rest, rest]).unify_dictionaries()
    sequence = table.column("sequence").to_numpy()
    num_sequences = int(sequence.max()) + 1
    columns = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if name == "sequence":
            columns[name] = pa.array(np.concatenate([sequence + copy * num_sequences for copy in range(copies)]))
        elif name == "question":
            names, codes = column.dictionary.to_pylist(), column.indices.to_numpy()
            everyone = [f"{copy:05d}_{question}" for copy in range(copies) for question in names]
            columns[name] = categories(
                np.concatenate([codes + copy * len(names) for copy in range(copies)]).astype(np.int32), everyone
            )
        else:
            columns[name] = pa.concat_arrays([column] * copies)
    meta, kind = envelope["meta"], envelope["kind"]
    write_parquet(destination, columns, kind=kind, provenance=envelope["provenance"], meta=meta)


def write_recording(folder: Path, *, num_positions: int, num_drafters: int) -> list[str]:
    """Writes a trace and a bank along it for each of so many drafters; returns the flags of `taps.replay`."""
    length, num_nodes, rng = 240, 118, np.random.default_rng(0)
    num_texts = max(num_positions // length, 1)
    tokens = rng.integers(6, size=num_texts * (length + 2), dtype=np.int32)
    offsets = np.arange(num_texts + 1, dtype=np.int64) * (length + 2)
    tensors = {"tokens": tokens, "offsets": offsets, "prompt_lengths": np.ones(num_texts, np.int32)}
    ids = [f"q{number:05d}" for number in range(num_texts)]
    facts = {"ids": ids, "turns": [0] * num_texts, "seed": 0, "sampling": {"temperature": 0.0}}
    write_tensors(folder / "trace.safetensors", tensors, kind="trace", provenance={}, meta=facts)
    parents = np.array([-1] * 4 + [node // 3 for node in range(num_nodes - 4)], dtype=np.int16)
    flags = ["--trace", str(folder / "trace.safetensors")]
    for drafter in range(num_drafters):
        shape = (num_texts * length, num_nodes)
        scores = -np.sort(rng.exponential(2, size=shape).astype(np.float32), axis=1)
        trees: dict[str, np.ndarray] = {"tokens": rng.integers(6, size=shape, dtype=np.int32), "scores": scores}
        trees |= {"parents": np.broadcast_to(parents, shape), "entropies": rng.random(shape, dtype=np.float32)}
        trees["offsets"] = np.arange(num_texts + 1, dtype=np.int64) * length
        meta = {"drafter": f"d{drafter}", "trace": digest_of(folder / "trace.safetensors"), "depth": 5, "top_k": 10}
        meta |= {"num_nodes": num_nodes, "draft_vocab_size": None}
        write_tensors(folder / f"d{drafter}.safetensors", trees, kind="bank", provenance={}, meta=meta)
        flags += ["--bank", f"d{drafter}={folder / f'd{drafter}.safetensors'}"]
    rows: list[dict[str, object]] = [
        {"strategy": "single", "drafters": [f"d{drafter}"]} for drafter in range(num_drafters)
    ]
    pairs = [["d0", "d1"], ["d1", f"d{num_drafters - 1}"]]
    rows += [{"strategy": name, "drafters": pair} for name in ("merged_matched", "routed_history") for pair in pairs]
    labels = ["--method", "eagle2", "--benchmark", "gsm8k", "--num-draft-tokens", "59"]
    return [*flags, *labels, "--strategies", json.dumps(rows)]


def measure(module: str, flags: Sequence[object], checkout: Path) -> tuple[float, float]:
    """Returns (peak memory in MB, seconds) of a stage of a checkout."""
    start = time.monotonic()
    command = [sys.executable, "-m", module, *map(str, flags)]
    subprocess.run(command, cwd=checkout, check=True, stdout=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, time.monotonic() - start


def digest(tables: Path) -> str:
    """Returns a hash over all CSV files but that which names the replay files."""
    found = hashlib.sha256()
    for path in sorted(tables.glob("*.csv")):
        if path.name != "sources.csv":
            found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:16]


def digest_of_rows(path: Path) -> str:
    """Returns a hash over the rows of a parquet file."""
    found = hashlib.sha256()
    for column in pq.read_table(path).columns:
        found.update("\n".join(map(str, column.to_pylist())).encode())
    return found.hexdigest()[:16]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=18_000_000, help="default: %(default)s, the paper's study")
    parser.add_argument("--positions", type=int, help="of a condition to replay, instead of tables")
    parser.add_argument("--drafters", type=int, default=14, help="of that condition (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="where the files are kept (default: nowhere)")
    parser.add_argument("--checkout", type=Path, default=Path.cwd(), help="whose stages to run (default: this)")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        folder = (args.folder or Path(scratch)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        if args.positions:
            recorded = write_recording(folder, num_positions=args.positions, num_drafters=args.drafters)
            output = folder / f"replay-{os.getpid()}.parquet"
            peak, seconds = measure("taps.replay", [*recorded, "--output", output], args.checkout)
            found = f"cycles {digest_of_rows(output)}, nodes {digest_of_rows(output.with_suffix('.nodes.parquet'))}"
        else:
            if not (folder / "replays").exists():
                print(f"{write_tiled(folder / 'replays', args.cycles):,} cycles written")
            write_json(folder / "cost.json", COST, kind="cost", provenance={})
            output = folder / f"tables-{os.getpid()}"
            flags = ["--replay", folder / "replays", "--cost", folder / "cost.json", "--output", output]
            peak, seconds = measure("taps.tables", flags, args.checkout)
            found = f"tables {digest(output)}"
        print(f"peak {peak:,.0f} MB, {seconds:,.0f} s, {found}")


if __name__ == "__main__":
    main()
