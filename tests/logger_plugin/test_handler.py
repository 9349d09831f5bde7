"""The logger plugin, told what Snakemake tells it: which lines stay, and that nothing it meets stops a run."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.common import LogEvent
from snakemake_interface_logger_plugins.registry import LoggerPluginRegistry

from snakemake_logger_plugin_taps import LogHandler
from snakemake_logger_plugin_taps.handler import REPORTED, STUDY
from snakemake_logger_plugin_taps.screen import Screen

FACTS = {"study": "s", "results": "results/s", "report": "reports/s/index.html", "logs": "logs/s"}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "logs/s/corpus").mkdir(parents=True)


class Told:
    """A handler and what it is told."""

    def __init__(self, **settings: Any) -> None:
        defaults = {"printshellcmds": False, "nocolor": True, "quiet": None, "debug_dag": False, "verbose": False}
        defaults |= {"show_failed_logs": False, "stdout": False, "dryrun": False}
        self.handler = LogHandler(SimpleNamespace(**{**defaults, **settings}), None)  # type: ignore[arg-type]

    def tell(self, text: str = "", level: int = logging.INFO, **facts: Any) -> None:
        record = logging.LogRecord("snakemake", level, __file__, 1, text, None, None)
        record.__dict__.update(facts)
        self.handler.handle(record)

    def begin(self, **counts: int) -> None:
        study: dict[str, Any] = {STUDY: FACTS}
        self.tell("Study s", **study)
        self.tell(event=LogEvent.WORKFLOW_STARTED)
        self.tell("Provided cores: 2", event=LogEvent.RESOURCES_INFO, cores=2)
        self.tell("Job stats", event=LogEvent.RUN_INFO, stats={**counts, "total": sum(counts.values())})

    def start(self, jobid: int, rule: str, label: str, output: str = "out") -> None:
        facts: dict[str, Any] = {"rule_name": rule, "log": [f"logs/s/{label}.log"], "output": [output]}
        facts |= {"threads": 1, "reason": "Forced"}
        self.tell("job", event=LogEvent.JOB_INFO, jobid=jobid, **facts)

    def fail(self, jobid: int, rule: str, label: str) -> None:
        facts: dict[str, Any] = {"rule_name": rule, "log": [f"logs/s/{label}.log"]}
        self.tell("Error in rule", logging.ERROR, event=LogEvent.JOB_ERROR, jobid=jobid, **facts)
        self.tell("RuleException:\nCalledProcessError in file x", logging.ERROR, event=LogEvent.ERROR)

    def finish(self, jobid: int) -> None:
        self.tell("Finished", event=LogEvent.JOB_FINISHED, job_id=jobid)

    def end(self) -> None:
        self.handler.close()
        self.handler.close()  # as logging.shutdown does


def screen(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_snakemake_finds_it() -> None:
    plugin: Any = LoggerPluginRegistry().get_plugin("taps")
    assert plugin.log_handler is LogHandler


def test_a_run_from_its_plan_to_its_report(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told()
    told.begin(corpus=1, publish=1, all=1)
    told.start(1, "corpus", "corpus/chat")
    Path("logs/s/corpus/chat.log").write_text("warning: odd rows\nchat.json: read 60, kept 58\n")
    told.tell("reason: of Snakemake")
    told.finish(1)
    told.start(2, "publish", "publish", "reports/s/index.html")
    Path("logs/s/publish.log").write_text("reports/s/index.html: 1.1 MB\nSpecialists win at home.\n")
    Path("reports/s").mkdir(parents=True)
    Path("reports/s/index.html").write_text("")
    told.finish(2)
    told.tell("target", event=LogEvent.JOB_INFO, jobid=0, rule_name="all", log=[], output=[], threads=1)
    told.finish(0)
    told.end()
    assert screen(capsys) == [
        "Study s: 3 jobs on 2 cores; how long, no earlier run on this machine tells",
        "results in results/s, logs in logs/s, the report will be reports/s/index.html",
        "1/3  corpus chat: chat.json: read 60, kept 58 (1 s)",
        "  warning: odd rows",
        "2/3  publish: 1.1 MB (1 s)",
        "",
        "Study s: 3 of 3 jobs done in 1 s.",
        "The report: reports/s/index.html",
        "  Specialists win at home.",
    ]
    again = Told()
    again.begin(corpus=1, publish=1, all=1)
    again.start(1, "corpus", "corpus/chat")
    assert screen(capsys)[0] == "Study s: 3 jobs on 2 cores, about 1 s as earlier runs on this machine went"
    again.end()


@pytest.mark.parametrize(
    ("reported", "where"),
    [
        (None, []),
        ([], ["The report without them: reports/s/index.html"]),
        (["figures"], ["The report without them: snakemake --cores 1 figures"]),
    ],
)
def test_failures_come_last(capsys: pytest.CaptureFixture[str], reported: list[str] | None, where: list[str]) -> None:
    told = Told()
    told.begin(corpus=2, tokenise=2, all=1)
    told.start(1, "corpus", "corpus/chat")
    told.start(2, "corpus", "corpus/math")
    Path("logs/s/corpus/chat.log").write_text("error: chat.json: empty; give another\n")
    told.fail(1, "corpus", "corpus/chat")
    Path("logs/s/corpus/math.log").write_text("kept 3\n")
    told.finish(2)
    if reported is not None:
        facts: dict[str, Any] = {REPORTED: reported}
        told.tell("report", **facts)
    told.tell("Exiting because a job execution failed. Look above for error messages", logging.ERROR)
    told.end()
    lines = screen(capsys)
    assert lines[2:4] == ["FAILED  corpus chat; all that does not need it goes on", "1/5  corpus math: kept 3 (1 s)"]
    assert lines[4:] == [
        "",
        "Study s: 1 of 5 jobs done in 1 s, 1 failed, 3 that need it were not started.",
        *where,
        "",
        "FAILED  corpus chat",
        "error: chat.json: empty; give another",
        "log: logs/s/corpus/chat.log",
        "",
        "How to go on: mend that, then give the same command again. What is done is kept.",
    ]


def test_a_job_that_succeeds_at_its_second_attempt_has_not_failed(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told()
    told.begin(corpus=1)
    for attempt in range(2):
        told.start(1, "corpus", "corpus/chat")
        Path("logs/s/corpus/chat.log").write_text("kept 3\n")
        told.finish(1) if attempt else told.fail(1, "corpus", "corpus/chat")
    told.end()
    assert screen(capsys)[-1] == "Study s: 1 of 1 jobs done in 1 s."


def test_a_stopped_run_says_so_and_blames_no_job(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told()
    told.begin(corpus=1)
    told.start(1, "corpus", "corpus/chat")
    told.tell("Terminating processes on user request, this might take some time.")
    told.fail(1, "corpus", "corpus/chat")
    told.end()
    lines = screen(capsys)
    assert lines[-1] == "Stopped: 0 of 1 jobs done in 1 s. The same command goes on from here."
    assert "FAILED" not in "".join(lines)


def test_errors_of_no_job_are_shown_and_words_before_a_run_too(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told()
    told.tell("Using workflow specific profile x")
    told.tell("all\ncorpus")  # of --list-rules
    told.tell("MissingInputException: no file", logging.ERROR, event=LogEvent.ERROR)
    told.end()
    assert screen(capsys) == ["all", "corpus", "MissingInputException: no file"]


def test_quiet_hides_all_but_failures(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(quiet={Quietness.ALL})
    told.begin(corpus=2)
    told.start(1, "corpus", "corpus/chat")
    told.finish(1)
    assert screen(capsys) == []
    told.start(2, "corpus", "corpus/math")
    told.fail(2, "corpus", "corpus/math")
    told.end()
    assert any(line.startswith("error: it ended without a word") for line in screen(capsys))


def test_a_dry_run_is_one_line_per_job(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(dryrun=True, stdout=True)
    told.begin(corpus=1)
    reason = "Missing output files: a; Input files updated by another job: b, c"
    log = ["logs/s/corpus/chat.log"]
    told.tell("job", event=LogEvent.JOB_INFO, jobid=1, rule_name="corpus", log=log, reason=reason)
    told.end()
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == "corpus chat: missing output files, input files updated by another job"


def test_what_it_does_not_understand_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told()
    told.begin(corpus=1)
    for event in LogEvent:
        told.tell(event=event)
    told.start(1, "corpus", "corpus/chat")
    told.finish(1)
    told.end()
    lines = screen(capsys)
    assert sum("the display failed" in line for line in lines) == 1
    assert lines[-1] == "Study s: 1 of 1 jobs done in 1 s."


def test_a_reader_that_is_gone_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def isatty(self) -> bool:
            return False

        def write(self, _: str) -> int:
            raise BrokenPipeError

        flush = write

    monkeypatch.setattr("sys.stderr", Gone())
    told = Told()
    told.begin(corpus=1)
    told.start(1, "corpus", "corpus/chat")
    told.finish(1)
    told.end()


def test_a_terminal_gets_a_bar_below_the_lines() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    screen = Screen(terminal)
    done = 0
    screen.start_bar(4, lambda: (done, f"0:0{done}; train x 45 %"))
    done = 2
    screen.say("2/4  corpus chat: kept 3")
    screen.end_bar()
    drawn = terminal.getvalue()
    line, bar = drawn.index("corpus chat: kept 3\n"), drawn.index("2/4  0:02; train x 45 %")
    assert line < bar
    assert drawn.endswith("\r")  # the bar is gone
    screen.say("the end")
    assert terminal.getvalue().endswith("\rthe end\n")


def test_a_bar_that_cannot_be_drawn_is_given_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(log: Path) -> str:
        raise RuntimeError("no such thing")

    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("snakemake_logger_plugin_taps.stage_logs.percentage", broken)
    told = Told()
    told.begin(corpus=1)
    told.start(1, "corpus", "corpus/chat")
    told.tell("Terminating processes on user request")
    told.finish(1)
    told.end()
    lines = screen(capsys)
    assert sum("the display failed (RuntimeError: no such thing)" in line for line in lines) == 1
    assert any("1/1  corpus chat: done" in line for line in lines)
