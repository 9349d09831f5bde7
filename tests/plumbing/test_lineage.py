"""What does not belong together is refused by name: other targets, tokens, drafters, studies, labels, runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from taps import bank, draft_vocab, join_texts, live_check, mixture, replay, tables, tokenise, trace, train
from taps.plumbing.errors import ArtefactError
from taps.plumbing.lineage import check_equal, check_label, common_cause, inputs_of
from tests.support.artefact_studies import Stage, Study

pytestmark = pytest.mark.slow


def swapped(flags: Sequence[str], old: str, new: str) -> list[str]:
    """Returns flags with a value in the place of another."""
    assert any(old in word for word in flags), (old, flags)
    return [word.replace(old, new) for word in flags]


MIXED_UP: dict[str, tuple[Stage, Callable[[Study, Study], list[str]], str]] = {
    "a trace of another target": (
        bank.main,
        lambda a, b: swapped(a.bank_flags("math"), a.at("trace.safetensors"), b.at("trace.safetensors")),
        r"b/trace\.safetensors: made from another target, expected \w{12} \(.*a/target\), found \w{12}; ",
    ),
    "a drafter of another target": (
        bank.main,
        lambda a, b: swapped(a.bank_flags("math"), a.at("drafters/math"), b.at("drafters/math")),
        r"b/drafters/math: made from another target",
    ),
    "tokens of two targets in a mixture": (
        mixture.main,
        lambda a, b: swapped(a.mixture_flags(), a.at("tokens/chat"), b.at("tokens/chat")),
        r"b/tokens/chat\.safetensors: made from another target, expected \w{12} \(.*a/tokens/math",
    ),
    "tokens of two targets in a draft vocabulary": (
        draft_vocab.main,
        lambda a, b: swapped(a.draft_vocab_flags(), a.at("tokens/chat"), b.at("tokens/chat")),
        r"b/tokens/chat\.safetensors: made from another target",
    ),
    "tokens that the mixture was not made from": (
        train.main,
        lambda a, b: swapped(a.train_flags(), f"chat={a.at('tokens/chat')}", f"chat={a.at('tokens/math')}"),
        r"a/mixture\.json: made from another tokens\.chat",
    ),
    "held-out texts of another target": (
        train.main,
        lambda a, b: [*a.train_flags(), "--heldout-trace", b.at("trace.safetensors")],
        r"b/trace\.safetensors: made from another target",
    ),
    "a start from another target's drafter": (
        train.main,
        lambda a, b: [*a.train_flags(), "--init-from", b.at("drafters/math")],
        r"b/drafters/math: made from another target",
    ),
    "calibration of another study": (
        replay.main,
        lambda a, b: swapped(a.replay_flags(), a.at("calibration.json"), b.at("calibration.json")),
        r"b/calibration\.json: made from another drafter \w+",
    ),
    "a router of another study": (
        replay.main,
        lambda a, b: swapped(a.replay_flags(), a.at("router.json"), b.at("router.json")),
        r"b/router\.json: made from another drafter \w+",
    ),
    "costs of another target": (
        live_check.main,
        lambda a, b: swapped(a.live_check_flags(), a.at("cost.json"), b.at("cost.json")),
        r"b/cost\.json: made from another target",
    ),
    "the chat bank passed as math": (
        replay.main,
        lambda a, b: swapped(swapped(swapped(a.replay_flags(), "math=", "x="), "chat=", "math="), "x=", "chat="),
        r"banks/\w+\.safetensors: of another drafter than --bank \w+= says, expected \w+, found \w+",
    ),
    "a bank of another study": (
        replay.main,
        lambda a, b: swapped(a.replay_flags(), a.at("banks/math"), b.at("banks/math")),
        r"b/banks/math\.safetensors: drafted along another text than .*a/trace",
    ),
    "a wrong benchmark label": (
        replay.main,
        lambda a, b: swapped(a.replay_flags(), "words", "gsm8k"),
        r"a/trace\.safetensors: of another benchmark than --benchmark says, expected gsm8k, found words",
    ),
    "a wrong method label": (
        replay.main,
        lambda a, b: swapped(a.replay_flags(), "eagle2", "hass"),
        r"a/banks/math\.safetensors: of another method than --method says, expected hass, found eagle2",
    ),
    "replays of two studies in one report": (
        tables.main,
        lambda a, b: swapped(a.tables_flags(), a.at("replays"), two_replays(a, b)),
        r"t1_s0\.parquet: made from another (target|drafter)",
    ),
    "speeds of another study's models": (
        tables.main,
        lambda a, b: swapped(a.tables_flags(), a.at("cost.json"), b.at("cost.json")),
        r"b/cost\.json: made from another target",
    ),
    "a drafter under another name": (
        tables.main,
        lambda a, b: [*a.tables_flags(), f"--drafter=eagle2/math={a.at('drafters/chat')}"],
        r"a/drafters/chat: made from another drafter eagle2/seed0/math",
    ),
    "the live check of another benchmark": (
        tables.main,
        lambda a, b: swapped(a.tables_flags(), "eagle2/words=", "eagle2/gsm8k="),
        r"a/live\.json: of another benchmark than --live says, expected gsm8k, found words",
    ),
    "parts of two runs": (
        join_texts.main,
        lambda a, b: swapped(a.join_texts_flags(), a.at("trace-1"), b.at("trace-1")),
        r"b/trace-1\.safetensors: made from another",
    ),
    "parts in another order": (
        join_texts.main,
        lambda a, b: list(reversed_parts(a)),
        r"--shard: not the parts of one run, in order, expected \[\[0, 2\], \[1, 2\]\], found \[\[1, 2\], \[0, 2\]\]",
    ),
    "a part that is missing": (
        join_texts.main,
        lambda a, b: a.join_texts_flags()[:-2],
        r"--shard: not the parts of one run, in order, expected \[\[0, 1\]\], found \[\[0, 2\]\]",
    ),
}


def two_replays(a: Study, b: Study) -> str:
    """Returns a folder with a replay of each study, under two conditions."""
    import pyarrow.parquet as pq

    from taps.plumbing.parquet import read_parquet_envelope, write_parquet

    folder = a.folder / "both"
    folder.mkdir(exist_ok=True)
    shutil.copyfile(a.at("replays/t0_s0.parquet"), folder / "t0_s0.parquet")
    other = Path(b.at("replays/t0_s0.parquet"))
    made = read_parquet_envelope(other, kind="replay")
    table = pq.read_table(other)
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    meta = {**made["meta"], "temperature": 1.0}
    write_parquet(folder / "t1_s0.parquet", columns, kind="replay", provenance=made["provenance"], meta=meta)
    return str(folder)


def reversed_parts(study: Study) -> Sequence[str]:
    kind, what, *parts = study.join_texts_flags()
    return [kind, what, *parts[2:], *parts[:2]]


@pytest.mark.parametrize("case", MIXED_UP)
def test_what_does_not_belong_together_is_refused(studies: tuple[Study, Study], case: str, tmp_path: Path) -> None:
    stage, flags, message = MIXED_UP[case]
    more = ["--state", str(tmp_path / "state")] if stage is train.main else []
    with pytest.raises(ArtefactError, match=message):
        stage([*flags(*studies), *more, "--output", str(tmp_path / "out.safetensors")])


def test_answers_of_another_target_are_not_tokenised(studies: tuple[Study, Study], tmp_path: Path) -> None:
    from taps import regenerate

    a, b = studies
    answered = tmp_path / "answered.jsonl"
    flags = ["--corpus", a.at("corpora/math.jsonl"), "--max-rows", "3", "--seed", "0", "--max-new-tokens", "8"]
    regenerate.main(
        ["--target", a.at("target"), *flags, "--output", str(answered), "--audit", str(tmp_path / "x.json")]
    )
    out = ["--output", str(tmp_path / "t.safetensors"), "--audit", str(tmp_path / "y.json")]
    for study in (b, a):
        flags = swapped(study.tokenise_flags("math"), study.at("corpora/math.jsonl"), str(answered))
        if study is b:
            with pytest.raises(ArtefactError, match=r"answered\.jsonl: made from another target"):
                tokenise.main([*flags, *out])
        else:
            tokenise.main([*flags, *out])


def test_a_study_that_belongs_together_passes(studies: tuple[Study, Study], tmp_path: Path) -> None:
    for name, study in zip("ab", studies, strict=True):
        replay.main([*study.replay_flags(), "--output", str(tmp_path / f"{name}.parquet")])
        assert inputs_of(tmp_path / f"{name}.parquet", kind="replay").keys() >= {"target", "trace", "drafter.math"}


def test_one_job_and_two_leave_the_same_trace(studies: tuple[Study, Study], tmp_path: Path) -> None:
    study = studies[0]
    trace.main([*study.trace_flags(), "--output", str(tmp_path / "one.safetensors")])
    one, joined = (
        inputs_of(path, kind="trace") for path in (tmp_path / "one.safetensors", Path(study.at("trace.safetensors")))
    )
    assert one == joined


def test_what_names_nothing_is_not_compared(tmp_path: Path) -> None:
    check_equal(tmp_path, "target", None, "a", wanted_by="x", kind="trace")
    check_equal(tmp_path, "target", "a", None, wanted_by="x", kind="trace")
    check_label(tmp_path, "benchmark", None, "gsm8k", flag="--benchmark")
    assert common_cause([], "target") == {}
