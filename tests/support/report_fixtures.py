"""A study's other artefacts, written by hand: audits, training records, calibration, cost, live check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from taps.plumbing.artefacts import write_json, write_jsonl
from taps.plumbing.provenance import provenance

MADE_FROM = provenance(stage="test")
COST: dict[str, Any] = {
    "device": "cpu",
    "num_threads": 2,
    "dtype": "float32",
    "target": [{"num_tokens": 1 + 40 * step, "median_s": median} for step, median in enumerate((0.04, 0.08, 0.1))],
    "draft": [{"num_nodes": 40, "median_s": 0.020}, {"num_nodes": 80, "median_s": 0.030}],
    "overhead_one_s": 0.001,
    "overhead_many_s": 0.002,
    "plain_s": 0.041,
}  # fmt: skip


def write_artefacts(folder: Path) -> list[str]:
    """Writes one of each and returns the flags that hand them to the tables stage."""
    write_json(folder / "cost.json", COST, kind="cost", provenance=MADE_FROM)
    dropped = {"too_long": {"count": 2, "example": "q7"}, "empty_text": {"count": 1, "example": "<b>q</b>"}}
    audit = {"source": "a & b <i>.json", "read": 10, "kept": 7, "dropped": dropped, "notes": ["cut off in record 11"]}
    write_json(folder / "chat.audit.json", audit, kind="audit", provenance=MADE_FROM)
    bins: dict[str, Any] = {"expected_calibration_error": 0.12, "nll_nats": 0.4, "bins": []}
    fit = {
        "inverse_temperature": 0.8,
        "num_nodes": 999,
        "before": bins,
        "after": {**bins, "expected_calibration_error": 0.03},
    }
    write_json(folder / "calibration.json", {"drafters": {"math": fit}}, kind="calibration", provenance=MADE_FROM)
    write_json(folder / "live.json", live_report(), kind="live_check", provenance=MADE_FROM)
    write_json(folder / "tuned.json", tuning(), kind="tuned", provenance=MADE_FROM)
    pair = {
        "corpus": "math",
        "benchmark": "gsm8k",
        "num_prompts": 20,
        "num_too_short": 1,
        "num_exact": 0,
        "num_shared": 2,
    }
    entries = [{**pair, "mean_coverage": 0.0123, "examples": ["q3"]}]
    write_json(folder / "overlap.json", entries, kind="overlap", provenance=MADE_FROM)
    for name in ("math", "chat"):
        _write_drafter(folder / "drafters" / name)
    (folder / "drafters" / "averaged").mkdir()
    return [
        *("--cost", str(folder / "cost.json")),
        *("--overlap", str(folder / "overlap.json")),
        *("--audit", f"chat={folder / 'chat.audit.json'}"),
        *("--calibration", f"eagle2={folder / 'calibration.json'}"),
        *("--live", f"eagle2/gsm8k={folder / 'live.json'}"),
        *("--tuned", f"eagle2={folder / 'tuned.json'}"),
        *(
            word
            for name in ("math", "chat", "averaged")
            for word in ("--drafter", f"eagle2/{name}={folder}/drafters/{name}")
        ),
    ]


def live_report(num_equal_texts: int = 4) -> dict[str, Any]:
    """Returns a live check of two strategies over four texts of 120 tokens each."""
    row = {
        "drafters": "math", "num_draft_tokens": 40, "num_tokens": 480, "num_texts": 4, "num_cycles": 200,
        "num_equal_texts": num_equal_texts, "tau": 2.4, "num_compared_cycles": 200, "num_different_cycles": 0,
        "tokens_per_s": 21.0,
        "predicted_tokens_per_s": 23.0,
    }  # fmt: skip
    return {
        "sampling": {"temperature": 0, "top_p": 1.0, "top_k": 0},
        "plain": {"num_texts": 4, "num_equal_texts": 4, "num_tokens": 480, "tokens_per_s": 22.0},
        "rows": [
            {**row, "strategy": "single"},
            {**row, "strategy": "merged_matched", "drafters": "math+chat", "tau": 2.6},
        ],
    }


def _write_drafter(folder: Path) -> None:
    own = {"num_tokens": 40000, "flops": 3e12, "seconds": 20.0}
    record = {"num_steps": 50, "num_supervised": 30000, "alignment_passes": 1, "own": own, "total": own}
    write_json(folder / "training.json", record, kind="training", provenance=MADE_FROM)
    metrics = [
        {"step": 10 * epoch, "epoch": epoch, "num_tokens": 10000 * epoch, "seconds": 5.0 * epoch, "value": 1 / epoch}
        | {"validation_value": 1.2 / epoch, "validation_top1": 0.1 * epoch, "validation_top3": 0.15 * epoch}
        | {"tau_heldout_chat": 1 + 0.1 * epoch}
        for epoch in (1, 2, 3, 4)
    ]
    write_jsonl(folder / "metrics.jsonl", metrics, kind="metrics", provenance=MADE_FROM)


def tuning() -> dict[str, Any]:
    """Returns a tuning of two rows on two benchmarks of eight questions of 40 tokens; plain decoding: 20 tokens/s."""
    questions = [f"q{index}" for index in range(8)]
    jitter = [1 + 0.02 * (index - 3.5) for index in range(8)]  # mean 1

    def value(seconds: float, num_cycles: int) -> dict[str, Any]:
        return {
            "num_tokens": [40] * 8,
            "seconds": [seconds * part for part in jitter],
            "num_cycles": [num_cycles] * 8,
            "tokens_per_s": 40 / seconds,
            "tau": 40 / num_cycles,
            "inexact_share": 0.0,
        }

    plain = value(2.0, 40) | {"seconds": [2.0] * 8}

    def row(strategy: str, drafters: list[str], best: Any, tuned: Any, default: Any, servers: Any) -> dict[str, Any]:
        on = {"questions": questions, "plain": plain, "default": default, "tuned": tuned}
        tried = [(0, 1, 1.1), (1, 3, 1.2), (5, 40, 0.5)] if strategy == "single" else [(5, 40, 0.8)]
        names = ("depth", "num_draft_tokens", "tokens_per_s", "tau", "inexact_share")
        return {
            "strategy": strategy,
            "drafters": drafters,
            "num_draft_tokens": 40,
            "best": best,
            "shapes": [dict(zip(names, (*shape, 20 * rate, 1.5, 0.0), strict=True)) for *shape, rate in tried],
            "servers": servers,
            "benchmarks": {"gsm8k": on, "mt_bench": on},
        }

    sglang = {"speculative_num_steps": 2, "speculative_eagle_topk": 3, "speculative_num_draft_tokens": 4}
    servers = {"sglang": sglang, "vllm": {"num_speculative_tokens": 2}}
    best = {"depth": 1, "num_draft_tokens": 3}
    return {
        "drafting": {"depth": 5, "top_k": 8, "num_nodes": 80},
        "plain_s": 0.05,
        "rows": [
            row("single", ["math"], best, value(1.6, 25), value(4.0, 20), servers),
            row("merged_costed", ["math", "chat"], None, plain, value(2.5, 20), {}),
        ],
    }
