"""Real models, decoded live: is the text the target's, are the cycles the replay's? Half an hour on the laptop study.

    python -m tests.lossless texts --results results/laptop --folder /tmp/texts
    python -m tests.lossless cycles --results results/laptop --folder /tmp/cycles

`texts`: two prompts per benchmark, 64 tokens each. The reference is transformers' own `generate(do_sample=False)`, at
batch size 1; then every strategy decodes them, once in float32 and once in bfloat16. Exit status 1 if a float32 text
differs; in bfloat16 near-ties may fall the other way, so there the rate of texts that part is reported.

`cycles`: every drafter and strategy of the study decodes 4 prompts per benchmark at temperature 0 in float32, along the
study's own traces and banks. Exit status 1 if a text differs from the trace or a cycle from the replay.

Finished reports in --folder are not computed again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from taps.decoding.registry import REGISTRY
from taps.decoding.strategies import find
from taps.plumbing.artefacts import read_json, read_jsonl, read_tensors, write_jsonl

ROOT = Path(__file__).parent.parent
NEW_TOKENS = 64
LIVE = [name for name in REGISTRY if not find(name).needs_future]


@dataclass(frozen=True)
class Study:
    """A finished study.

    Attributes:
        results: Its folder of results.
        config: Its YAML, as written.
    """

    results: Path
    config: dict[str, Any]

    def drafters(self, method: str) -> list[str]:
        """Returns the names of a method's drafters."""
        return sorted(folder.name for folder in (self.results / "drafters" / method).iterdir())

    def rows(self, method: str) -> list[dict[str, Any]]:
        """Returns every strategy over every drafter or group of drafters that the method has."""
        held = self.drafters(method)
        groups = [group for group in self.config["strategies"]["combinations"] if set(group) <= set(held)]
        if self.config["methods"][method].get("strategies") == ["single"]:
            return [{"strategy": "single", "drafters": [name]} for name in held]
        return [
            {"strategy": name, "drafters": drafters}
            for name in LIVE
            for drafters in ([[name] for name in held] if find(name).one_drafter else groups)
        ]

    def live_check(
        self, method: str, drafters: Sequence[str], rows: list[dict[str, Any]], trace: Path, banks: Path, **flags: Any
    ) -> list[str]:
        """Returns the words of a `taps.live_check` of these drafters; `banks` holds `<drafter>/<banks' tail>`."""
        words = ["-m", "taps.live_check", "--target", str(self.results / "target"), "--trace", str(trace)]
        for name in drafters:
            words += ["--drafter", f"{name}={self.results / 'drafters' / method / name}"]
            words += ["--bank", f"{name}={str(banks).format(drafter=name)}"]
        words += ["--draft-vocab", str(self.results / "draft_vocab.safetensors"), "--strategies", json.dumps(rows)]
        words += ["--num-draft-tokens", str(self.config["drafting"]["num_draft_tokens"])]
        if (calibration := self.results / "calibration" / f"{method}.json").exists():
            words += ["--calibration", str(calibration)]
        return words + [word for flag, value in flags.items() for word in (f"--{flag.replace('_', '-')}", str(value))]


def cycles(study: Study, folder: Path, jobs: int) -> int:
    """Compares cycles; returns how many texts and cycles differ."""
    checks = {}
    for method in study.config["methods"]:
        for benchmark in study.config["benchmarks"]:
            condition = f"{benchmark}/t0_s0.safetensors"
            checks[folder / f"{method}-{benchmark}.json"] = study.live_check(
                method, study.drafters(method), study.rows(method), study.results / "traces" / condition,
                study.results / "banks" / method / "{drafter}" / condition,
            )  # fmt: skip
    run_all(checks, jobs)
    return sum(report(path) for path in checks)


def texts(study: Study, folder: Path, jobs: int) -> int:
    """Compares texts; returns how many float32 texts differ."""
    chosen = []
    for benchmark in study.config["benchmarks"]:
        chosen += read_jsonl(study.results / "prompts" / f"{benchmark}.jsonl", kind="prompts")[:2]
    chosen = [{**prompt, "turns": prompt["turns"][:1]} for prompt in chosen]
    prompts = folder / "prompts.jsonl"
    write_jsonl(prompts, chosen, kind="prompts", provenance={})
    method = next(iter(study.config["methods"]))
    rows = [row for row in study.rows(method) if row["strategy"] not in ("single", "single_double")]
    drafters = sorted({name for row in rows for name in row["drafters"]})
    rows += [{"strategy": name, "drafters": [drafter]} for name in ("single", "single_double") for drafter in drafters]
    different = 0
    for dtype in ("float32", "bfloat16"):
        trace, target = folder / f"{dtype}-trace.safetensors", str(study.results / "target")
        words = ["-m", "taps.trace", "--target", target, "--prompts", str(prompts), "--dtype", dtype]
        run_all({trace: [*words, "--batch-size", "1", "--max-new-tokens", str(NEW_TOKENS)]}, 1)
        parted = differs_from_generate(target, trace, dtype)
        print(f"{dtype}: {parted} of {len(chosen)} recorded texts differ from transformers' generate")
        run_all({
            folder / f"{dtype}-{name}.safetensors": [
                "-m", "taps.bank", "--target", target, "--drafter", str(study.results / "drafters" / method / name),
                "--trace", str(trace), "--draft-vocab", str(study.results / "draft_vocab.safetensors"), "--depth",
                str(study.config["drafting"]["depth"]), "--top-k", str(study.config["drafting"]["top_k"]),
                "--num-nodes", str(study.config["drafting"]["num_nodes"]), "--dtype", dtype,
            ] for name in drafters
        }, jobs)  # fmt: skip
        halves = {
            folder / f"{dtype}-report-{part}.json": study.live_check(
                method, drafters, rows[part::jobs], trace, folder / f"{dtype}-{{drafter}}.safetensors",
                dtype=dtype, num_prompts=len(chosen),
            )
            for part in range(jobs)
        }  # fmt: skip
        run_all(halves, jobs)
        found = sum(report(path) for path in halves)
        different += parted + found if dtype == "float32" else 0
    return different


def differs_from_generate(target: str, trace: Path, dtype: str) -> int:
    """Returns how many texts of a trace are not those of `generate(do_sample=False)`."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(target, dtype=getattr(torch, dtype)).eval()
    tensors, _ = read_tensors(trace, kind="trace", names=("tokens", "offsets", "prompt_lengths"), framework="np")
    different = 0
    for start, end, prompt in zip(
        tensors["offsets"][:-1], tensors["offsets"][1:], tensors["prompt_lengths"], strict=True
    ):
        recorded = tensors["tokens"][start:end].astype(np.int64)
        given = torch.from_numpy(recorded[None, :prompt])
        made = model.generate(
            given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=NEW_TOKENS, pad_token_id=0
        )
        different += made[0].tolist() != recorded.tolist()
    return different


def run_all(commands: dict[Path, list[str]], jobs: int) -> None:
    """Runs the commands whose output is not there yet, some at a time.

    Raises:
        SystemExit: one failed.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} if jobs > 1 else None

    def run_one(item: tuple[Path, list[str]]) -> None:
        path, words = item
        if not path.exists():
            command = [sys.executable, *words, "--output", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
            print(done.stdout or done.stderr[-2000:], end="", flush=True)
            if done.returncode:
                sys.exit(f"{path}: the command failed")

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run_one, commands.items()))


def report(path: Path) -> int:
    """Prints what differs in a report of `taps.live_check`; returns how many texts and cycles."""
    rows = read_json(path, kind="live_check")["rows"]
    different = 0
    for row in rows:
        texts, cycles = row["num_texts"] - row["num_equal_texts"], row["num_different_cycles"]
        different += texts + cycles
        if texts or cycles:
            places = [place["token"] for place in row["divergences"]]
            print(f"{path.stem} {row['strategy']} {row['drafters']}: {texts} texts differ at {places}, {cycles} cycles")
    num_texts, num_cycles = (sum(row[name] for row in rows) for name in ("num_texts", "num_compared_cycles"))
    equal = sum(row["num_equal_texts"] for row in rows)
    outside = max(row["outside_share"] for row in rows)
    print(
        f"{path.stem}: {equal} of {num_texts} texts equal, {num_cycles} cycles compared, {len(rows)} rows, "
        f"at most {outside:.0%} of the time outside the models"
    )
    return different


def main(argv: Sequence[str] | None = None) -> None:
    """Runs one of the comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("texts", "cycles"))
    parser.add_argument("--results", type=Path, default=Path("results/laptop"), help="default: %(default)s")
    parser.add_argument("--config", type=Path, default=ROOT / "config.yaml", help="the study's (default: config.yaml)")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time, one core each (default: %(default)s)")
    parser.add_argument("--folder", type=Path, required=True, help="where reports go, and stay")
    args = parser.parse_args(argv)
    args.folder.mkdir(parents=True, exist_ok=True)
    study = Study(args.results.resolve(), yaml.safe_load(args.config.read_text(encoding="utf-8")))
    different = (texts if args.what == "texts" else cycles)(study, args.folder.resolve(), args.jobs)
    print("nothing differs" if not different else f"{different} differences")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
