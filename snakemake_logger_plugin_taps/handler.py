"""From Snakemake's events to what a user wants to know of a run."""

from __future__ import annotations

import logging
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snakemake.logging import ColorizingTextHandler, DefaultFilter, DefaultFormatter
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_taps import job_times, stage_logs
from snakemake_logger_plugin_taps.screen import Screen

STUDY = "taps_study"
"""Attribute of the log record in which the Snakefile says what is run: {study, results, report, logs}."""

REPORTED = "taps_reported"
"""Attribute of the log record in which it says, after jobs failed, how to report the rest: [] if that is done."""

SAID = "taps_said"
"""Attribute of a log record whose message is for the screen."""

_TARGETS = ("all", "figures", "tables")  # rules that only ask for others
_PUBLISHING = "publish"  # the rule whose log holds the report's first lines
_SHOWN_WHOLE = ("plan",)  # rules that are run for what they print
_NOISE = ("Using ", "Config file ", "Building DAG", "Assuming unrestricted", "host: ")  # before a run begins
_TOLD_BY_JOBS = ("CalledProcessError", "At least one job did not complete", "Exiting because a job execution failed")
_STOPPING = ("Terminating processes on user request", "Will exit after finishing")
_SHOWN_RUNNING = 3  # running stages beside the bar


@dataclass
class _Job:
    """A job of this run.

    Attributes:
        rule: Its rule.
        label: Its name on the screen, e.g. `train eagle2/seed0/math`.
        logs, outputs: Its files.
        threads: That it holds.
        started: Seconds since the epoch.
    """

    rule: str
    label: str
    logs: list[Path]
    outputs: list[str]
    threads: int
    started: float

    @property
    def lines(self) -> list[str]:
        """What it has printed since it started."""
        return [line for log in self.logs for line in stage_logs.read_lines(log, since=self.started)]


class LogHandler(LogHandlerBase):
    """What Snakemake calls; nothing that goes wrong here stops a run."""

    def __post_init__(self) -> None:
        settings: Any = self.common_settings
        self._folder = Path.cwd()
        self._screen = Screen()
        self._is_quiet = Quietness.ALL in (settings.quiet or ())
        self._plain: logging.Handler | None = _plain_handler(settings) if settings.dryrun or settings.verbose else None
        self._study: Mapping[str, str] = {}
        self._is_run = self._was_stopped = self._has_faltered = self._nothing_to_do = False
        self._counts: dict[str, int] = {}
        self._cores: int | None = None  # known for jobs that run here
        self._times: job_times.JobTimes | None = None
        self._jobs: dict[int, _Job] = {}
        self._running: dict[int, _Job] = {}
        self._failed: dict[int, tuple[_Job, str]] = {}
        self._num_done = self._num_jobs = 0
        self._began = 0.0
        self._reported: list[str] | None = None
        self._closed = False

    @property
    def writes_to_stream(self) -> bool:
        """Yes: it takes the place of Snakemake's own."""
        return True

    @property
    def writes_to_file(self) -> bool:
        """No."""
        return False

    @property
    def has_filter(self) -> bool:
        """Yes: --quiet hides lines here, but no failure."""
        return True

    @property
    def has_formatter(self) -> bool:
        """Yes."""
        return True

    @property
    def needs_rulegraph(self) -> bool:
        """No."""
        return False

    def emit(self, record: logging.LogRecord) -> None:
        """Shows what a record tells, if anything."""
        self._safely(lambda: self._take(record))

    def close(self) -> None:
        """Says how the run ended."""
        if not self._closed:
            self._closed = True
            self._safely(self._screen.end_bar)
            self._safely(self._end)
        super().close()

    def _safely(self, show: Any) -> None:
        try:
            show()
        except Exception as error:  # noqa: BLE001 - a fault of the display must not end hours of work
            if not self._has_faltered:
                self._has_faltered = True
                self._screen.end_bar()
                self._screen.say(f"the display failed ({type(error).__name__}: {error}); .snakemake/log has it all")

    # --- events ------------------------------------------------------------------------------------------------------

    def _take(self, record: logging.LogRecord) -> None:
        facts = record.__dict__
        if STUDY in facts:
            self._study = facts[STUDY]
            return
        if REPORTED in facts:
            self._reported = facts[REPORTED]
            return
        if SAID in facts:
            self._say(record.getMessage())
            return
        if self._plain is not None:
            if self.common_settings.verbose or not self._say_planned(facts, record.getMessage()):
                self._plain.handle(record)
            return
        match facts.get("event"):
            case LogEvent.WORKFLOW_STARTED:
                self._is_run = True
            case LogEvent.RESOURCES_INFO:
                self._cores = facts.get("cores") or self._cores
            case LogEvent.RUN_INFO:
                counts = dict(facts["stats"])
                self._num_jobs = counts.pop("total", sum(counts.values()))
                self._counts = counts
            case LogEvent.JOB_INFO:
                self._start(facts)
            case LogEvent.JOB_FINISHED:
                self._finish(facts["job_id"])
            case LogEvent.JOB_ERROR:
                self._fail(facts)
            case LogEvent.SHELLCMD if self.common_settings.printshellcmds and facts.get("shellcmd"):
                self._say(facts["shellcmd"])
            case LogEvent.ERROR | None:
                self._say_message(record)

    def _say_message(self, record: logging.LogRecord) -> None:
        """Shows what is no event: all of it before a run begins, then warnings and errors that no job accounts for."""
        text = record.getMessage()
        if text.startswith(_STOPPING):
            self._was_stopped = True
            self._say(text)
        elif text.startswith("Nothing to be done"):
            self._nothing_to_do = True
            self._say(text)
        elif record.levelno >= logging.WARNING:
            if not any(words in text for words in _TOLD_BY_JOBS):
                self._screen.say(text)
        elif not self._is_run and not text.startswith(_NOISE) and text != "None":
            self._say(text)

    def _say(self, text: str) -> None:
        if not self._is_quiet:
            self._screen.say(text)

    def _say_planned(self, facts: Mapping[str, Any], text: str) -> bool:
        """Shows one line for a job of a dry run; returns whether that is all that the record is worth."""
        if facts.get("event") == LogEvent.JOB_INFO:
            if not {Quietness.ALL, Quietness.RULES} & set(self.common_settings.quiet or ()):
                print(f"{_label(facts)}: {_in_short(facts['reason'])}")
            return True
        return facts.get("event") == LogEvent.WORKFLOW_STARTED or text.startswith(_NOISE)

    def _start(self, facts: Mapping[str, Any]) -> None:
        if not self._began:
            self._began = time.time()
            self._say_plan()
            if not self._is_quiet:
                self._screen.start_bar(self._num_jobs, self._status)
        threads = facts["threads"] if isinstance(facts["threads"], int) else 1
        job = _Job(
            rule=facts["rule_name"],
            label=_label(facts),
            logs=[Path(str(log)) for log in facts["log"]],
            outputs=[str(output) for output in facts["output"]],
            threads=threads,
            started=time.time(),
        )
        self._jobs[facts["jobid"]] = self._running[facts["jobid"]] = job

    def _finish(self, job_id: int) -> None:
        self._num_done += 1
        self._failed.pop(job_id, None)  # done at a later attempt
        job = self._running.pop(job_id, None)
        if job is None:
            return
        lines = job.lines
        if self._times is not None and (lines or not job.logs):  # not those that `--touch` only touched
            self._times.add(job.rule, job.threads * (time.time() - job.started))
        if not job.logs:
            return  # a target, not a stage
        took = job_times.in_words(time.time() - job.started)
        found = stage_logs.result(lines, job.outputs)
        place = f"{self._num_done:>{len(str(self._num_jobs))}}/{self._num_jobs}"
        self._say(f"{place}  {job.label}: {found or 'done'} ({took})")
        if job.rule in _SHOWN_WHOLE:
            self._say("\n".join(lines))
        else:
            for warning in stage_logs.warnings(lines):
                self._say(f"  {warning}")

    def _fail(self, facts: Mapping[str, Any]) -> None:
        job = self._running.pop(facts["jobid"], None) or self._jobs.get(facts["jobid"])
        if job is None:
            return
        logs = [Path(str(log)) for log in facts["log"]] or job.logs
        lines = [line for log in logs for line in stage_logs.read_lines(log, since=job.started)]
        self._failed[facts["jobid"]] = (job, stage_logs.error(lines))
        if not self._was_stopped:
            self._screen.say(f"FAILED  {job.label}; all that does not need it goes on")

    # --- before, meanwhile, afterwards -------------------------------------------------------------------------------

    def _say_plan(self) -> None:
        """Says what the run will do, how long that takes and where its results go."""
        jobs = f"{self._num_jobs} jobs" if self._num_jobs != 1 else "1 job"
        if self._cores is None:
            how_long = "sent to the cluster"
        else:
            earlier = {**dict.fromkeys(_TARGETS, 0.0), **job_times.load(self._study.get("study", ""))}
            self._times = job_times.JobTimes(self._counts, self._cores, earlier)
            seconds, is_known = self._times.expected_s()
            how_long = f"on {self._cores} cores" if self._cores > 1 else "on 1 core"
            if is_known:
                how_long += f", about {job_times.in_words(seconds)} as earlier runs on this machine went"
            else:
                how_long += "; how long, no earlier run on this machine tells"
        self._say(f"{self._title()}: {jobs} {how_long}")
        if self._study:
            results, logs, report = (self._place(self._study[name]) for name in ("results", "logs", "report"))
            self._say(f"results in {results}, logs in {logs}, the report will be {report}")

    def _status(self) -> tuple[int, str]:
        """Returns how far the run is; called from the bar's thread."""
        now, running = time.time(), list(self._running.values())
        words = _clock(now - self._began)
        if self._times is not None:
            spent: Counter[str] = Counter()
            for job in running:
                spent[job.rule] += job.threads * (now - job.started)  # type: ignore[assignment]
            seconds, is_known = self._times.left_s(now - self._began, spent)
            if is_known:
                words += f", about {job_times.in_words(seconds)} left"
            elif seconds > 60:
                words += f", {job_times.in_words(seconds)} left or more"
        stages = [f"{job.label}{stage_logs.percentage(job.logs[0])}" for job in running if job.logs]
        more = f" and {len(stages) - _SHOWN_RUNNING} more" if len(stages) > _SHOWN_RUNNING else ""
        return self._num_done, f"{words}; {', '.join(stages[:_SHOWN_RUNNING])}{more}" if stages else words

    def _end(self) -> None:
        if self._times is not None:
            job_times.save(self._study.get("study", ""), self._times.means)
        if self._nothing_to_do:
            self._say_report()
        elif self._was_stopped:
            self._screen.say(f"\nStopped: {self._progress()}. The same command goes on from here.")
        elif self._failed:
            self._say_failures()
        elif self._is_run and self._began and self._num_done >= self._num_jobs:
            self._say(f"\n{self._title()}: {self._progress()}.")
            if _PUBLISHING in self._counts:
                self._say_report()

    def _say_failures(self) -> None:
        """Says, last on the screen, what failed, why, and how to go on."""
        num_waiting = self._num_jobs - self._num_done - len(self._failed)
        needed = f", {num_waiting} that need it were not started" if num_waiting else ""
        failed = f"{len(self._failed)} failed{needed}"
        lines = [f"\n{self._title()}: {self._progress()}, {failed}."]
        if self._reported is not None:
            by_hand = shlex.join(["snakemake", "--cores", "1", *self._reported])
            where = by_hand if self._reported else self._place(self._study["report"])
            lines.append(f"The report without them: {where}")
        for job, error in self._failed.values():
            lines += ["", f"FAILED  {job.label}", error]
            lines += [f"log: {self._place(str(log))}" for log in job.logs]
        lines += ["", "How to go on: mend that, then give the same command again. What is done is kept."]
        self._screen.say("\n".join(lines))

    def _say_report(self) -> None:
        report = self._study.get("report", "")
        if not Path(report).is_file():
            return
        self._say(f"The report: {self._place(report)}")
        lines = stage_logs.read_lines(Path(self._study["logs"]) / f"{_PUBLISHING}.log")
        for line in lines:
            if not line.startswith(f"{report}: "):
                self._say(f"  {line}")

    def _title(self) -> str:
        return f"Study {self._study['study']}" if self._study else "This run"

    def _progress(self) -> str:
        took = f" in {job_times.in_words(time.time() - self._began)}" if self._began else ""
        return f"{self._num_done} of {self._num_jobs} jobs done{took}"

    def _place(self, path: str) -> str:
        """Returns a path as it is found from where the command was given."""
        return path if Path.cwd() == self._folder else str(Path(path).absolute())


def _plain_handler(settings: Any) -> logging.Handler:
    """Returns Snakemake's own way of showing things: for dry runs, and for those who ask for all of it."""
    import sys

    quiet = settings.quiet or set()
    return ColorizingTextHandler(
        nocolor=settings.nocolor,
        stream=sys.stdout if settings.stdout else sys.stderr,
        filter=DefaultFilter(quiet, settings.debug_dag, settings.verbose, settings.dryrun, settings.printshellcmds),
        formatter=DefaultFormatter(quiet, settings.show_failed_logs),
    )


def _label(facts: Mapping[str, Any]) -> str:
    """Returns a job's name: its log's, `logs/<study>/train/eagle2/seed0/math.log` being `train eagle2/seed0/math`."""
    rule = str(facts["rule_name"])
    logs: Iterable[Any] = facts["log"]
    for log in logs:
        parts = Path(str(log)).with_suffix("").parts
        if rule in parts:
            return " ".join(filter(None, [rule, "/".join(parts[parts.index(rule) + 1 :])]))
        return " ".join([rule, "/".join(parts[2:])])
    return rule


def _in_short(reason: str) -> str:
    """Returns the reasons of a job in a dry run, without the names of files and the values that go with them."""
    kinds = [part.partition(":")[0].strip() for part in str(reason).split(";")]
    return ", ".join(kind.lower() for kind in kinds if kind[:1].isupper() and len(kind) < 80) or "asked for"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
