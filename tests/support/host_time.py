"""Host time of a training step and of a trace step at Llama-3-8B's hidden size, of this checkout and of others.

    python -m tests.support.host_time                                      # this checkout
    python -m tests.support.host_time --against /path/to/other --rounds 5  # and another one, in turn, with the ratio

A training step: 8 rows of 900 tokens, read from disk (in the page cache) up to what is handed to the device, which then
has the rest to do. A trace step: 64 texts of a target that costs nothing, eight channels wide, so that what remains is
our Python. CPU seconds of one thread, so that neighbours on the machine count little.
"""

from __future__ import annotations

import argparse
import inspect
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

HIDDEN, NUM_ROWS, LENGTH, NUM_TEXTS, NUM_STEPS = 4096, 8, 900, 64, 40
ROOT = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout of this project")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each, taken in turn")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        print(json.dumps({"training step": training_step_s(), "trace step": trace_step_s()}))
        return
    checkouts = {"this": ROOT, **({"other": args.against.resolve()} if args.against else {})}
    seconds: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    for _ in range(args.rounds):
        for name, folder in checkouts.items():
            command = [sys.executable, str(Path(__file__)), "--once"]
            environment = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
            seconds[name].append(json.loads(done.stdout.splitlines()[-1]))
    for what in seconds["this"][0]:
        middle = {name: median(one[what] for one in found) * 1e3 for name, found in seconds.items()}
        print(f"{what}: " + ", ".join(f"{name} {value:.3g} ms" for name, value in middle.items()), end="")
        print(f", {middle['other'] / middle['this']:.1f} times" if "other" in middle else "")


def cpu_seconds(work: Any, *, repeats: int) -> float:
    """Returns the CPU time of one call, the first call not counted."""
    work()
    start = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - start) / repeats


def training_step_s(*, law_of_host: bool = False, num_rows: int = NUM_ROWS, repeats: int = 5) -> float:
    """Returns the CPU seconds of the host for one rank's step, up to what is copied to the device.

    Args:
        law_of_host: Whether the host makes the batch whole, as for a CPU: fp32, with its own noise.
        num_rows: Rows of the step.
        repeats: Steps measured.
    """
    import numpy as np
    import torch

    from taps.model import batches
    from taps.model.feature_store import (
        MANIFEST_KIND,
        FeatureStore,
        Manifest,
        plan_shards,
        write_manifest,
        write_shard,
    )
    from taps.plumbing.artefacts import write_tensors

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder, lengths = Path(name), [LENGTH] * num_rows
        tokens = {
            "tokens": np.zeros(sum(lengths), dtype=np.int32),
            "supervised": np.random.default_rng(0).random(sum(lengths)) < 0.7,
            "offsets": np.cumsum([0, *lengths], dtype=np.int64),
        }
        tokens["supervised"] = tokens["supervised"].astype(np.uint8)
        write_tensors(folder / "tokens.safetensors", tokens, kind="tokens", provenance={}, meta={})
        facts = {"target": "", "template": "", "tokens": "", "dtype": "bfloat16", "batch_tokens": 0}
        manifest = Manifest(**facts, hidden_size=HIDDEN, num_rows=num_rows, num_tokens=sum(lengths))  # type: ignore[arg-type]
        (shard,) = plan_shards(lengths, sum(lengths))
        rows = [torch.randn(length, HIDDEN).bfloat16() for length in lengths]
        written = write_shard(folder / "f", shard, rows, manifest=manifest, provenance={})
        manifest = Manifest(**{**vars(manifest), "shards": (written,)})
        write_manifest(folder / "f", manifest, kind=MANIFEST_KIND, provenance={})
        conversations = batches.Conversations({"c": folder / "tokens.safetensors"}, {"c": FeatureStore(folder / "f")})
        ids = [batches.RowId("c", i) for i in range(num_rows)]
        noise = _noise()(amplitude=0.2)

        def step() -> None:
            conversations.size(ids)
            if hasattr(conversations, "read") and not law_of_host:
                conversations.read(ids, noise=noise, places=range(num_rows))
            else:
                batch = conversations.batch(ids, noise=noise, places=range(num_rows))
                batch.features.to(torch.bfloat16), batch.targets.to(torch.bfloat16)

        return cpu_seconds(step, repeats=repeats)


def _noise() -> Any:
    try:
        from taps.model.noise import Noise
    except ImportError:  # where it was before
        from taps.model.batches import Noise
    return Noise


def trace_step_s() -> float:
    """Returns the CPU seconds of one step of a trace beside the target."""
    import torch

    from taps.model.sampler import continue_batch
    from taps.model.sampling import Sampling

    torch.set_num_threads(1)
    states = torch.randn(NUM_TEXTS, 1, 8).bfloat16()
    logits = torch.randn(NUM_TEXTS, 64)
    target = SimpleNamespace(
        device=torch.device("cpu"),
        eos_ids=frozenset(),
        max_length=1 << 20,
        new_cache=lambda: None,
        features=lambda tokens, **_: states.expand(-1, tokens.shape[1], -1),
        logits=lambda last: logits,
    )
    prompts = [[1, 2, 3]] * NUM_TEXTS
    randomness = "draws" if "draws" in inspect.signature(continue_batch).parameters else "uniforms"  # older

    def steps(count: int) -> float:
        arguments = {"sampling": Sampling(), randomness: None, "max_new_tokens": count}
        return cpu_seconds(lambda: continue_batch(target, prompts, **arguments), repeats=3)  # type: ignore[arg-type]

    return (steps(4 * NUM_STEPS) - steps(NUM_STEPS)) / (3 * NUM_STEPS)


if __name__ == "__main__":
    main()
