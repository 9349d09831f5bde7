"""The coloured print shows exactly the supervised text."""

import pytest

from taps import show_mask
from taps.plumbing.artefacts import write_jsonl
from taps.plumbing.errors import TapsError
from tests.support.chat_fixtures import save_target

TURNS = [{"role": "user", "text": "What?"}, {"role": "assistant", "text": "It is four."}]
CORPUS = [{"id": "a", "turns": TURNS}, {"id": "b", "turns": [*TURNS, *TURNS]}, {"id": "c", "turns": TURNS[:1]}]


@pytest.fixture
def arguments(tmp_path):
    write_jsonl(tmp_path / "c.jsonl", CORPUS, kind="corpus", provenance={})
    return ["--target", str(save_target(tmp_path / "target", "chatml")), "--corpus", str(tmp_path / "c.jsonl")]


def test_marks_without_a_terminal(arguments, capsys):
    show_mask.main([*arguments, "--id", "b"])
    output = capsys.readouterr()
    turn = "<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n>>It is four.<|im_end|><<\n"
    assert output.out == "<|im_start|>system\nBe brief.<|im_end|>\n" + turn * 2 + "\n"
    assert output.err.startswith("b: ")


def test_colours(arguments, capsys):
    show_mask.main([*arguments, "--row", "0", "--colour", "always"])
    assert "\x1b[1;32mIt is four.<|im_end|>\x1b[0m" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("which", "message"),
    [(["--row", "3"], "no row 3"), (["--id", "z"], "no conversation 'z'"), (["--id", "c"], "no_supervised_token")],
)
def test_what_cannot_be_shown(arguments, which, message):
    with pytest.raises(TapsError, match=message):
        show_mask.main([*arguments, *which])
