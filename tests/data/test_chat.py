"""Supervised tokens: exactly what the target would emit itself, for each family of chat templates."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taps.data.chat import ChatTokenizer, Reason, TokenRow
from taps.plumbing.errors import TapsError
from tests.support.chat_fixtures import CHATML, FAMILIES, make_tokenizer, save_target

QUESTION = {"role": "user", "text": "What is two plus two?"}
ANSWER = {"role": "assistant", "text": "It is four."}
TWO_TURNS = [
    QUESTION,
    ANSWER,
    {"role": "user", "text": "the capital?"},
    {"role": "assistant", "text": "Paris  is it\n"},
]
SYSTEM = {"role": "system", "text": "user assistant"}


@pytest.fixture(scope="module")
def chats():
    return {family: ChatTokenizer(make_tokenizer(family)) for family in FAMILIES}


def encode(chat: ChatTokenizer, turns, **options) -> Any:
    return chat.encode([turns], **options)[0]


def spans(chat: ChatTokenizer, row: TokenRow) -> list[str]:
    """Returns the text of each run of supervised tokens."""
    texts: list[list[int]] = [[]]
    for token, supervised in zip(row.tokens.tolist(), row.supervised.tolist(), strict=True):
        if supervised:
            texts[-1].append(token)
        elif texts[-1]:
            texts.append([])
    return [chat.tokenizer.decode(run) for run in texts if run]


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("chatml", ["It is four.<|im_end|>", "Paris  is it\n<|im_end|>"]),
        ("marked", ["It is four.<|im_end|>", "Paris  is it\n<|im_end|>"]),
        ("llama3", ["It is four.<|eot_id|>", "Paris  is it<|eot_id|>"]),
        ("llama2", [" It is four. </s>", " Paris  is it </s>"]),
    ],
)
@pytest.mark.parametrize("system", [[], [SYSTEM]])
def test_supervised_text_of_each_family(chats, family, expected, system):
    chat = chats[family]
    row = encode(chat, [*system, *TWO_TURNS])
    assert isinstance(row, TokenRow)
    assert spans(chat, row) == expected
    assert not row.truncated


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("which", [0, 1])
def test_an_answer_that_must_not_be_learnt_is_not_supervised(chats, family, which):
    chat = chats[family]
    marked = [dict(turn) for turn in TWO_TURNS]
    marked[2 * which + 1]["taught"] = False
    row, whole = encode(chat, marked), encode(chat, TWO_TURNS)
    assert row.tokens.tolist() == whole.tokens.tolist()
    assert spans(chat, row) == [spans(chat, whole)[1 - which]]
    marked[3 - 2 * which]["taught"] = False
    assert encode(chat, marked) is Reason.NO_SUPERVISED_TOKEN


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_are_those_of_the_template(chats, family):
    chat = chats[family]
    expected = chat.tokenizer.apply_chat_template([{"role": t["role"], "content": t["text"]} for t in TWO_TURNS])
    assert encode(chat, TWO_TURNS).tokens.tolist() == expected["input_ids"]


def test_literal_mask_of_chatml(chats):
    row = encode(chats["chatml"], [{"role": "user", "text": "a"}, {"role": "assistant", "text": "b"}])
    tokens = chats["chatml"].tokenizer.convert_ids_to_tokens(row.tokens)
    assert tokens[-3:] == ["b", "<|im_end|>", "Ċ"]
    assert row.supervised[-3:].tolist() == [True, True, False]  # the newline is the template's, not the model's
    assert not row.supervised[: len(tokens) - 3].any()
    assert "".join(tokens).endswith("<|im_start|>assistantĊb<|im_end|>Ċ")


def test_question_that_repeats_the_answer_is_not_supervised(chats):
    for chat in chats.values():
        row = encode(chat, [{"role": "user", "text": ANSWER["text"]}, ANSWER])
        assert len(spans(chat, row)) == 1
        assert row.supervised[len(row.tokens) // 2 :].sum() == row.supervised.sum()


@pytest.mark.parametrize("family", FAMILIES)
def test_truncation_keeps_a_prefix_and_drops_rows_without_supervision(chats, family):
    whole = encode(chats[family], TWO_TURNS)
    first = int(whole.supervised.argmax())
    for length in range(1, len(whole.tokens) + 2):
        row = encode(chats[family], TWO_TURNS, max_length=length)
        if length <= first:
            assert row is Reason.NO_SUPERVISED_TOKEN
        else:
            assert row.tokens.tolist() == whole.tokens[:length].tolist()
            assert row.supervised.tolist() == whole.supervised[:length].tolist()
            assert row.truncated == (length < len(whole.tokens))


@pytest.mark.parametrize(
    ("family", "literal"), [("chatml", "<|im_end|>"), ("llama3", "<|end_header_id|>"), ("llama2", "</s>")]
)
@pytest.mark.parametrize("place", [0, 1])
def test_typed_special_token_drops_the_row(chats, family, literal, place):
    turns = [QUESTION, ANSWER]
    turns[place] = {**turns[place], "text": f"what does {literal} mean"}
    assert encode(chats[family], turns) is Reason.SPECIAL_TOKEN_IN_TEXT
    assert chats[family].encode_prompts([[{"role": "user", "text": literal}]]) == [Reason.SPECIAL_TOKEN_IN_TEXT]


def test_other_families_special_tokens_are_ordinary_text(chats):
    row = encode(chats["chatml"], [{"role": "user", "text": "what is </s> <|eot_id|>?"}, ANSWER])
    assert spans(chats["chatml"], row) == ["It is four.<|im_end|>"]


def test_refusals_of_the_template_drop_the_row_only(chats):
    rows = chats["llama2"].encode([[QUESTION, QUESTION, ANSWER], [ANSWER], [], [QUESTION, ANSWER]])
    assert rows[:3] == [Reason.REFUSED_BY_TEMPLATE] * 3
    assert isinstance(rows[3], TokenRow)


BREAKING = {
    "division": "{{ 1 // 0 }}",
    "include": "{% include 'other.jinja' %}",
    "import": "{% import 'other.jinja' as other %}",
    "endless loop": "{% for i in range(10 ** 12) %}{% endfor %}",
    "endless recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "wrong type": "{{ messages[0].content + 1 }}",
    "no such item": "{{ messages[9].content.x.y }}",
    "its own complaint": "{{ raise_exception('no') }}",
    "unsafe": "{{ messages.__class__.__mro__ }}{{ messages.append(1) }}",
}


@pytest.mark.parametrize("kind", BREAKING)
def test_a_template_that_breaks_over_some_conversations_drops_these(kind):
    breaking = "{% if messages[0].content == 'break' %}" + BREAKING[kind] + "{% endif %}" + CHATML
    chat = ChatTokenizer(make_tokenizer("chatml", template=breaking))
    bad = [{"role": "user", "text": "break"}, ANSWER]
    rows = chat.encode([bad, [QUESTION, ANSWER]])
    assert rows[0] is Reason.REFUSED_BY_TEMPLATE
    assert isinstance(rows[1], TokenRow)
    assert chat.encode_prompts([bad[:1]]) == [Reason.REFUSED_BY_TEMPLATE]


def test_conversation_without_an_answer_is_dropped(chats):
    assert [encode(chat, [QUESTION]) for chat in chats.values()] == [Reason.NO_SUPERVISED_TOKEN] * len(chats)


FORGETFUL = CHATML.replace(
    "message.content +", "('' if message.role == 'assistant' and not loop.last else message.content) +"
)
THINKING_LAST = CHATML.replace(
    "{{ '<|im_start|>' + message.role",
    "{{ '<|im_start|>' + message.role + ('!' if message.role == 'assistant' and loop.last else '')",
).replace("'<|im_start|>assistant\n' }}{% endif %}", "'<|im_start|>assistant!\n' }}{% endif %}")
RENAMING = CHATML.replace("'<|im_start|>' + message.role", "'<|im_start|>' + message.role + messages | length | string")


@pytest.mark.parametrize("template", [FORGETFUL, THINKING_LAST], ids=["forgetful", "marks the last"])
def test_where_a_template_rewrites_earlier_turns_the_last_one_is_supervised(template):
    assert template != CHATML
    chat = ChatTokenizer(make_tokenizer("chatml", template=template))
    row = encode(chat, TWO_TURNS)
    assert spans(chat, row) == ["Paris  is it\n<|im_end|>"]
    assert row.num_rewritten == 1
    (prompt,) = chat.encode_prompts([TWO_TURNS[:-1]])
    assert row.tokens[: row.supervised.argmax()].tolist() == prompt
    alone = encode(chat, TWO_TURNS[:2])
    assert (spans(chat, alone), alone.num_rewritten) == (["It is four.<|im_end|>"], 0)


def test_a_broken_off_last_turn_loses_its_end_only_if_it_is_taught():
    chat = ChatTokenizer(make_tokenizer("chatml", template=FORGETFUL))
    cut = encode(chat, [*TWO_TURNS[:-1], TWO_TURNS[-1] | {"cut": True}])
    assert spans(chat, cut) == ["Paris  is it\n"]


def test_a_template_that_changes_the_beginning_leaves_nothing_to_use():
    chat = ChatTokenizer(make_tokenizer("chatml", template=RENAMING))
    assert encode(chat, TWO_TURNS) is Reason.TEMPLATE_NOT_PREFIX_STABLE


def test_generation_prompt_that_is_not_in_the_turn_is_detected():
    thinking = CHATML.replace(
        "'<|im_start|>assistant\n' }}{% endif %}", "'<|im_start|>assistant\n<think>' }}{% endif %}"
    )
    assert thinking != CHATML
    chat = ChatTokenizer(make_tokenizer("chatml", template=thinking))
    assert encode(chat, [QUESTION, ANSWER]) is Reason.TEMPLATE_NOT_PREFIX_STABLE


def test_all_supervised_is_an_error():
    everything = "{% generation %}{% for message in messages %}{{ message.content }}{% endfor %}{% endgeneration %}"
    chat = ChatTokenizer(make_tokenizer("marked", template=everything))
    with pytest.raises(TapsError, match="marks every token"):
        chat.encode([[QUESTION, ANSWER]])


def test_end_of_turn_that_is_not_the_eos_token_is_supervised():
    other = CHATML.replace("message.content + '<|im_end|>\n'", "message.content + '<|im_start|>\n'")
    chat = ChatTokenizer(make_tokenizer("chatml", template=other))
    assert spans(chat, encode(chat, [QUESTION, ANSWER])) == ["It is four.<|im_start|>"]


@pytest.mark.parametrize("family", FAMILIES)
def test_answer_that_was_broken_off_has_no_end_of_turn(chats, family):
    whole = encode(chats[family], TWO_TURNS)
    cut = encode(chats[family], [*TWO_TURNS[:-1], TWO_TURNS[-1] | {"cut": True}])
    end = int(whole.supervised.nonzero()[0][-1])
    assert whole.tokens[end] == chats[family].tokenizer.eos_token_id
    assert cut.tokens.tolist() == whole.tokens[:end].tolist()
    assert cut.supervised.tolist() == whole.supervised[:end].tolist()


def test_prompts_end_where_the_answer_begins(chats):
    for family, chat in chats.items():
        row = encode(chat, [QUESTION, ANSWER])
        (prompt,) = chat.encode_prompts([[QUESTION]])
        assert prompt == row.tokens[: row.supervised.argmax()].tolist(), family


@settings(deadline=None, max_examples=60)
@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), min_size=2, max_size=6),
    family=st.sampled_from(FAMILIES),
)
def test_any_text_gives_one_run_per_answer_that_ends_with_the_end_of_turn(chats, texts, family):
    """Runs decode to the answer as the template prints it, whatever was said."""
    chat = chats[family]
    texts = texts[: len(texts) // 2 * 2]
    turns = [{"role": ("user", "assistant")[i % 2], "text": text} for i, text in enumerate(texts)]
    row = encode(chat, turns)
    if row is Reason.SPECIAL_TOKEN_IN_TEXT:
        return
    printed = {"llama3": "{}", "llama2": " {} "}
    expected = [
        printed[family].format(text.strip()) + chat.tokenizer.eos_token
        if family in printed
        else text + chat.tokenizer.eos_token
        for text in texts[1::2]
    ]
    assert spans(chat, row) == expected


def test_load_reads_every_configured_end_of_turn(tmp_path):
    target = save_target(tmp_path / "target", "llama3")
    (target / "generation_config.json").write_text('{"eos_token_id": [0, 1]}')
    chat = ChatTokenizer.load(target)
    assert chat.eos_ids == [0, 1]
    assert chat.special_ids == [0, 1, 2, 3]
    assert isinstance(encode(chat, TWO_TURNS), TokenRow)


def test_folders_that_are_no_target_are_refused(tmp_path):
    with pytest.raises(TapsError, match=r"no usable tokenizer, .*pip install sentencepiece protobuf"):
        ChatTokenizer.load(tmp_path)
    tokenizer = make_tokenizer("chatml")
    tokenizer.chat_template = None
    with pytest.raises(TapsError, match="no chat template"):
        ChatTokenizer(tokenizer)
