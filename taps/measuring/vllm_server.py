"""One vLLM that decodes token lists with a draft model and says what it accepted; runs in vLLM's own environment.

    python -P taps/measuring/vllm_server.py order.json answer.json

Greedy, float32, one prompt at a time, past the end of an answer. Needs vLLM and nothing of this package. `order.json`:
target, drafter, num_draft_tokens, max_new_tokens, max_length, prompts (lists of tokens). `answer.json`: vllm (version)
and per prompt the text (tokens), num_cycles and accepted_by_position: how many cycles accepted the first, second ...
draft token.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def serve(order: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer to an order."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the counters of another process come late
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
    import vllm

    server = vllm.LLM(
        model=order["target"],
        dtype="float32",
        max_model_len=order["max_length"],
        skip_tokenizer_init=True,
        enforce_eager=True,
        enable_prefix_caching=False,
        disable_log_stats=False,
        seed=0,
        speculative_config={
            "method": "eagle",
            "model": order["drafter"],
            "num_speculative_tokens": order["num_draft_tokens"],
        },
    )
    sampling = vllm.SamplingParams(temperature=0, max_tokens=order["max_new_tokens"], ignore_eos=True, detokenize=False)
    texts, counted = [], [counters(server)]
    for prompt in order["prompts"]:
        (done,) = server.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False)
        texts.append(list(done.outputs[0].token_ids))
        counted.append(counters(server))
    steps = [[new - old for new, old in zip(*pair, strict=True)] for pair in zip(counted[1:], counted, strict=False)]
    return {
        "vllm": vllm.__version__,
        "texts": [
            {"tokens": text, "num_cycles": cycles, "accepted_by_position": accepted}
            for text, (cycles, *accepted) in zip(texts, steps, strict=True)
        ],
    }


def counters(server: Any) -> list[int]:
    """Returns what a server has counted since it started: cycles, then cycles that accepted the first, second ..."""
    found = {metric.name: metric for metric in server.get_metrics()}
    by_position = found["vllm:spec_decode_num_accepted_tokens_per_pos"].values
    return [int(found["vllm:spec_decode_num_drafts"].value), *map(int, by_position)]


if __name__ == "__main__":
    given, wanted = map(Path, sys.argv[1:])
    answer = serve(json.loads(given.read_text(encoding="utf-8")))
    wanted.write_text(json.dumps(answer), encoding="utf-8")
