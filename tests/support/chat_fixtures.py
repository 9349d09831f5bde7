"""Small tokenizers with the chat templates of ChatML, Llama-3 and Llama-2, written from their documented formats."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHATML = """\
{% for message in messages %}
{% if loop.first and message.role != 'system' %}{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}{% endif %}
{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

LLAMA3 = """\
{% for message in messages %}
{% if loop.first %}{{ bos_token }}{% endif %}
{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content | trim + '<|eot_id|>' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

LLAMA2 = """\
{% set offset = 1 if messages[0].role == 'system' else 0 %}
{% for message in messages[offset:] %}
{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{% if message.role == 'user' %}
{% set system = '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' if loop.first and offset else '' %}
{{ bos_token + '[INST] ' + system + message.content | trim + ' [/INST]' }}
{% else %}
{{ ' ' + message.content | trim + ' ' + eos_token }}
{% endif %}
{% endfor %}"""

# the same conversation in a template that marks the assistant's text itself
MARKED = """\
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\n' }}
{% if message.role == 'assistant' %}{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}
{% else %}{{ message.content + '<|im_end|>' }}{% endif %}
{{ '\n' }}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

_FAMILIES = {
    "chatml": (CHATML, "<|im_start|>", "<|im_end|>", []),
    "marked": (MARKED, "<|im_start|>", "<|im_end|>", []),
    "llama3": (LLAMA3, "<|begin_of_text|>", "<|eot_id|>", ["<|start_header_id|>", "<|end_header_id|>"]),
    "llama2": (LLAMA2, "<s>", "</s>", []),
}
FAMILIES = tuple(_FAMILIES)

_TEXT = ["the capital of France is Paris", "What is two plus two? It is four.", "system user assistant [INST] [/INST]"]


def flat(template: str) -> str:
    """Returns the template without the line breaks that only make it readable (those in strings are escapes)."""
    return template.replace("%}\n", "%}").replace("}}\n", "}}").replace("\n", "\\n")


def make_tokenizer(family: str, *, template: str | None = None) -> Any:
    """Returns a byte-level BPE tokenizer with the special tokens and the chat template of a family."""
    default, bos, eos, more = _FAMILIES[family]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[bos, eos, *more],
        show_progress=False,
    )
    backend.train_from_iterator(_TEXT, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=bos, eos_token=eos, chat_template=flat(template or default)
    )


def save_target(folder: Path, family: str, **options: Any) -> Path:
    """Writes the parts of a target's folder that tokenisation reads."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(family, **options)
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(f'{{"vocab_size": {len(tokenizer)}, "eos_token_id": {tokenizer.eos_token_id}}}')
    return folder
