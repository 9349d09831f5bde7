"""One template per target, which renders the same on every day; a study's date and options stand in it."""

from __future__ import annotations

import argparse
import json
import signal
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from taps.data import chat_template
from taps.data.chat import ChatTokenizer, TokenRow
from taps.data.chat_template import (
    DATE,
    PROBE,
    RefusedByTemplateError,
    day,
    one_template,
    render,
    render_marked,
    settle_template,
    settled_template,
    template_option,
)
from taps.data.stop_tokens import end_of_turn, stop_ids
from taps.plumbing.errors import TapsError
from tests.support.chat_fixtures import CHATML, FAMILIES, LLAMA3, flat, make_tokenizer, save_target

STUDIES = Path(__file__).parents[2] / "workflow" / "studies"
DATED = "{{ '<|im_start|>system\n' + strftime_now('%d %b %Y') + '<|im_end|>\n' }}"
TODAY = date.today()

# Qwen3's behaviour in few words: reasoning is written in front of the last answer only
QWEN = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' -}}
{%- if message.role == 'assistant' and loop.last -%}{{- '<think>\n\n</think>\n\n' -}}{%- endif -%}
{{- message.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}
{%- if enable_thinking is defined and not enable_thinking -%}{{- '<think>\n\n</think>\n\n' -}}{%- endif -%}
{%- endif -%}"""
TURNS = [
    {"role": "user", "text": "What is two?"},
    {"role": "assistant", "text": "It is four."},
    {"role": "user", "text": "the capital?"},
    {"role": "assistant", "text": "Paris"},
]


def rendered(template: str, messages: Any = PROBE, **options: Any) -> str:
    tokenizer = make_tokenizer("chatml")
    tokenizer.chat_template = template
    return render(tokenizer, messages, **options)


def taught(template: str) -> tuple[list[str], int]:
    """Returns (supervised texts, answers that are not) of TURNS."""
    chat = ChatTokenizer(make_tokenizer("chatml", template=template))
    (row,) = chat.encode([TURNS])
    assert isinstance(row, TokenRow)
    text = "".join(
        chat.tokenizer.decode([token]) if supervised else "\0"
        for token, supervised in zip(row.tokens, row.supervised, strict=True)
    )
    return [part for part in text.split("\0") if part], row.num_rewritten


# --- the date --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("{{ strftime_now('%d %b %Y') }}", "02 Jan 2025"),
        ('{% if strftime_now is defined %}{{ strftime_now( "%Y-%m-%d" ) }}{% else %}never{% endif %}', "2025-01-02"),
        ("{% set today = strftime_now('%B') %}{{ today }} {{ strftime_now('%Y') }}", "January 2025"),
        ("{{ 'no date' }}", "no date"),
    ],
)
def test_templates_are_told_the_studys_date(call, expected):
    text = rendered(settled_template(flat(call + CHATML), today=date(2025, 1, 2)))
    assert text == expected + rendered(flat(CHATML))


def test_a_date_nobody_settled_is_not_todays():
    text = rendered(DATED + CHATML)
    assert DATE.strftime("%d %b %Y") in text
    assert TODAY.strftime("%d %b %Y") not in text
    row, again = (ChatTokenizer(make_tokenizer("chatml", template=DATED + CHATML)).encode([TURNS])[0] for _ in "ab")
    assert isinstance(row, TokenRow)
    assert isinstance(again, TokenRow)
    assert row.tokens.tolist() == again.tokens.tolist()


def test_the_date_is_in_the_digest_and_costs_others_nothing():
    dated = flat(DATED + CHATML)
    digests = {
        ChatTokenizer(make_tokenizer("chatml", template=settled_template(dated, today=day))).template_digest
        for day in (DATE, date(2025, 1, 2))
    }
    assert len(digests) == 2
    assert settled_template(dated, today=DATE) == settled_template(settled_template(dated, today=DATE), today=TODAY)
    assert settled_template(flat(CHATML), today=date(2025, 1, 2)) == flat(CHATML)


@pytest.mark.parametrize(
    "call",
    [
        "{{ strftime_now(format) }}",
        "{{ strftime_now('%d' + sep) }}",
        "{{ strftime_now() }}",
        "{% set now = strftime_now %}{{ now('%H:%M') }}",
        "{{ [strftime_now][0]('%c') }}",
        "{{ '%c' | map(strftime_now) }}",
    ],
)
def test_a_format_that_only_the_template_knows_is_refused(call):
    with pytest.raises(TapsError, match=r"writes a date in a format that it computes; name a Jinja file without it"):
        settled_template(call)


# --- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (False, "False"),
        (True, "True"),
        (None, "None"),
        (3, "3"),
        (1.5, "1.5"),
        ("a 'b' \"c\" %} é\n", "a 'b' \"c\" %} é\n"),
    ],
)
def test_options_have_their_values(value, expected):
    assert rendered(settled_template("{{ option }}", options={"option": value})) == expected


@pytest.mark.parametrize(
    "start", ["", "\n", "  \n", "text ", "{#- note -#}\n", "{%- set x = 1 -%}\n", "  {% set x = 1 %}"]
)
def test_what_stands_in_front_changes_no_blank(start):
    template = f"{start}{{% for message in messages %}}{{{{ message.content }}}}{{% endfor %}}"
    settled = settled_template(template, options={"a": 1, "b": "x"})
    assert settled != template
    assert rendered(settled) == rendered(template)


@pytest.mark.parametrize("options", [{"a b": 1}, {"a": [1]}, {"a": {"b": 1}}, {"1a": 1}, {"a\n": 1}])
def test_what_is_no_option_is_refused(options):
    with pytest.raises(TapsError, match=r"target\.template_options\..*not an option"):
        settled_template(CHATML, options=options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("enable_thinking=false", ("enable_thinking", False)),
        ("n=3", ("n", 3)),
        ('name="x"', ("name", "x")),
        ("name=plain text", ("name", "plain text")),
        ("name=", ("name", "")),
    ],
)
def test_options_on_the_command_line(text, expected):
    assert template_option(text) == expected


# --- Qwen3 -----------------------------------------------------------------------------------------------------------


def test_thinking_that_is_on_is_taught_with_the_last_answer_only():
    assert taught(QWEN) == (["<think>\n\n</think>\n\nParis<|im_end|>"], 1)


def test_thinking_that_is_off_is_in_the_prompt_and_not_taught():
    assert taught(settled_template(flat(QWEN), options={"enable_thinking": False})) == (["Paris<|im_end|>"], 1)


def test_the_shipped_template_teaches_every_answer_and_no_thinking():
    shipped = (STUDIES / "qwen3.jinja").read_text()
    tokenizer = make_tokenizer("chatml")
    tokenizer.chat_template = shipped
    chat = ChatTokenizer(tokenizer)
    (row,) = chat.encode([TURNS])
    assert isinstance(row, TokenRow)
    assert row.num_rewritten == 0
    assert chat.tokenizer.decode(row.tokens[row.supervised]) == "It is four.<|im_end|>Paris<|im_end|>"
    (prompt,) = chat.encode_prompts([TURNS[:-1]])
    assert isinstance(prompt, list)
    assert chat.tokenizer.decode(prompt).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert row.tokens[: len(prompt)].tolist() == prompt


# --- which template, and its end of turn -----------------------------------------------------------------------------

NAMED = {"default": flat(LLAMA3), "tool_use": "{{ 'tools' }}"}


def test_of_several_templates_the_default_one_is_taken():
    tokenizer = make_tokenizer("llama3")
    expected = ChatTokenizer(make_tokenizer("llama3"))
    tokenizer.chat_template = NAMED
    tokenizer.eos_token = None
    assert end_of_turn(tokenizer) == expected.tokenizer.convert_tokens_to_ids("<|eot_id|>")
    chat = ChatTokenizer(tokenizer, eos_ids=[1])
    assert chat.template_digest == expected.template_digest
    row, other = (each.encode([TURNS])[0] for each in (chat, expected))
    assert isinstance(row, TokenRow)
    assert isinstance(other, TokenRow)
    assert row.tokens.tolist() == other.tokens.tolist()


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"rag": "a", "tool_use": "b"}, "has several chat templates, expected a `default`, found rag, tool_use"),
        ({}, "has no chat template"),
        (None, "has no chat template"),
        ("", "has no chat template"),
        (" \n", "has no chat template"),
        ({"default": None}, "has several chat templates|has no chat template"),
        (7, "has no chat template"),
    ],
)
def test_no_one_template(template, message):
    with pytest.raises(TapsError, match=message + r".*target\.chat_template"):
        one_template(template, where="tokenizer")


def test_the_only_named_template_is_the_one():
    assert one_template({"chat": "x"}, where="tokenizer") == "x"


@pytest.mark.parametrize("family", FAMILIES)
def test_end_of_turn_of_each_family(family):
    tokenizer = make_tokenizer(family)
    assert end_of_turn(tokenizer) == tokenizer.eos_token_id


ENDINGS = {  # what a template writes after an answer -> the end of turn that it is
    "mark": ("<|im_end|>", "<|im_end|>"),
    "blank before it": (" \n<|im_end|>", "<|im_end|>"),
    "mark that was only added": ("<|turn|>\n", "<|turn|>"),
    "text before it": (" Over.<|im_end|>", None),
    "text": ("\n\n", None),
    "nothing": ("", None),
}


@pytest.mark.parametrize("kind", ENDINGS)
def test_the_end_of_turn_is_what_the_template_writes(kind, tmp_path):
    ending, expected = ENDINGS[kind]
    template = "{% for message in messages %}{{ message.role + ': ' + message.content + ENDING }}{% endfor %}"
    tokenizer = make_tokenizer("chatml", template=template.replace("ENDING", json.dumps(ending)))
    tokenizer.add_tokens(["<|turn|>"])  # not as a special one
    found = None if expected is None else tokenizer.convert_tokens_to_ids(expected)
    assert end_of_turn(tokenizer) == found
    assert stop_ids(tmp_path, tokenizer) == {tokenizer.eos_token_id} | ({found} if found is not None else set())


@pytest.mark.parametrize("content", ["", "[1]", "{", '"x"'])
def test_a_broken_config_says_so(content, tmp_path):
    (tmp_path / "generation_config.json").write_text(content)
    with pytest.raises(TapsError, match=r"generation_config\.json: not a JSON object"):
        stop_ids(tmp_path, make_tokenizer("chatml"))


@pytest.mark.parametrize("template", ["{{ 1 / 0 }}", "{% include 'x' %}", "{{ raise_exception('never') }}"])
def test_a_template_that_renders_nothing_says_so(template):
    tokenizer = make_tokenizer("chatml", template=template)
    with pytest.raises(RefusedByTemplateError):
        render(tokenizer, PROBE)
    with pytest.raises(TapsError, match=r"cannot render a conversation, found .*target\.chat_template"):
        end_of_turn(tokenizer)


ENDLESS = "{% for _ in range(90000) %}" * 3 + "{{ '' }}" + "{% endfor %}" * 3


@pytest.mark.parametrize(
    "loop",
    [
        ENDLESS,
        "{% macro f(n) %}{{ f(n + 1) if n < 28 }}{{ f(n + 1) if n < 28 }}{% endmacro %}{{ f(0) }}",
        ENDLESS.replace("range(90000)", "messages[0].content * 90000"),
    ],
    ids=["loops", "recursion", "over the text"],
)
@pytest.mark.parametrize("family", ["chatml", "marked"])
def test_a_template_without_an_end_is_refused_in_time(family, loop, monkeypatch):
    monkeypatch.setattr(chat_template, "_LONGEST_S", 0.2)
    before = signal.getsignal(signal.SIGALRM)
    tokenizer = make_tokenizer(family)
    tokenizer.chat_template += loop
    with pytest.raises(RefusedByTemplateError, match=r"not done after 0\.2 s"):
        (render_marked if family == "marked" else render)(tokenizer, PROBE)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize("text", ["2024-13-01", "2024-07-26\n", "today", "", "24-07-26"])
def test_a_day_that_is_none_says_so(text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"expected a day, e\.g\. 2024-07-26"):
        day(text)


# --- a target's folder -----------------------------------------------------------------------------------------------


def test_a_plain_template_stays_where_it_is(tmp_path):
    save_target(tmp_path, "chatml")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    settle_template(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_date_and_options_are_written_into_the_folders_template(tmp_path):
    save_target(tmp_path, "chatml", template=DATED + QWEN)
    settle_template(tmp_path, today=date(2025, 1, 2), options={"enable_thinking": False})
    chat = ChatTokenizer.load(tmp_path)
    (prompt,) = chat.encode_prompts([TURNS[:1]])
    assert isinstance(prompt, list)
    text = chat.tokenizer.decode(prompt)
    assert "02 Jan 2025" in text
    assert text.endswith("</think>\n\n")


def test_templates_in_a_list_become_the_one(tmp_path):
    save_target(tmp_path, "llama3")
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    listed = [{"name": name, "template": template} for name, template in NAMED.items()]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": listed}))
    (tmp_path / "chat_template.jinja").unlink(missing_ok=True)
    settle_template(tmp_path)
    assert (tmp_path / "chat_template.jinja").read_text() == NAMED["default"]
    assert ChatTokenizer.load(tmp_path).tokenizer.chat_template == NAMED["default"]


def test_a_file_replaces_the_folders_template(tmp_path):
    save_target(tmp_path / "target", "chatml")
    (tmp_path / "other.jinja").write_text(DATED + "{{ messages[0].content }}\r\n", newline="")
    settle_template(tmp_path / "target", template=tmp_path / "other.jinja")
    with open(tmp_path / "target" / "chat_template.jinja", newline="") as file:
        assert file.read().endswith("{{ messages[0].content }}\r\n")
    with pytest.raises(TapsError, match="no such file"):
        settle_template(tmp_path / "target", template=tmp_path / "absent.jinja")


def test_a_folder_without_a_template_is_left_alone(tmp_path):
    settle_template(tmp_path, options={"a": 1})
    assert list(tmp_path.iterdir()) == []
