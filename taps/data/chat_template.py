"""Chat templates: one per target, rendered one way, with nothing in the text that changes from day to day.

A template may ask for today's date (`strftime_now`: Llama-3.1 and later) and for options (`enable_thinking`: Qwen3).
`settled_template` writes a study's answers to both into the template itself, so that its hash holds them and whoever
loads the target renders the same prompts.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from taps.plumbing.errors import TapsError

DATE = date(2024, 7, 26)
"""What templates are told that today is unless a study says otherwise."""

FILE = "chat_template.jinja"

PROBE = [{"role": "user", "content": "ping"}, {"role": "assistant", "content": "pong"}]
"""A conversation that any template must be able to render."""

_SETTLED = "{% macro strftime_now(format) %}"
_DATE_CALL = re.compile(r"strftime_now\s*\(")
_DATE_FORMAT = re.compile(r"""strftime_now\s*\(\s*(?:'([^'\\]*)'|"([^"\\]*)")\s*\)""")


class RefusedByTemplateError(Exception):
    """A template raised an error of its own, or broke, over a conversation."""


def one_template(template: Any, *, where: object) -> str:
    """Returns a tokenizer's chat template; of several named ones that for plain conversations, `default`.

    Args:
        template: Jinja, or name -> Jinja, as `tokenizer.chat_template` is.

    Raises:
        TapsError: there is none, or several and none of that name.
    """
    remedy = "name a Jinja file in target.chat_template (--chat-template)"
    if isinstance(template, Mapping) and template:
        named = dict(template)
        template = named.get("default") or (next(iter(named.values())) if len(named) == 1 else None)
        if template is None:
            found = ", ".join(map(str, named))
            raise TapsError(where, "has several chat templates", expected="a `default`", found=found, remedy=remedy)
    if not isinstance(template, str) or not template.strip():
        raise TapsError(where, "has no chat template", remedy=remedy)
    return template


def render(tokenizer: Any, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = False) -> str:
    """Returns the text of messages {"role", "content"}; a template that still asks for the date gets DATE.

    Raises:
        TapsError: the tokenizer has no one template.
        RefusedByTemplateError: whatever the template raises or stumbles over.
    """
    template = settled_template(one_template(tokenizer.chat_template, where="tokenizer"))
    try:
        return str(
            tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                chat_template=template,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
            )
        )
    except _template_errors() as error:
        raise RefusedByTemplateError(_line(error)) from error


def render_marked(tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[tuple[int, int]]]:
    """Returns (text, characters [begin, end) of each `{% generation %}` block) of messages.

    Raises:
        As `render`.
    """
    from transformers.utils.chat_template_utils import render_jinja_template

    template = settled_template(one_template(tokenizer.chat_template, where="tokenizer"))
    try:
        rendered: Any = render_jinja_template(  # annotated as str; returns (texts, spans) of the conversations
            conversations=[[dict(message) for message in messages]],
            chat_template=template,
            return_assistant_tokens_mask=True,
            **tokenizer.special_tokens_map,
        )
    except _template_errors() as error:
        raise RefusedByTemplateError(_line(error)) from error
    (text,), (spans,) = rendered
    return text, spans


def _template_errors() -> tuple[type[Exception], ...]:
    """Returns what a template's code can raise: its own complaints, and Python's about its arithmetic and types."""
    from jinja2 import TemplateError

    return (TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# --- a study's date and options -------------------------------------------------------------------------------------


def settled_template(template: str, *, today: date = DATE, options: Mapping[str, Any] | None = None) -> str:
    """Returns a template to which the date and the options are no question any more.

    They are set in lines in front of it, whose line breaks Jinja swallows as transformers configures it. A template
    that asks for neither is returned as it is.

    Args:
        template: Source of a Jinja template.
        today: The date that `strftime_now` formats.
        options: Name -> text, number, true, false or null.

    Raises:
        TapsError: a date in a format that only the template knows, or an option that is no such value.
    """
    lines = [f"{{% set {name} = {_literal(name, value)} %}}\n" for name, value in sorted((options or {}).items())]
    if (num_calls := len(_DATE_CALL.findall(template))) and _SETTLED not in template:
        formats = [single or double for single, double in _DATE_FORMAT.findall(template)]
        if len(formats) < num_calls:
            remedy = "name a Jinja file without it in target.chat_template (--chat-template)"
            raise TapsError("chat template", "writes a date in a format that it computes", remedy=remedy)
        dates = json.dumps({each: today.strftime(each) for each in sorted(set(formats))})
        lines.append(f"{_SETTLED}{{{{ {dates}[format] }}}}{{% endmacro %}}\n")
    return "".join(lines) + template


def _literal(name: str, value: Any) -> str:
    if re.fullmatch(r"[A-Za-z_]\w*", name) and (value is None or isinstance(value, str | bool | int | float)):
        return "none" if value is None else json.dumps(value)
    raise TapsError(
        f"target.template_options.{name}", "not an option", expected="a name, and text, a number, true, false or null"
    )


def template_option(text: str) -> tuple[str, Any]:
    """Returns (name, value) of `enable_thinking=false`; the value is JSON, or else text. An argparse type.

    Raises:
        ArgumentTypeError: no name.
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, e.g. enable_thinking=false, found {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def settle_template(
    folder: Path, *, template: Path | None = None, today: date = DATE, options: Mapping[str, Any] | None = None
) -> None:
    """Writes a model folder's one chat template, settled, to its chat_template.jinja; nothing where it has none.

    A template that is the only one and asks for nothing stays where it is.

    Args:
        folder: Hugging Face folder with a tokenizer.
        template: Jinja file that replaces the tokenizer's own.
        today: As in `settled_template`, likewise `options`.

    Raises:
        TapsError: no such file, several templates and none that is the default, or as in `settled_template`.
    """
    if template is not None and not template.is_file():
        raise TapsError(f"--chat-template {template}", "no such file")
    own, is_only_one = _own_template(folder) if template is None else (_read(template), False)
    if own is not None:
        settled = settled_template(own, today=today, options=options)
        if settled != own or not is_only_one:
            (folder / FILE).write_text(settled, encoding="utf-8", newline="\n")


def _own_template(folder: Path) -> tuple[str | None, bool]:
    """Returns (template of a tokenizer's folder, whether it is the only one): its own file's, else the config's."""
    if (folder / FILE).is_file():
        return _read(folder / FILE), True
    path = folder / "tokenizer_config.json"
    try:
        named = json.loads(_read(path)).get("chat_template") if path.is_file() else None
    except (ValueError, AttributeError):
        raise TapsError(path, "not a JSON object", remedy="fetch the model again") from None
    if isinstance(named, list):  # as transformers writes several
        named = {entry.get("name"): entry.get("template") for entry in named if isinstance(entry, dict)}
    return (one_template(named, where=path), isinstance(named, str)) if named else (None, True)


def _read(path: Path) -> str:
    """Returns a file's text with its line ends as they are, which are part of a template."""
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()
