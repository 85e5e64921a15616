"""Logs of a daemon: a short line for people on a terminal, JSON lines for programs otherwise.

structlog's events and the lines of the standard `logging` (those of handlers and libraries) go
through the same renderer, and bear what is bound while an execution runs: job, scope,
execution_id, plan_time, attempt. Passwords of connection strings are masked.
"""

import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor

from cronledger.settings import MASK

EVENTS: Mapping[str, str] = {
    "abort_asked": "A second signal: running work is stopped now.",
    "after_claim_failed": "What follows a claim was not written; the sweeper makes up for it.",
    "app_registered": "The jobs of an App are applied, and this runner runs them.",
    "app_unregistered": "This runner has an App no more; `retired` plan no more, `kept` go on.",
    "commit_unknown": "The answer to the COMMIT of an end was lost; it is looked up.",
    "commit_was_unknown": "The answer to a claim's COMMIT was lost; what landed was given back.",
    "database_answers": "The database that was waited for at the start answers.",
    "database_accepted": "accept-database was called; this runner works again.",
    "database_awaited": "The database does not answer yet; the start waits for it.",
    "database_away": "The database does not answer: running work goes on, nothing new starts. "
    "Logged for each new `error`, and once a minute.",
    "database_back": "The database answers again.",
    "database_clock_leapt": "The database's clock left the monotonic one by more than a second; "
    "nothing is stolen or swept for one stale_timeout.",
    "declaration_warned": "A job is as it was declared, and probably not what was meant.",
    "diagnostics_asked": "SIGUSR1: how the runner is, and the stacks of its tasks and threads.",
    "diagnostics_broke": "A defect of cronledger in the answer to SIGUSR1.",
    "drain_asked": "A signal asked the runner to stop; a second one stops it at once.",
    "drain_deadline_passed": "`executions` that did not end within drain_timeout are stopped.",
    "embedded_started": "The embedded PostgreSQL runs, or one that ran already is shared.",
    "execution_broke": "A defect of cronledger ended an execution; it is FAILED.",
    "execution_cancelled": "An execution ended because somebody asked for it.",
    "execution_failed": "An attempt failed; `retry_after_s`: it is tried again so much later.",
    "execution_given_back": "An execution was given back unfinished; another runner takes it.",
    "execution_started": "An execution was won, retried or stolen (`how`) and starts.",
    "execution_succeeded": "A handler ended well; its execution is SUCCESS once that is written.",
    "execution_swept": "A lease ran out and nobody may take it over: the execution is FAILED.",
    "handler_overran": "A sync handler was asked to stop and goes on; it keeps its slot.",
    "health_listening": "/healthz and /readyz answer on this address.",
    "heartbeats_broke": "A defect of cronledger in the renewal of leases; it is tried again.",
    "heartbeats_failing": "Leases cannot be renewed; those that run out stop their handlers.",
    "heartbeats_resumed": "Leases are renewed again.",
    "job_broken": "A job cannot be planned; `error` says why. It stands still until it is edited.",
    "job_without_runner": "No live runner has the function of this job; its work waits.",
    "lease_expired": "A lease could not be renewed in time; its handler is stopped.",
    "lease_lost": "A lease is another's now; what its handler does late is refused.",
    "listen_failed": "Notifications cannot be received; the runner polls every poll_interval until "
    "it can listen again. Logged for each new `error`, and once a minute.",
    "listen_restored": "Notifications are received again.",
    "migrated": "A migration was applied.",
    "migration_pending": "A migration awaits `cronledger migrate`, once no older code runs.",
    "orphans_cancelled": "What waited of jobs that are retired or gone was CANCELLED.",
    "ledger_back": "The DSN leads to the runner's own ledger again.",
    "other_database": "This is another database than the ledger's own, restored or cloned: nothing "
    "is claimed or swept here until accept-database; what runs goes on.",
    "other_ledger": "The DSN leads to another ledger than the one that the runner began with; "
    "`why` names both. The runner does nothing there, and its leases expire.",
    "outcome_dropped": "The end of an execution could not be stored at all.",
    "outcome_not_storable": "The database refused the end of an execution; an error is stored.",
    "partitions_maintained": "A partition of executions was made or dropped, or skips were pruned.",
    "pause_ended": "A pause with an end is over.",
    "planning_left_to_others": "The live runners with newer tzdata or croniter have changed, or "
    "the number of them that are `able` to plan. They plan the jobs that depend on these versions.",
    "planning_taken_over": "The runners with newer tzdata or croniter (`of`) did not plan a due "
    "schedule that was left to them. This runner plans until they check in again.",
    "planner_failed": "A defect of cronledger in planning a job; the job stands still.",
    "runner_draining": "The runner claims nothing more and lets running work finish.",
    "runner_started": "The runner is registered and looks for work.",
    "runner_stopped": "The runner has ended: how many executions `finished` during its drain, were "
    "`given_back` or `failed` at its deadline, and are `unfinished`.",
    "scope_provider_failed": "A scope provider raised, hung or returned something else than a list "
    "of scopes. The job keeps the scopes that it has.",
    "scopes_changed": "Scopes appeared, returned or retired.",
    "scopes_not_stored": "A lock that others hold, or a scope that the database refuses, kept the "
    "answer of a scope provider out of the ledger. It is asked again a minute later.",
    "server_not_durable": "These settings of the server are `off`: a crash of its host may lose or "
    "corrupt what was committed.",
    "setting_unknown": "A CRONLEDGER_ variable of the environment means nothing.",
    "slots_saturated": "All slots are taken; what is due waits.",
    "source_applied": "The jobs of the source are those of the ledger now.",
    "source_refused": "A newer deploy of this source was applied before; its jobs stand.",
    "step_failed": "A step of a loop raised; it is tried again.",
}
"""Every event this package logs, and what it means."""

Format = Literal["auto", "console", "json"]

_FIRST = ("time", "level", "event", "job", "scope", "execution_id", "plan_time", "attempt")
_USER = re.compile(r"(?<=://)([^\s:@/?#]*):\S*@")
_ROW = re.compile(r"(Failing row contains \()(.*\)|.*)")  # a lease_token may be in it
_PASSWORD = re.compile(r"(?i)((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&]+)")
_WORDS = {
    "execution_succeeded": "done",
    "execution_failed": "failed",
    "execution_cancelled": "cancelled",
    "execution_given_back": "given back",
    "execution_swept": "swept",
}
_COLOURS = {"debug": "2", "warning": "33", "error": "31", "critical": "31"}
_RESET = "\x1b[0m"


def configure(form: Format, level: str, stream: TextIO | None = None) -> None:
    """Afterwards every log line of this process goes to `stream` (standard error) in that form."""
    stream = stream or sys.stderr
    threshold = logging.getLevelNamesMapping()[level.upper()]
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        scrub,
    ]
    renderer = renderer_of(form, stream)
    written = steady(stream)
    structlog.configure(
        processors=[*before, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(written),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(written)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *before[:3]],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                scrub,
                renderer,
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=threshold, force=True)
    # It warns of every connection that breaks or cannot be made; `database_away` says that once.
    logging.getLogger("psycopg").setLevel(logging.ERROR)


def renderer_of(form: Format, stream: TextIO) -> Processor:
    """Return what makes a line of an event, in the form that fits `stream`."""
    on_terminal = stream.isatty()
    if form == "json" or (form == "auto" and not on_terminal):
        return json_line()
    return ConsoleLine(colours=on_terminal and not os.environ.get("NO_COLOR"))


def steady(stream: TextIO) -> Any:
    """Return `stream` so that a failure to write to it raises nothing."""
    return _Patient(stream)


class _Patient:
    """A stream that cannot fail: a full disk or a closed pipe must not reach the engine."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except (OSError, ValueError):
            return 0
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return


def scrub(_: object, __: str, event: EventDict) -> EventDict:
    """Mask the passwords of connection strings, and rows that PostgreSQL quotes, in every text."""
    for key, value in event.items():
        if isinstance(value, str) and ("://" in value or "assword" in value.lower()):
            event[key] = _PASSWORD.sub(rf"\g<1>{MASK}", _USER.sub(rf"\1:{MASK}@", value))
        if isinstance(value, str) and "Failing row contains" in value:
            event[key] = _ROW.sub(rf"\1{MASK})", event[key])
    return event


def json_line() -> Callable[[Any, str, EventDict], str]:
    """A renderer: one JSON object; what every line has, and which execution it is about, first."""
    render = structlog.processors.JSONRenderer(ensure_ascii=False)

    def line(logger: Any, name: str, event: EventDict) -> str:
        first = {key: event.pop(key) for key in _FIRST if key in event}
        return str(render(logger, name, {**first, **event}))

    return line


class ConsoleLine:
    """A renderer: `12:00:05 won  report  plan 12:00:00Z  #123`, times of day in UTC."""

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours

    def __call__(self, _: object, __: str, event: EventDict) -> str:
        name = str(event.pop("event", ""))
        level = str(event.pop("level", "info"))
        time = str(event.pop("time", ""))[11:19]
        trouble = event.pop("exception", None)
        word = str(event.pop("how", name)) if name == "execution_started" else _WORDS.get(name)
        said = word or (name.replace("_", " ") if name in EVENTS else name)
        parts = [f"{said:<10}", *_of_execution(event)]
        parts += [f"{key}={_text(value)}" for key, value in event.items() if value is not None]
        line = f"{time} {self._painted(name, level, '  '.join(parts).rstrip())}"
        return line if trouble is None else f"{line}\n{trouble}"

    def _painted(self, name: str, level: str, text: str) -> str:
        colour = "32" if name == "execution_succeeded" else _COLOURS.get(level)
        if not self._colours or colour is None:
            return text
        return f"\x1b[{colour}m{text}{_RESET}"


def _of_execution(event: EventDict) -> list[str]:
    """What says which execution a line is about, taken out of the event."""
    job, scope = event.pop("job", None), event.pop("scope", None)
    plan_time, number = event.pop("plan_time", None), event.pop("execution_id", None)
    attempt, trigger = event.pop("attempt", None), event.pop("trigger", None)
    event.pop("logger", None)
    parts = []
    if job is not None:
        parts.append(f"{job if scope in (None, 'global') else f'{job}[{scope}]':<16}")
    if plan_time is not None:
        parts.append(f"plan {str(plan_time)[11:19]}Z")
    if number is not None:
        parts.append(f"#{number}")
    if attempt not in (None, 1):
        parts.append(f"attempt {attempt}")
    if trigger not in (None, "schedule"):
        parts.append(str(trigger))
    # A handler may log whatever it likes under these names.
    if isinstance(length := event.get("duration_ms"), int):
        del event["duration_ms"]
        parts.append(f"in {length} ms" if length < 1000 else f"in {length / 1000:.1f} s")
    if isinstance(later := event.get("retry_after_s"), float):
        del event["retry_after_s"]
        parts.append(f"again in {later:g} s")
    return parts


def as_text(event: EventDict) -> str:
    """Return an event as one line: its name, then its values."""
    values = (f"{key}={_text(x)}" for key, x in event.items() if key != "event" and x is not None)
    return " ".join([str(event.get("event", "")), *values])


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    text = str(value)
    return repr(text) if not text or any(c.isspace() for c in text) else text
