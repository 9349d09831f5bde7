"""Chat templates: one per target, rendered one way, with nothing in the text that changes from day to day.

A template may ask for today's date (`strftime_now`: Llama-3.1 and later) and for options (`enable_thinking`: Qwen3).
`settled_template` writes a study's answers to both into the template itself, so that its hash holds them and whoever
loads the target renders the same prompts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from taps.plumbing.errors import TapsError
from taps.plumbing.strangers import read_object

DATE = date(2024, 7, 26)
"""What templates are told that today is unless a study says otherwise."""

FILE = "chat_template.jinja"

PROBE = [{"role": "user", "content": "ping"}, {"role": "assistant", "content": "pong"}]
"""A conversation that any template must be able to render."""

_SETTLED = "{% macro strftime_now(format) %}"
_DATE_CALL = re.compile(r"strftime_now\s*\(")
_DATE_IN_DISGUISE = re.compile(r"strftime_now(?!\s*\(|\s+is\s+(?:not\s+)?defined)")  # under another name, as a filter
_DATE_FORMAT = re.compile(r"""strftime_now\s*\(\s*(?:'([^'\\]*)'|"([^"\\]*)")\s*\)""")


_LONGEST_S = 10.0
"""What a template may take for one conversation; real ones take milliseconds."""


class RefusedByTemplateError(Exception):
    """A template raised an error of its own, or broke, over a conversation."""


class _EndlessError(Exception):
    """A template ran too long."""


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
    with _refusals():
        return str(
            tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                chat_template=template,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
            )
        )


def render_marked(tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[tuple[int, int]]]:
    """Returns (text, characters [begin, end) of each `{% generation %}` block) of messages.

    Raises:
        As `render`.
    """
    from transformers.utils.chat_template_utils import render_jinja_template

    template = settled_template(one_template(tokenizer.chat_template, where="tokenizer"))
    with _refusals():
        rendered: Any = render_jinja_template(  # annotated as str; returns (texts, spans) of the conversations
            conversations=[[dict(message) for message in messages]],
            chat_template=template,
            return_assistant_tokens_mask=True,
            **tokenizer.special_tokens_map,
        )
    (text,), (spans,) = rendered
    return text, spans


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Turns into RefusedByTemplateError what a template's code can raise, and that it does not come to an end.

    It has its own complaints, and Python's about its arithmetic and types. Only the main thread can be interrupted.
    """
    from jinja2 import TemplateError

    may_interrupt = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGALRM, _interrupt) if may_interrupt else None
    if may_interrupt:
        signal.setitimer(signal.ITIMER_REAL, _LONGEST_S)
    try:
        yield
    except (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RefusedByTemplateError(_line(error)) from error
    except (RecursionError, MemoryError, _EndlessError) as error:
        raise RefusedByTemplateError(_line(error)) from None  # their traces are long, and say nothing
    finally:
        if may_interrupt:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def _interrupt(number: int, frame: object) -> None:
    raise _EndlessError(f"not done after {_LONGEST_S:g} s")


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
    num_calls, is_disguised = len(_DATE_CALL.findall(template)), _DATE_IN_DISGUISE.search(template)
    if (num_calls or is_disguised) and _SETTLED not in template:
        formats = [single or double for single, double in _DATE_FORMAT.findall(template)]
        if is_disguised or len(formats) < num_calls:
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


def day(text: str) -> date:
    """Returns the day that `2024-07-26` names; an argparse type.

    Raises:
        ArgumentTypeError: there is no such day.
    """
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a day, e.g. {DATE}, found {text!r}") from None


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
    folder: Path,
    *,
    template: Path | None = None,
    today: date = DATE,
    options: Mapping[str, Any] | None = None,
    where: Path | None = None,
) -> None:
    """Writes a model folder's one chat template, settled, to its chat_template.jinja; nothing where it has none.

    A template that is the only one and asks for nothing stays where it is.

    Args:
        folder: Hugging Face folder with a tokenizer.
        template: Jinja file that replaces the tokenizer's own.
        today: As in `settled_template`, likewise `options`.
        where: What the folder was made from, for messages.

    Raises:
        TapsError: no such file, several templates and none that is the default, or as in `settled_template`.
    """
    if template is not None and not template.is_file():
        raise TapsError(f"--chat-template {template}", "no such file")
    own, is_only_one = _own_template(folder, where or folder) if template is None else (_read(template), False)
    if own is not None:
        settled = settled_template(own, today=today, options=options)
        if settled != own or not is_only_one:
            (folder / FILE).write_text(settled, encoding="utf-8", newline="\n")


def _own_template(folder: Path, where: Path) -> tuple[str | None, bool]:
    """Returns (template of a tokenizer's folder, whether it is the only one): its own file's, else the config's."""
    if (folder / FILE).is_file():
        return _read(folder / FILE, where=where / FILE), True
    name = "tokenizer_config.json"
    path = folder / name
    named = read_object(path, remedy="fetch the model again").get("chat_template") if path.is_file() else None
    if isinstance(named, list):  # as transformers writes several
        named = {entry.get("name"): entry.get("template") for entry in named if isinstance(entry, dict)}
    return (one_template(named, where=where / name), isinstance(named, str)) if named else (None, True)


def _read(path: Path, *, where: object = None) -> str:
    """Returns a file's text with its line ends as they are, which are part of a template."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except UnicodeDecodeError:
        raise TapsError(where or path, "not UTF-8", expected="a Jinja template") from None
