"""Measures how fast this machine computes features, trains draft models and drafts banks; writes JSON, prints a table.

    python -m taps.speed --target results/laptop/target --tokens results/laptop/tokens/math.safetensors \\
        --output reports/laptop/speed.json
    python -m taps.speed --shape llama3-8b --device cuda --output reports/h200/speed.json

The second needs no download: random weights cost what trained ones cost. Training runs one epoch to warm up and one
that is measured. Measurements come in the order of the table; those that would start after --limit-s are left out and
named. The file is written after each one.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taps.plumbing.artefacts import read_tensors, write_json, write_tensors
from taps.plumbing.cli import run, stage_parser
from taps.plumbing.lineage import check_made_from
from taps.plumbing.progress import progress
from taps.plumbing.provenance import provenance

if TYPE_CHECKING:
    import torch

    from taps.measuring.training_speed import Measurement
    from taps.model.target import Target
    from taps.model.target_head import TargetHead

SHAPES: dict[str, dict[str, Any]] = {
    "llama3-8b": {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
    }
}
_CPU = {"dtype": "float32", "num_tokens": 16384, "lengths": [64, 512], "batch_tokens": 512, "draft_vocab": 8192}
_CUDA = {"dtype": "bfloat16", "num_tokens": 1 << 18, "lengths": [256, 2048], "batch_tokens": 1 << 14}
_CUDA |= {"draft_vocab": 1 << 15}


def build_parser() -> argparse.ArgumentParser:
    parser = stage_parser("taps.speed", __doc__)
    subject = parser.add_mutually_exclusive_group(required=True)
    subject.add_argument("--target", type=Path, help="folder of a target model")
    subject.add_argument("--shape", help=f"random weights of this shape: {', '.join(SHAPES)}, or a config.json")
    parser.add_argument("--tokens", type=Path, help="tokens to work on (default: random rows, half supervised)")
    parser.add_argument("--batch-size", type="number", default=8, help="rows per training step (default: %(default)s)")
    parser.add_argument("--positions", type="number", default=256, help="trees per bank, about (default: %(default)s)")
    parser.add_argument(
        "--zero-stage", type="count", choices=(0, 1, 2), default=0, help="ZeRO 0, 1 or 2 (default: %(default)s)"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    parser.add_argument("--limit-s", type="weight", default=300, help="start nothing after this (default: %(default)s)")
    parser.add_argument("--output", type=Path, required=True, help="JSON to write")
    by_device = parser.add_argument_group("settings whose default depends on the device")
    for name, kind, text in (
        ("num-tokens", "number", "tokens worked on"),
        ("batch-tokens", "number", "tokens per target forward"),
        ("draft-vocab", "number", "tokens of the sliced head"),
        ("dtype", str, "compute dtype"),
    ):
        key = name.replace("-", "_")
        by_device.add_argument(f"--{name}", type=kind, help=f"{text} (cpu: {_CPU[key]}, cuda: {_CUDA[key]})")
    by_device.add_argument(
        "--lengths", type="number", nargs=2, help=f"of random rows (cpu: {_CPU['lengths']}, cuda: {_CUDA['lengths']})"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    started = time.monotonic()
    args = build_parser().parse_args(argv)
    for name, value in (_CPU if args.device == "cpu" else _CUDA).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    import torch

    from taps.measuring.hardware import describe
    from taps.measuring.training_speed import measure_features
    from taps.model.distributed import start_processes

    _, _, device = start_processes(args.device)
    target, head = open_target(args, device)
    machine = describe(device, getattr(torch, args.dtype))  # after opening, which decides how products are computed
    skipped: list[str] = []
    with tempfile.TemporaryDirectory(prefix="taps-speed-") as scratch:
        tokens = write_rows(args, head.config, Path(scratch) / "tokens.safetensors")
        features = Path(scratch) / "features"
        measured = [measure_features(target, tokens, features, dtype=args.dtype, batch_tokens=args.batch_tokens)]
        del target  # training needs its ends only
        rest = others(args, head, tokens, Path(scratch))
        for name, measure in progress(rest.items(), total=len(rest), what="measuring", unit="part"):
            if time.monotonic() - started > args.limit_s:
                skipped.append(name)
            else:
                measured.append(measure())
            lines = [line_of(measurement, machine) for measurement in measured]
            write(args, machine, head.config, tokens, lines, skipped)
    print(table(lines, machine, skipped))


def open_target(args: argparse.Namespace, device: torch.device) -> tuple[Target, TargetHead]:
    """Returns the target and its ends, loaded or random."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from taps.model.target import Target, load_target
    from taps.model.target_head import TargetHead, load_target_head

    dtype = getattr(torch, args.dtype)
    if args.target is not None:
        target = load_target(args.target, dtype=dtype, device=device)
        return target, load_target_head(args.target, dtype=dtype, device=device)
    config = SHAPES.get(args.shape) or json.loads(Path(args.shape).read_text(encoding="utf-8"))
    torch.manual_seed(0)
    with device:
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(**config), dtype=dtype, attn_implementation="sdpa"
        )
    model = model.eval().requires_grad_(False)
    target = Target(
        model=model,
        tokenizer=None,  # type: ignore[arg-type]  # nothing here reads or writes text
        eos_ids=frozenset(),
        max_length=config["max_position_embeddings"],
        config=config,
    )
    ends = [module.weight for module in (model.get_input_embeddings(), model.get_output_embeddings())]
    return target, TargetHead(embedding=ends[0], head=ends[1], token_ids=None, config=config)


def write_rows(args: argparse.Namespace, config: dict[str, Any], path: Path) -> Path:
    """Returns `path`, now a tokens artefact of about `--num-tokens` tokens: the first of `--tokens`, or random ones."""
    if args.tokens is None:
        tensors = random_rows(args.num_tokens, *args.lengths, vocab_size=config["vocab_size"])
    else:
        check_made_from(args.tokens, {"target": args.target}, kind="tokens")
        given, _ = read_tensors(args.tokens, kind="tokens", framework="np")
        num_rows = max(1, int(np.searchsorted(given["offsets"], args.num_tokens, side="right")) - 1)
        end = given["offsets"][num_rows]
        tensors = {name: given[name][:end] for name in ("tokens", "supervised")}
        tensors["offsets"] = given["offsets"][: num_rows + 1]
    write_tensors(path, tensors, kind="tokens", provenance={})
    return path


def random_rows(num_tokens: int, shortest: int, longest: int, *, vocab_size: int) -> dict[str, np.ndarray]:
    """Returns tokens, supervised and offsets of rows of seeded random length; the last half of each is supervised."""
    generator = np.random.default_rng(0)
    num_rows = max(1, 2 * num_tokens // (shortest + longest))
    lengths = generator.integers(shortest, longest, endpoint=True, size=num_rows)
    return {
        "tokens": generator.integers(vocab_size, size=lengths.sum(), dtype=np.int32),
        "supervised": np.concatenate([np.arange(length) >= length // 2 for length in lengths]).astype(np.uint8),
        "offsets": np.cumsum([0, *lengths], dtype=np.int64),
    }


def others(
    args: argparse.Namespace, head: TargetHead, tokens: Path, scratch: Path
) -> dict[str, Callable[[], Measurement]]:
    """Returns the measurements that follow the features, by name."""
    import torch

    from taps.measuring.training_speed import CORPUS, measure_bank, measure_training
    from taps.model.batches import Conversations, RowId
    from taps.model.feature_store import FeatureStore

    store = FeatureStore(scratch / "features")
    conversations = Conversations({CORPUS: tokens}, {CORPUS: store})
    rows = conversations.usable([RowId(CORPUS, i) for i in range(len(store))])
    few = torch.arange(min(args.draft_vocab, len(head.head)), device=head.head.device)
    heads = {"sliced": replace(head, head=head.head[few].contiguous(), token_ids=few), "full": head}
    settings = {"batch_size": args.batch_size, "zero_stage": args.zero_stage}
    measures: dict[str, Callable[[], Measurement]] = {
        f"{family} {name}": partial(measure_training, family, ends, conversations, rows, scratch=scratch, **settings)
        for name, ends in heads.items()
        for family in ("eagle2", "hass")
    }
    for name, ends in heads.items():
        measures[f"bank {name}"] = partial(measure_bank, ends, tokens, store, num_positions=args.positions)
    return measures


def line_of(measurement: Measurement, machine: dict[str, Any]) -> dict[str, Any]:
    """Returns a measurement as JSON, with its share of the bfloat16 peak if bfloat16 it is and the peak is known."""
    peak = machine["bf16_peak_tflops"] if machine["dtype"] == "bfloat16" else None
    share = measurement.tflops / peak if peak and measurement.tflops else None
    return {**asdict(measurement), "peak_share": share}


def write(
    args: argparse.Namespace,
    machine: dict[str, Any],
    config: dict[str, Any],
    tokens: Path,
    lines: Sequence[dict[str, Any]],
    skipped: Sequence[str],
) -> None:
    """Writes what is known so far."""
    offsets = read_tensors(tokens, kind="tokens", names=["offsets"])[0]["offsets"].tolist()
    content = {
        "machine": machine,
        "subject": args.shape or args.target.name,
        "config": {name: config[name] for name in ("hidden_size", "num_hidden_layers", "vocab_size")},
        "num_rows": len(offsets) - 1,
        "num_tokens": offsets[-1],
        "batch_size": args.batch_size,
        "measurements": list(lines),
        "skipped": list(skipped),
    }
    write_json(args.output, content, kind="speed", provenance=provenance(stage="taps.speed", device=args.device))


def table(lines: Sequence[dict[str, Any]], machine: dict[str, Any], skipped: Sequence[str]) -> str:
    """Returns a Markdown table under one line that names the machine."""
    threads = f", {machine['threads']} threads" if machine["bf16_peak_tflops"] is None else ""
    text = [
        f"{machine['device']}{threads}, {machine['dtype']}: matrix products at {machine['matmul_tflops']:.3g} TFLOP/s",
        "",
        "| | head | speed | TFLOP/s | of bf16 peak | peak memory | on disk |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for line in lines:
        cells = [
            line["what"],
            f"{line['columns']:,}" if line["columns"] else "",
            f"{line['per_s']:,.0f} {line['unit']}/s",
            f"{line['tflops']:.3g}" if line["tflops"] else "",
            f"{line['peak_share']:.1%}" if line["peak_share"] is not None else "",
            f"{line['peak_memory_mb']:,.0f} MB",
            f"{line['bytes_per_token']:,.1f} B/token" if line["bytes_per_token"] else "",
        ]
        text.append(f"| {' | '.join(cells)} |")
    if skipped:
        text += ["", f"left out at the time limit: {', '.join(skipped)}"]
    return "\n".join(text)


if __name__ == "__main__":
    run(main)
