"""Real models, decoded live: is the text the target's, are the cycles the replay's? Forty minutes on the laptop study.

    taps lossless texts --results results/laptop --folder /tmp/texts
    taps lossless cycles --results results/laptop --folder /tmp/cycles

`texts`: two prompts per benchmark, 64 tokens each, two and three drafters. The reference is transformers' own
`generate(do_sample=False)` at batch size 1; then every strategy decodes them in float32, and with two drafters in
bfloat16. Exit status 1 if a float32 text differs; in bfloat16 near-ties may fall the other way, so there the texts that
part are counted.

`cycles`: 4 prompts per benchmark, all turns, 12 tokens each, at temperature 0 in float32: every drafter of the study,
and every strategy over two. Exit status 1 if a text differs from the recorded one or a cycle from the replay.

Finished files in --folder are not made again.
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

from taps.decoding.strategy import STRATEGIES, find
from taps.plumbing.artefacts import read_json, read_jsonl, read_tensors, write_jsonl
from taps.plumbing.cli import run, stage_parser

ROOT = Path(__file__).parent.parent
LIVE = [name for name in STRATEGIES if not find(name).needs_future]


@dataclass(frozen=True)
class Study:
    """A finished study, and where and how to check it.

    Attributes:
        results: Its folder of results.
        config: Its YAML, as written.
        folder: For what is made here.
        jobs: Processes at a time.
    """

    results: Path
    config: dict[str, Any]
    folder: Path
    jobs: int

    def rows(self, method: str, *, num_groups: int) -> list[dict[str, Any]]:
        """Returns every strategy over a method's drafters, or over the first groups of them that it combines."""
        held = sorted(path.name for path in (self.results / "drafters" / method / "seed0").iterdir())
        groups = [group for group in self.config["strategies"]["combinations"] if set(group) <= set(held)][:num_groups]
        if self.config["methods"][method].get("strategies") == ["single"]:
            return [{"strategy": "single", "drafters": [name]} for name in held]
        return [
            {"strategy": name, "drafters": drafters}
            for name in LIVE
            for drafters in ([[name] for name in held] if find(name).one_drafter else groups)
        ]

    def record(self, name: str, *, num_prompts: int, new_tokens: int, dtype: str) -> Path:
        """Returns a trace of the first prompts of every benchmark, recorded one text at a time."""
        chosen = [
            {**prompt, "id": f"{benchmark} {prompt['id']}"}
            for benchmark in self.config["benchmarks"]
            for prompt in read_jsonl(self.results / "prompts" / f"{benchmark}.jsonl", kind="prompts")[:num_prompts]
        ]
        prompts, trace = self.folder / f"{name}.jsonl", self.folder / f"{name}.safetensors"
        write_jsonl(prompts, chosen, kind="prompts", provenance={})
        words = ["-m", "taps.trace", "--target", str(self.results / "target"), "--prompts", str(prompts)]
        words += ["--batch-size", "1", "--max-new-tokens", str(new_tokens), "--dtype", dtype]
        run_all({trace: words}, 1)
        return trace

    def check(self, method: str, trace: Path, rows: list[dict[str, Any]], *, dtype: str) -> int:
        """Returns how many texts and cycles of `rows` differ from the trace and its replay; prints them."""
        drafting, banks = self.config["drafting"], {}
        common = ["--target", str(self.results / "target"), "--trace", str(trace), "--dtype", dtype]
        common += ["--draft-vocab", str(self.results / "draft_vocab.safetensors")]
        shape = ["--depth", str(drafting["depth"]), "--top-k", str(drafting["top_k"])]
        shape += ["--num-nodes", str(drafting["num_nodes"])]
        folders = {
            name: self.results / "drafters" / method / "seed0" / name for row in rows for name in row["drafters"]
        }
        for name, folder in folders.items():
            bank = self.folder / f"{trace.stem}-{method}-{name}.safetensors"
            banks[bank] = ["-m", "taps.bank", *common, *shape, "--drafter", str(folder)]
        run_all(banks, self.jobs)
        live = ["-m", "taps.live_check", *common, "--num-draft-tokens", str(drafting["num_draft_tokens"])]
        live += ["--num-prompts", "1000"]
        for (name, folder), bank in zip(folders.items(), banks, strict=True):
            live += ["--drafter", f"{name}={folder}", "--bank", f"{name}={bank}"]
        if (calibration := self.results / "calibration" / method / "seed0.json").exists():
            live += ["--calibration", str(calibration)]
        reports = {
            self.folder / f"{trace.stem}-{method}-{part}.json": [
                *live,
                "--strategies",
                json.dumps(rows[part :: self.jobs]),
            ]
            for part in range(min(self.jobs, len(rows)))
        }
        run_all(reports, self.jobs)
        return sum(report(path) for path in reports)


def texts(study: Study) -> int:
    """Returns how many float32 texts are not those of transformers' greedy decoding."""
    different, method = 0, next(iter(study.config["methods"]))
    for dtype, num_groups in (("float32", 2), ("bfloat16", 1)):
        trace = study.record(dtype, num_prompts=2, new_tokens=64, dtype=dtype)
        parted = differs_from_generate(str(study.results / "target"), trace, dtype, new_tokens=64)
        print(f"{dtype}: {parted} recorded texts differ from transformers' generate", flush=True)
        rows = study.rows(method, num_groups=num_groups)
        combined = {name for row in rows if len(row["drafters"]) > 1 for name in row["drafters"]}
        rows = [row for row in rows if combined.issuperset(row["drafters"])]
        found = study.check(method, trace, rows, dtype=dtype)
        different += parted + found if dtype == "float32" else 0
    return different


def cycles(study: Study) -> int:
    """Returns how many texts and cycles differ, over every drafter of the study."""
    trace = study.record("cycles", num_prompts=4, new_tokens=12, dtype="float32")
    return sum(
        study.check(method, trace, study.rows(method, num_groups=1), dtype="float32")
        for method in study.config["methods"]
    )


def differs_from_generate(target: str, trace: Path, dtype: str, *, new_tokens: int) -> int:
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
            given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=new_tokens, pad_token_id=0
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


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of `taps lossless`."""
    parser = stage_parser("taps.lossless", __doc__)
    parser.add_argument("what", choices=("texts", "cycles"))
    parser.add_argument("--results", type=Path, default=Path("results/laptop"), help="default: %(default)s")
    parser.add_argument("--config", type=Path, default=ROOT / "config.yaml", help="the study's (default: config.yaml)")
    parser.add_argument("--jobs", type="count", default=2, help="processes, one core each (default: %(default)s)")
    parser.add_argument("--folder", type=Path, required=True, help="where reports go, and stay")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Runs one of the comparisons."""
    args = build_parser().parse_args(argv)
    args.folder.mkdir(parents=True, exist_ok=True)
    config = yaml.safe_load(args.config.read_text(encoding="utf-8"))
    study = Study(args.results.resolve(), config, args.folder.resolve(), args.jobs)
    different = (texts if args.what == "texts" else cycles)(study)
    print("nothing differs" if not different else f"{different} differences")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    run(main)
