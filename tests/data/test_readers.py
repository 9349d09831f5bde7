"""Readers are found by name, cost nothing to list, and an added one changes the code of nobody else's inputs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from taps.data.conversations import Conversation
from taps.data.corpus_reader import CORPUS_READERS
from taps.data.corpus_readers.gsm8k_solutions import gsm8k_solutions
from taps.data.prompt_reader import PROMPT_READERS
from taps.plumbing.catalogue import Catalogue
from taps.plumbing.code_digest import import_closure
from taps.plumbing.errors import TapsError
from taps.study import data
from taps.study.config import read, validate
from taps.study.schema import SCHEMA

CATALOGUES: dict[str, Catalogue[Any]] = {"corpus": CORPUS_READERS, "prompt": PROMPT_READERS}


def test_listing_readers_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from taps.data.corpus_reader import CORPUS_READERS\n"
        "from taps.data.prompt_reader import PROMPT_READERS\n"
        "print(len(CORPUS_READERS) + len(PROMPT_READERS), *sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    number, *modules = result.stdout.split()
    assert int(number) >= 13
    heavy = {"torch", "pandas", "transformers", "datasets", "pyarrow", "reasoning_gym", "numpy"}
    assert not heavy.intersection(modules)


@pytest.mark.parametrize("what", CATALOGUES)
def test_stages_reach_no_reader_and_no_reader_another(what):
    package = f"taps.data.{what}_readers."
    stage = {"corpus": "taps.corpus", "prompt": "taps.prompts"}[what]
    assert not [name for name in import_closure(stage) if name.startswith(package)]
    for module in CATALOGUES[what].modules():
        assert [name for name in import_closure(module) if name.startswith(package)] == [module]


def test_unknown_readers_are_told_the_known_ones():
    with pytest.raises(TapsError, match=r"corpus reader 'sharegtp': unknown, .*did you mean sharegpt\?"):
        CORPUS_READERS.find("sharegtp")
    with pytest.raises(TapsError, match=r"prompt reader 'gsm': unknown"):
        PROMPT_READERS.find("gsm")


def test_digests_count_the_reader_that_is_named():
    config = validate(read([SCHEMA.parent.parent / "studies" / "smoke.yaml"]), root=SCHEMA.parent.parent.parent)
    before = data.corpus_code(config, "chat"), data.prompts_code(config, "mt_bench")
    config["corpora"]["chat"]["reader"] = "hub"
    config["benchmarks"]["mt_bench"]["reader"] = "question_jsonl"
    after = data.corpus_code(config, "chat"), data.prompts_code(config, "mt_bench")
    assert before[0] != after[0]
    assert before[1] != after[1]


# --- GSM8K with human solutions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "expected", "notes"),
    [
        ("He has 48/2 = <<48/2=24>>24 clips.\n#### 24", "He has 48/2 = 24 clips.\nThe answer is 24.", []),
        ("So $<<5*1000=5000>>5,000.\n#### 5,000", "So $5,000.\nThe answer is 5,000.", []),
        ("#### -3.5", "The answer is -3.5.", []),
        ("One.\r\n#### 1 \n", "One.\nThe answer is 1.", []),
        ("It is <<1+1=2>>2.", "It is 2.", ["without #### before the result"]),
        ("Is 3 << 4? Yes >> no.\n#### 1", "Is 3 << 4? Yes >> no.\nThe answer is 1.", []),
    ],
)
def test_solutions_read_as_somebody_would_say_them(answer, expected, notes):
    found = gsm8k_solutions.read({"question": " How many? ", "answer": answer})
    assert isinstance(found, Conversation)
    assert [turn.text for turn in found.turns] == ["How many?", expected]
    assert found.all_notes() == notes


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"question": "How many?"}, "empty_output"),
        ({"answer": "#### 1"}, "empty_instruction"),
        ({"question": "a\0b", "answer": "1"}, "nul_character"),
    ],
)
def test_solutions_that_cannot_be_used(record, reason):
    assert gsm8k_solutions.read(record) == reason
