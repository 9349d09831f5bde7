"""Forty architectures as tiny random targets: each ends in a finished pipeline or is refused at the start.

    python -m tests.support.families                          # prints the table of docs/families.md
    python -m tests.support.families llama3_1 gemma2          # only these

A family is *finished* if prepare_target, tokenise, features, one training step, trace, bank and live decoding all ran,
and live decoding gave the recorded text and the replayed cycles. It is *refused* if prepare_target said why. Anything
else is a fault of ours: what can be known must be known before hours are spent.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from taps.model.target_folder import save_model
from taps.plumbing.artefacts import read_json, write_jsonl
from taps.plumbing.errors import TapsError
from taps.tiny_target import byte_tokenizer

ROOT = Path(__file__).parents[2]
TEXT = "Tom has 3 apples. He buys 2 more. How many are there? There are 3 + 2 = 5 apples."
_BASE = {
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
_MHA = {name: value for name, value in _BASE.items() if name != "num_key_value_heads"}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 500000.0,
}
_SMALL_GPT = {"n_layer": 2, "n_head": 4}
_SMALL = {"vocab_size": 320, "hidden_size": 32}
_SMALL_LAYERS = {**_SMALL, "num_hidden_layers": 2, "num_attention_heads": 4}
_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_MLA = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "qk_nope_head_dim": 8}


@dataclass(frozen=True)
class Family:
    """One architecture.

    Attributes:
        config: Name of its class in the library.
        changes: Settings beside `_BASE`, or instead of it where `alone`.
        refused: What prepare_target must say; None where the pipeline must end.
        alone: Whether `changes` are all settings: other names for the sizes.
    """

    config: str
    changes: dict[str, Any]
    refused: str | None = None
    alone: bool = False


def _rope(**settings: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 10000.0, **settings}}


FAMILIES = {
    "llama": Family("LlamaConfig", {}),
    "llama_tied": Family("LlamaConfig", {"tie_word_embeddings": True}),
    "llama3_1": Family("LlamaConfig", {"rope_parameters": _LLAMA3}),
    "llama_linear": Family("LlamaConfig", _rope(rope_type="linear", factor=4.0)),
    "llama_yarn": Family(
        "LlamaConfig", _rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=64), "RoPE scaling"
    ),
    "llama_dynamic": Family("LlamaConfig", _rope(rope_type="dynamic", factor=4.0), "RoPE scaling"),
    "llama_attention_bias": Family("LlamaConfig", {"attention_bias": True}),
    "llama_mlp_bias": Family("LlamaConfig", {"mlp_bias": True}),
    "llama_gelu": Family("LlamaConfig", {"hidden_act": "gelu"}, "unsupported activation"),
    "mistral": Family("MistralConfig", {"sliding_window": None}),
    "mistral_sliding": Family("MistralConfig", {"sliding_window": 64}, "sliding-window"),
    "mixtral": Family("MixtralConfig", {"num_local_experts": 4, "sliding_window": None}),
    "ministral": Family("MinistralConfig", {"head_dim": 8, "sliding_window": 64}, "sliding|full attention"),
    "qwen2": Family("Qwen2Config", {}),
    "qwen2_moe": Family("Qwen2MoeConfig", {**_MOE, "shared_expert_intermediate_size": 16}),
    "qwen3": Family("Qwen3Config", {"head_dim": 16}),
    "qwen3_tied": Family("Qwen3Config", {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen3_moe": Family("Qwen3MoeConfig", {**_MOE, "head_dim": 8}),
    "qwen3_next": Family("Qwen3NextConfig", {**_MOE, "head_dim": 8}, "full attention|recurrent"),
    "olmo": Family("OlmoConfig", {}, "lacks 'rms_norm_eps'"),
    "olmo2": Family("Olmo2Config", {}),
    "olmoe": Family("OlmoeConfig", {"num_experts": 4, "num_experts_per_tok": 2}),
    "granite": Family("GraniteConfig", {"embedding_multiplier": 12.0, "residual_multiplier": 0.22}),
    "granite_scaled_logits": Family("GraniteConfig", {"logits_scaling": 8.0}, "logits_scaling"),
    "smollm3": Family("SmolLM3Config", {}),
    "phi3": Family("Phi3Config", {"sliding_window": None}),
    "phi3_sliding": Family("Phi3Config", {"sliding_window": 63}, "sliding-window"),
    "glm": Family("GlmConfig", {"head_dim": 8}),
    "glm4": Family("Glm4Config", {"head_dim": 8}),
    "exaone4": Family("Exaone4Config", {"sliding_window": None, "layer_types": ["full_attention"] * 2}),
    "hunyuan": Family("HunYuanDenseV1Config", {"head_dim": 8}),
    "deepseek_v3": Family(
        "DeepseekV3Config",
        {**_MLA, **_MOE, "num_key_value_heads": 4, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
         "first_k_dense_replace": 1},
    ),
    "gemma": Family("GemmaConfig", {"head_dim": 8}, "unsupported activation"),
    "gemma2": Family("Gemma2Config", {"head_dim": 8}, "full attention|sliding"),
    "gemma3": Family("Gemma3TextConfig", {"head_dim": 8}, "full attention|sliding"),
    "cohere": Family("CohereConfig", {"logit_scale": 1.0}, "lacks 'rms_norm_eps'"),
    "starcoder2": Family("Starcoder2Config", {"sliding_window": None}, "unsupported activation|lacks 'rms_norm_eps'"),
    "stablelm": Family("StableLmConfig", {}, "lacks 'rms_norm_eps'"),
    "nemotron": Family("NemotronConfig", {}, "unsupported activation|lacks 'rms_norm_eps'"),
    "phi": Family("PhiConfig", {}, "unsupported activation|lacks 'rms_norm_eps'"),
    "gpt_oss": Family("GptOssConfig", {"head_dim": 8, "num_local_experts": 4}, "full attention|sliding"),
    "gpt_neox": Family("GPTNeoXConfig", _MHA, "lacks|unsupported", alone=True),
    "gpt2": Family("GPT2Config", {**_SMALL_GPT, "vocab_size": 320, "n_embd": 32}, "lacks", alone=True),
    "falcon": Family("FalconConfig", _SMALL_LAYERS, "lacks", alone=True),
    "opt": Family("OPTConfig", {**_SMALL_LAYERS, "ffn_dim": 48, "word_embed_proj_dim": 32}, "lacks", alone=True),
    "bloom": Family("BloomConfig", {**_SMALL, **_SMALL_GPT}, "lacks", alone=True),
    "mamba": Family("MambaConfig", {**_SMALL, "num_hidden_layers": 2, "state_size": 4}, "recurrent", alone=True),
    "lfm2": Family("Lfm2Config", {}, "full attention|lacks"),
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of a family: `finished` or `refused`, at which stage, and what was said."""

    what: str
    stage: str
    detail: str


def write_source(name: str, folder: Path) -> Path:
    """Returns `folder`, now a random model of the family with a byte-level tokenizer and a ChatML template."""
    torch.manual_seed(0)
    family, tokenizer = FAMILIES[name], byte_tokenizer([TEXT] * 4)
    ids = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": 0}
    settings = family.changes if family.alone else {**_BASE, **family.changes}
    config = getattr(transformers, family.config)(**{**settings, **ids})
    model = AutoModelForCausalLM.from_config(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    folder.mkdir(parents=True)
    save_model(model, tokenizer, folder)
    return folder


def stages(folder: Path) -> list[tuple[str, list[object]]]:
    """Returns the command lines that follow prepare_target, in a folder that holds corpus, prompts and source."""
    target, tokens = ["--target", folder / "target"], folder / "tokens.safetensors"
    trees = ["--depth", 2, "--top-k", 3]
    strategies = '[{"strategy": "single", "drafters": ["math"]}]'
    return [
        ("tokenise", [*target, "--corpus", folder / "corpus.jsonl", "--max-length", 64, "--seed", 0,
                      "--output", tokens, "--audit", folder / "audit.json"]),
        ("features", [*target, "--tokens", tokens, "--output", folder / "features"]),
        ("mixture", ["--tokens", f"math={tokens}", "--share", "math=1.0", "--output", folder / "mixture.json"]),
        ("train", [*target, "--mixture", folder / "mixture.json", "--tokens", f"math={tokens}",
                   "--features", f"math={folder / 'features'}", "--epochs", 0.1, "--batch-size", 4,
                   "--alignment-passes", 2, "--state", folder / "state", "--output", folder / "math"]),
        ("trace", [*target, "--prompts", folder / "prompts.jsonl", "--max-new-tokens", 6, "--batch-size", 2,
                   "--output", folder / "trace.safetensors"]),
        ("bank", [*target, "--drafter", folder / "math", "--trace", folder / "trace.safetensors", *trees,
                  "--num-nodes", 8, "--output", folder / "bank.safetensors"]),
        ("live_check", [*target, "--drafter", f"math={folder / 'math'}", "--trace", folder / "trace.safetensors",
                        "--bank", f"math={folder / 'bank.safetensors'}", "--num-draft-tokens", 8, "--num-prompts", 2,
                        "--strategies", strategies, "--output", folder / "live.json"]),
    ]  # fmt: skip


def write_texts(folder: Path) -> None:
    """Writes a corpus of eight conversations and two prompts of unequal length."""
    say = [{"role": "user", "text": "How many are there?"}, {"role": "assistant", "text": TEXT}]
    write_jsonl(folder / "corpus.jsonl", [{"id": str(i), "turns": say} for i in range(8)], kind="corpus", provenance={})
    prompts = [{"id": str(i), "category": None, "turns": [TEXT[: 4 + 30 * i]], "reference": None} for i in range(2)]
    write_jsonl(folder / "prompts.jsonl", prompts, kind="prompts", provenance={})


def _call(stage: str, flags: Sequence[object]) -> None:
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        importlib.import_module(f"taps.{stage}").main([str(flag) for flag in flags])


def prepare(name: str, folder: Path) -> Outcome | None:
    """Returns the refusal of prepare_target; None where it accepted the family, whose target then is in `folder`."""
    source = write_source(name, folder / "source")
    try:
        _call("prepare_target", ["--source", source, "--output", folder / "target"])
    except TapsError as error:
        return Outcome("refused", "prepare_target", str(error).replace(f"{source}", name))
    return None


def finish(folder: Path, *, call: Callable[[str, Sequence[object]], None] = _call) -> Outcome:
    """Returns what the stages behind prepare_target made of the target in `folder`."""
    write_texts(folder)
    for stage, flags in stages(folder):
        try:
            call(stage, flags)
        except TapsError as error:
            return Outcome("refused", stage, str(error))
    (row,) = read_json(folder / "live.json", kind="live_check")["rows"]
    equal = f"{row['num_equal_texts']} of {row['num_texts']} texts as recorded"
    cycles = row["num_compared_cycles"] - row["num_different_cycles"]
    equal += f", {cycles} of {row['num_compared_cycles']} cycles as replayed"
    same = row["num_equal_texts"] == row["num_texts"] and not row["num_different_cycles"]
    return Outcome("finished" if same else "differs", "live_check", equal)


def main(names: Sequence[str]) -> None:
    """Prints a Markdown table of what became of the families."""
    transformers.logging.set_verbosity_error()
    print("| family | configuration | outcome | stage | |\n|---|---|---|---|---|")
    for name in names or list(FAMILIES):
        with tempfile.TemporaryDirectory() as folder:
            outcome = prepare(name, Path(folder)) or finish(Path(folder))
        cells = [name, FAMILIES[name].config, outcome.what, outcome.stage, outcome.detail]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
